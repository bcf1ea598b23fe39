"""wl sort, shuffle and split: every sample stays, byte for byte, in the order that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes

RELAXED = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

SAMPLES = st.lists(
    st.tuples(st.sampled_from(["a", "b/c", "d-é", "x y"]), st.integers(-5, 5), st.binary(max_size=1500)), max_size=30
)


def archive(path: Path, samples: list[tuple[str, int, bytes]]) -> Path:
    """Keys are made distinct; classes are not."""
    files = [
        (f"{key}{n}.{ext}", data)
        for n, (key, label, blob) in enumerate(samples)
        for ext, data in (("bin", blob), ("cls", b"%d" % label))
    ]
    path.write_bytes(tar_bytes(files))
    return path


def labels(data: bytes, members: Any) -> list[int]:
    return [int(content) for (name, content) in members(data) if name.endswith(".cls")]


# -- sort --------------------------------------------------------------------------------------------


@RELAXED
@given(samples=SAMPLES, memory=st.sampled_from(["1", "3k", "100M"]), reverse=st.booleans())
def test_sorting_is_stable_and_keeps_everything(
    wl: Any, tmp_path: Path, members: Any, *, samples: list[tuple[str, int, bytes]], memory: str, reverse: bool
) -> None:
    source = archive(tmp_path / "in.tar", samples)
    flags = ["-r"] if reverse else []
    ended = wl("sort", "-k", "cls", "--as", "int", "--memory", memory, *flags, source)
    assert ended.code == 0
    assert members(ended.out) == members(source)
    expected = sorted(labels(source.read_bytes(), members), reverse=reverse)
    assert labels(ended.out, members) == expected
    in_order = [name for name, _ in members(source) if name.endswith(".cls")]
    values = dict(zip(in_order, labels(source.read_bytes(), members), strict=True))
    result = [name for name, _ in members(ended.out) if name.endswith(".cls")]
    assert result == sorted(in_order, key=values.__getitem__, reverse=reverse)


def test_sorting_by_key_text_and_numbers(wl: Any, make_shard: Any, names: Any) -> None:
    files = [("b.n", b"10"), ("a.n", b"9"), ("c.n", b"-1.5")]
    shard = make_shard(files=files)
    assert names(wl("sort", shard).out) == ["a.n", "b.n", "c.n"]
    assert names(wl("sort", "-k", "n", shard).out) == ["c.n", "b.n", "a.n"]
    assert names(wl("sort", "-k", "n", "--as", "float", shard).out) == ["c.n", "a.n", "b.n"]


def test_equal_keys_are_all_kept_under_new_keys_and_an_error_without(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard("x.tar", samples=3)
    assert len(names(wl("sort", "--rekey", "{key}-{index}", shard, shard).out)) == 12
    ended = wl("sort", shard, shard)
    assert ended.code == 1
    assert "two samples in a row have the same key" in ended.err
    assert "--rekey" in ended.err


@pytest.mark.parametrize("cores", [(), ("-P", "2")])
@pytest.mark.parametrize("seed", range(5))
def test_a_shuffle_keeps_equal_keys_apart(wl: Any, make_shard: Any, members: Any, seed: int, cores: Any) -> None:
    shards = [make_shard(f"{name}.tar", samples=5) for name in "abcd"]
    ended = wl("shuffle", "--seed", seed, *cores, *shards)
    assert ended.code == 0
    assert set(members(ended.out).values()) == {4}
    assert ended.out == wl("shuffle", "--seed", seed, *shards).out


def test_a_value_that_is_no_number_and_a_field_that_is_not_there(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(files=[("a.n", b"1"), ("b.n", b"many"), ("c.n", b"0")])
    ended = wl("sort", "-k", "n", "--as", "int", shard)
    assert ended.code == 1
    assert "b'many' is not of type int" in ended.err
    assert names(wl("sort", "-k", "n", "--as", "int", "--on-error", "skip", shard).out) == ["c.n", "a.n"]
    assert "there is no field 'm'; the fields here are n" in wl("sort", "-k", "m", shard).err


def test_numbers_that_are_no_numbers_come_last(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(files=[("a.n", b"nan"), ("b.n", b"inf"), ("c.n", b"nan"), ("d.n", b"1")])
    assert names(wl("sort", "-k", "n", "--as", "float", shard).out) == ["d.n", "b.n", "a.n", "c.n"]


def test_many_runs_are_merged_in_steps(wl: Any, make_shard: Any, members: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import webdataset.tools.transform.sorting

    monkeypatch.setattr(webdataset.tools.transform.sorting, "MAX_RUNS", 3)
    shard = make_shard(samples=100)
    ended = wl("sort", "-r", "--memory", "2k", shard)
    assert members(ended.out) == members(shard)
    assert labels(ended.out, members) == list(reversed(range(100)))


def test_the_temporary_files_go_also_after_an_error(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shard = make_shard(files=[(f"{i}.n", b"%d" % i if i < 90 else b"x") for i in range(100)])
    assert wl("sort", "-k", "n", "--as", "int", "--memory", "1k", "--tmpdir", tmp_path / "work", shard).code == 1
    assert os.listdir(tmp_path / "work") == []


@pytest.mark.parametrize("command", ["sort", "shuffle"])
def test_memory_is_bounded(tmp_path: Path, command: str) -> None:
    """300 MB of samples in less than 150 MB over the bare program."""
    with wds.TarWriter(str(tmp_path / "in.tar")) as sink:
        for i in range(3000):
            sink.write({"__key__": f"{(i * 7919) % 3000:06d}", "bin": bytes([i % 256]) * 100_000})
    limit = 250 << 20
    script = f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit})); "
    script += "from webdataset.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", script, command, str(tmp_path / "in.tar"), "--memory", "50M"]
    ended = subprocess.run([*argv, "-o", str(tmp_path / "out.tar")], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "out.tar").stat().st_size == (tmp_path / "in.tar").stat().st_size


def test_tarsort_and_tarp_sort(wl: Any, make_shard: Any, names: Any, members: Any) -> None:
    shard = make_shard(files=[("b.n", b"10"), ("a.n", b"9")])
    assert names(wl.old("tarsort", shard).out) == ["a.n", "b.n"]
    assert names(wl.old("tarsort", "-s", "n", "-S", "int", shard).out) == ["a.n", "b.n"]
    assert members(wl.old("tarsort", "-S", "shuffle", shard).out) == members(shard)
    assert names(wl.old("tarp", "sort", "-s", "n", shard, "-o", "-").out) == ["b.n", "a.n"]
    assert members(wl.old("tarp", "sort", "-s", "__random__", shard, "-o", "-").out) == members(shard)


# -- shuffle -----------------------------------------------------------------------------------------


@RELAXED
@given(samples=SAMPLES, memory=st.sampled_from(["1", "5k", "100M"]), seed=st.integers(0, 3))
def test_shuffling_keeps_everything_and_depends_on_the_seed_alone(
    wl: Any, tmp_path: Path, members: Any, *, samples: list[tuple[str, int, bytes]], memory: str, seed: int
) -> None:
    source = archive(tmp_path / "in.tar", samples)
    ended = wl("shuffle", "--seed", seed, "--memory", memory, source)
    assert ended.code == 0
    assert members(ended.out) == members(source)
    assert ended.out == wl("shuffle", "--seed", seed, source).out


def test_shuffling_in_parallel_is_shuffling(wl: Any, make_shards: Any, members: Any, names: Any) -> None:
    shards = make_shards(4, samples=50)
    serial = wl("shuffle", "--seed", 1, *shards)
    assert wl("shuffle", "--seed", 1, "-P", 3, "--memory", "2k", *shards).out == serial.out
    assert members(serial.out) == sum((members(shard) for shard in shards), Counter())
    assert serial.out != wl("shuffle", "--seed", 2, *shards).out


@settings(RELAXED, max_examples=15)
@given(
    parts=st.lists(SAMPLES, min_size=2, max_size=3),
    memory=st.sampled_from(["1", "5k", "100M"]),
    words=st.sampled_from([[], ["--maxcount", 3], ["--maxsize", 2000], ["--rekey", "{index:03d}"], ["-f", "cls"]]),
)
def test_shuffled_shards_are_the_same_for_any_number_of_processes(
    wl: Any, tmp_path: Path, *, parts: list[list[tuple[str, int, bytes]]], memory: str, words: list[Any]
) -> None:
    shards = [archive(tmp_path / f"in-{n}.tar", samples) for n, samples in enumerate(parts)]
    ways = []
    for processes in (1, 2, 3):
        folder = tmp_path / str(processes)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        output = ["--memory", memory, *words, "-o", folder / "o-%d.tar"]
        ended = wl("shuffle", "--seed", 1, "-P", processes, *shards, *output)
        told = ended.err.replace(str(folder), "")
        ways.append((ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}))
    assert ways[0] == ways[1] == ways[2]


def test_every_place_is_as_likely(wl: Any) -> None:
    from webdataset.tools.transform.shuffling import shuffle_samples

    places: Counter[int] = Counter()
    samples = [{"__key__": str(n)} for n in range(5)]
    for seed in range(1000):
        order = [sample["__key__"] for sample in shuffle_samples(seed=seed)(samples)]
        places[order.index("0")] += 1
    assert all(150 < places[n] < 250 for n in range(5))


def test_a_bad_shard_is_told_in_parallel_too(wl: Any, make_shards: Any, tmp_path: Path, members: Any) -> None:
    shards = make_shards(3, samples=20)
    Path(shards[1]).write_bytes(Path(shards[1]).read_bytes()[:5000])
    ended = wl("shuffle", "-P", 2, *shards)
    assert ended.code == 1
    assert "shard-000001.tar" in ended.err
    skipped = wl("shuffle", "-P", 2, "--on-error", "skip", "--seed", 1, *shards)
    assert skipped.code == 0
    assert "left out: 1 shards" in skipped.err
    assert skipped.out == wl("shuffle", "--on-error", "skip", "--seed", 1, *shards).out


def test_tarpcat_loses_no_file(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(3, samples=5)
    ended = wl.old("tarpcat", "-p", 2, *shards, "-o", "-")
    assert members(ended.out) == sum((members(shard) for shard in shards), Counter())
    assert len(members(wl.old("tarpcat", "-c", 4, *shards, "-o", "-").out)) == 8


# -- split -------------------------------------------------------------------------------------------


@RELAXED
@given(samples=SAMPLES, maxcount=st.integers(1, 7), maxsize=st.sampled_from([1, 1000, 10**9]))
def test_split_then_concat_is_the_identity(
    wl: Any,
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[str, int, bytes]],
    maxcount: int,
    maxsize: int,
) -> None:
    folder = tmp_path_factory.mktemp("split")
    source = archive(folder / "in.tar", samples)
    assert wl("split", "--maxcount", maxcount, "--maxsize", maxsize, source, "-o", folder / "p-%06d.tar").code == 0
    shards = sorted(folder.glob("p-*"))
    whole = wl("concat", source).out
    assert (wl("concat", *shards).out if shards else wl("concat", source).out) == whole
    assert len(shards) >= -(-len(samples) // maxcount)


def test_a_folder_into_shards_as_the_seed_shows(
    wl: Any, tmp_path: Path, names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw/train").mkdir(parents=True)
    for i in range(50):
        (tmp_path / f"raw/train/{i:03d}.jpg").write_bytes(bytes(1000))
        (tmp_path / f"raw/train/{i:03d}.cls").write_bytes(b"1")
    script = "import sys; from webdataset.cli.old.programs import main; sys.exit(main(['tarsplit', *sys.argv[1:]]))"
    tarsplit = f'{sys.executable} -c "{script}"'
    line = f"tar -cf - --sort=name -C {tmp_path}/raw train | {tarsplit} -s 1e4 -o imagenet_train --maxshards 2"
    ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0
    assert sorted(path.name for path in tmp_path.glob("imagenet*")) == [
        "imagenet_train-000000.tar",
        "imagenet_train-000001.tar",
    ]
    assert names(tmp_path / "imagenet_train-000000.tar")[:2] == ["train/000.cls", "train/000.jpg"]
    assert len(names(tmp_path / "imagenet_train-000001.tar")) == 20


def test_a_command_for_each_shard(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "up").mkdir()
    shard = make_shard(samples=5)
    flags = ["--maxcount", 2, "-o", f"{tmp_path}/a b/p-%02d.tar"]
    assert wl("split", shard, *flags, "--post", f"cp {{}} {tmp_path}/up", "--delete").code == 0
    assert sorted(os.listdir(tmp_path / "up")) == ["p-00.tar", "p-01.tar", "p-02.tar"]
    assert os.listdir(tmp_path / "a b") == []
    failed = wl("split", shard, *flags, "--post", "false")
    assert failed.code == 1
    assert "status 1" in failed.err


def test_start_maxshards_and_the_name(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=9)
    out = ["-o", f"{tmp_path}/p-{{shard:02d}}.tar"]
    assert wl("split", shard, "--maxcount", 2, "--start", 7, "--maxshards", 2, *out).code == 0
    assert sorted(path.name for path in tmp_path.glob("p-*")) == ["p-07.tar", "p-08.tar"]
    refused = wl("split", shard, "-o", tmp_path / "one.tar")
    assert refused.code == 2
    assert "has no number for the shards" in refused.err


def test_tarsplit_and_tarp_split(wl: Any, make_shard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shard = make_shard(samples=5)
    assert wl.old("tarsplit", "-n", 2, "-z", "-o", "t", shard).code == 0
    assert wl.old("tarp", "split", "-c", 3, "-p", "cp %s copy-of-last", shard).code == 0
    assert sorted(path.name for path in tmp_path.glob("*")) == [
        *("a.tar", "copy-of-last", "split-000000.tar", "split-000001.tar"),
        *("t-000000.tgz", "t-000001.tgz", "t-000002.tgz"),
    ]
    assert wl.old("tarsplit", "-n", 5, "-C", "cp {abspath} kept; echo {base}", "-o", "u", shard).code == 0
    assert (tmp_path / "kept").exists()
    assert not (tmp_path / "u-000000.tar").exists()
