"""wl map: the user's Python over samples."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests_support import tar_bytes


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


def test_statements_change_one_field_and_leave_the_rest_byte_for_byte(wl: Any, shard: str, members: Any) -> None:
    ended = wl("map", "-c", '_["cls"] -= 1', shard)
    assert (ended.code, ended.err) == (0, "")
    before, after = members(shard), members(ended.out)
    assert after["003.cls", b"2"] == 1
    assert {item for item in before if not item[0].endswith(".cls")} <= set(after)


def test_assigning_to_a_fields_name_changes_the_field(wl: Any, shard: str, members: Any) -> None:
    assert members(wl("map", "-e", "cls = cls * 10", shard).out)["003.cls", b"30"] == 1


@pytest.mark.parametrize(
    "code", ["_", "_.copy()", "{**_}", "dict(_)", "[_]", "_['jpg']; _['json']", "_['cls'] = _['cls']"]
)
def test_map_identity_is_the_identity(wl: Any, shard: str, code: str) -> None:
    assert wl("map", "-e", code, shard).out == wl("concat", shard).out


def test_a_value_changed_in_place_is_written(wl: Any, shard: str, members: Any) -> None:
    out = members(wl("map", "-e", "_['json']['n'] += 100; _['jpg'][:] = 0", shard).out)
    assert json.loads(next(data for name, data in out if name == "003.json"))["n"] == 103
    picture = next(data for name, data in out if name == "003.jpg")
    assert np.asarray(Image.open(io.BytesIO(picture))).max() < 5


def test_none_drops_and_a_list_makes_several(wl: Any, shard: str, names: Any) -> None:
    ended = wl("map", "-e", '[_, {"txt": txt.upper()}] if cls < 2 else None', shard)
    assert names(ended.out) == [
        *("000.cls", "000.jpg", "000.json", "000.txt", "000/000001.txt"),
        *("001.cls", "001.jpg", "001.json", "001.txt", "001/000001.txt"),
    ]


@pytest.mark.parametrize("code", ["_.pop('jpg')", "_.update(cls=7)", "print(cls, file=None)", "del _['jpg']"])
def test_calls_for_their_effect_do_not_drop_the_sample(wl: Any, shard: str, code: str, names: Any) -> None:
    assert "003.txt" in names(
        wl("map", "-o", "-", "-e", code.replace("file=None", "end='', file=os.sys.stderr"), shard).out
    )


def test_a_file_and_a_function_of_a_module(
    wl: Any, shard: str, tmp_path: Path, members: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "def transform(sample):\n    sample['cls'] += 5\n    return sample\n\ndef drop(sample):\n    return None\n"
    (tmp_path / "mycode.py").write_text(code)
    assert members(wl("map", "-l", tmp_path / "mycode.py", shard).out)["003.cls", b"8"] == 1
    assert members(wl("map", "-l", f"{tmp_path}/mycode.py:drop", shard).out) == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    assert members(wl("map", "-m", "mycode:transform", shard).out)["003.cls", b"8"] == 1
    assert "has no function 'nothing'" in wl("map", "-m", "mycode:nothing", shard).err


def test_precode_runs_once_and_its_names_stay(wl: Any, shard: str, members: Any) -> None:
    out = members(wl("map", "-C", "n = 100", "-e", "n += 1; _['cls'] = n", shard).out)
    assert out["009.cls", b"110"] == 1


@pytest.mark.parametrize("processes", [2, 3])
def test_parallel_is_serial(wl: Any, shard: str, processes: int) -> None:
    code = '[_, {"cls": cls, "jpg": _["jpg"]}] if cls % 3 else None'
    serial, parallel = wl("map", "-e", code, shard), wl("map", "-P", processes, "-e", code, shard)
    assert (serial.code, parallel.code) == (0, 0)
    assert serial.out == parallel.out


def test_unordered_gives_the_same_samples(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(2, samples=600)
    out = members(wl("map", "-P", 2, "--unordered", "-e", "_", *shards).out)
    assert out == members(shards[0]) + members(shards[1])


def test_a_number_after_c_is_the_count(wl: Any, shard: str, names: Any) -> None:
    assert len(names(wl("map", "-c", "2", "-e", "_", shard).out)) == 8


@pytest.mark.parametrize("processes", [0, 2])
def test_a_sample_that_fails_under_each_on_error(wl: Any, shard: str, names: Any, processes: int) -> None:
    code = "1 / (cls - 3); pass"
    run = ("map", "-P", processes, "-e", code)
    raised = wl(*run, shard)
    assert (raised.code, raised.out) == (1, b"")
    assert "ZeroDivisionError" in raised.err
    assert "key 003" in raised.err
    skipped = wl(*run, "--on-error", "skip", shard)
    assert skipped.code == 0
    assert len(names(skipped.out)) == 36
    assert "left out: 1 samples" in skipped.err
    stopped = wl(*run, "--on-error", "stop", shard)
    assert stopped.code == 1
    assert names(stopped.out)[-1] == "002.txt"


def test_a_typo_in_a_field_lists_the_fields(wl: Any, shard: str) -> None:
    for code in ('_["clss"] -= 1', "clss"):
        ended = wl("map", "-e", code, shard)
        assert ended.code == 1
        assert "there is no field 'clss', did you mean 'cls'?; the fields here are cls jpg json txt" in ended.err


def test_a_syntax_error_is_shown_with_a_caret(wl: Any, shard: str) -> None:
    ended = wl("map", "-c", '_["cls" -= 1', shard)
    assert ended.code == 2
    told, line, caret = ended.err.splitlines()
    assert told.startswith("wl map: the code has a syntax error")
    assert (line, caret.strip()) == ('  _["cls" -= 1', "^")


def test_a_result_that_is_no_sample_says_what_is(wl: Any, shard: str) -> None:
    ended = wl("map", "-e", "cls + 1", shard)
    assert ended.code == 1
    assert "the result is int, not a sample" in ended.err


def test_two_samples_of_one_result_need_keys_of_their_own(wl: Any, shard: str) -> None:
    assert "have the same key" in wl("map", "-e", "[_, _]", shard).err


def test_code_from_the_data_is_never_run(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'trap')!r}, 'w')".encode()
    shard = make_shard("trap.tar", files=[("a.txt", trap), ("a.json", b'"__import__"'), ("a.py", trap)])
    assert wl("map", "-S", "txt and json", "-e", "_", shard).code == 0
    assert not (tmp_path / "trap").exists()


def test_a_pickle_in_the_data_is_refused(wl: Any, make_shard: Any) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    ended = wl("map", "-e", "pyd", make_shard("p.tar", files=[("a.pyd", pickle.dumps(Evil()))]))
    assert ended.code == 1
    assert "system" in ended.err


def test_raw_leaves_bytes(wl: Any, shard: str, members: Any) -> None:
    assert members(wl("map", "-d", "raw", "-e", "_['cls'] += b'!'", shard).out)["003.cls", b"3!"] == 1


@pytest.mark.parametrize("shards", [1, 2])
def test_an_interrupt_ends_the_processes(shard: str, tmp_path: Path, shards: int) -> None:
    (tmp_path / "tmp").mkdir()
    code = f"open('{tmp_path}/started', 'a').write(f'{{os.getpid()}}\\n'); __import__('time').sleep(100); _"
    argv = [
        sys.executable,
        "-m",
        "webdataset",
        "map",
        "-P",
        "2",
        "-e",
        code,
        *[shard] * shards,
        "-o",
        f"{tmp_path}/out.tar",
    ]
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": f"{tmp_path}/tmp"})
    while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert (child.returncode, told) == (130, b"wl map: interrupted\n")
    for pid in (tmp_path / "started").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert not (tmp_path / "out.tar").exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_a_process_that_dies_is_an_error(wl: Any, shard: str, tmp_path: Path) -> None:
    ended = wl("map", "-P", "2", "-e", "os._exit(3) if cls == 5 else _", shard, "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "process" in ended.err
    assert not (tmp_path / "out.tar").exists()


def test_the_seeds_line_runs_as_written(wl: Any, shard: str, tmp_path: Path, names: Any) -> None:
    ended = wl.old("wl-map", "-c", '_["cls"] -= 1', shard, "-o", tmp_path / "output.tgz")
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "output.tgz").read_bytes()[:2] == b"\x1f\x8b"
    assert len(names(tmp_path / "output.tgz")) == 40


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.dictionaries(st.sampled_from(["a", "b.c", "bin", "xyz"]), st.binary(max_size=600), min_size=1))
)
def test_identity_keeps_every_byte(wl: Any, tmp_path: Path, members: Any, contents: list[dict[str, bytes]]) -> None:
    files = [(f"{n}.{ext}", data) for n, fields in enumerate(contents) for ext, data in sorted(fields.items())]
    (tmp_path / "in.tar").write_bytes(tar_bytes(files))
    assert members(wl("map", "-e", "_", tmp_path / "in.tar").out) == members(tmp_path / "in.tar")


# -- what several processes pack is what one would write -------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c/d", "e.f", "ü", "g" * 60 + "/" + "h" * 60, "h\n", "-i"])
CODES = st.sampled_from(
    [
        "_",
        '_["cls"] += 1',
        "[_, {'__key__': 'x', 'txt': 'y'}]",
        "{**_, '__key__': 'same'}",
        "None if cls == 3 else _",
        "1 / (cls - 3)",
    ]
)


@example(keys=["a", "b", "c/d", "e.f"], code="{**_, '__key__': 'same'}", several=False, words=["-S", "cls != 1"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(KEYS, max_size=8, unique=True),
    code=CODES,
    several=st.booleans(),
    words=st.sampled_from(
        [["-S", "cls != 1"], ["--maxcount", 2], ["--maxsize", 700], ["--on-error", "skip"], ["--on-error", "stop"]]
    ),
)
def test_shards_of_several_processes_are_those_of_one(
    wl: Any, tmp_path: Path, *, keys: list[str], code: str, words: list[Any], several: bool
) -> None:
    files = [(f"{key}.{ext}", b"%d" % n * size) for n, key in enumerate(keys) for ext, size in (("cls", 1), ("z", 600))]
    half = len(keys) // 2 * 2 if several else 0
    for name, part in (("in-0.tar", files[half:]), ("in-1.tar", files[:half])):
        (tmp_path / name).write_bytes(tar_bytes(part))
    shards = [tmp_path / "in-1.tar", tmp_path / "in-0.tar"] if several else [tmp_path / "in-0.tar"]
    ways = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        ended = wl("map", "-P", processes, "-e", code, *words, *shards, "-o", folder / "o-%d.tar")
        told = ended.err.replace(str(folder), "")
        ways[processes] = ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ways[1] == ways[2]


def test_a_sample_that_cannot_be_written_is_the_same_error_from_another_process(wl: Any, shard: str) -> None:
    code = "_ if cls != 5 else {'__key__': 'bad/', 'txt': 'x'}"
    serial, parallel = wl("map", "-e", code, shard), wl("map", "-P", 2, "-e", code, shard)
    assert (serial.code, serial.err) == (parallel.code, parallel.err)
    assert "must not be empty or end in a slash" in parallel.err


@pytest.mark.parametrize("damage", [lambda data: data[:5000], lambda data: data[:1030] + b"x" + data[1031:]])
def test_a_bad_shard_is_told_by_the_process_that_reads_it(
    wl: Any, make_shards: Any, tmp_path: Path, damage: Any
) -> None:
    shards = make_shards(3, samples=20)
    Path(shards[1]).write_bytes(damage(Path(shards[1]).read_bytes()))
    for words in (["--maxcount", 5], ["--maxcount", 5, "--on-error", "skip"]):
        ways = []
        for processes in (1, 2):
            folder = tmp_path / f"{len(words)}-{processes}"
            folder.mkdir()
            ended = wl("map", "-P", processes, "-e", "_", *words, *shards, "-o", folder / "o-%d.tar")
            told = ended.err.replace(str(folder), "")
            ways.append((ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}))
        assert ways[0] == ways[1]


def test_each_process_makes_the_function_once(wl: Any, make_shards: Any, members: Any, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "import os\nopen(f'made-{os.getpid()}', 'a').write('x')\ndef transform(_): return _\n"
    )
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert wl("map", "-P", 2, "-l", "f.py", *make_shards(8, samples=2), "-o", "out.tar").code == 0
    finally:
        os.chdir(before)
    others = [path.read_text() for path in tmp_path.glob("made-*") if path.name != f"made-{os.getpid()}"]
    assert set(others) == {"x"}


def test_samples_of_several_processes_are_counted(wl: Any, make_shard: Any) -> None:
    shard = make_shard(samples=700)
    assert wl("map", "-v", "-P", 2, "-e", "_", shard).err.startswith("700 samples in ")
    told = wl("map", "--json", "-P", 2, "-e", "_", shard).err.split("\n")[-2]
    assert json.loads(told)["samples"] == 700
