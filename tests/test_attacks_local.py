"""Foreign data on this machine: what is shown, what is kept, what is expanded stays within bounds."""

from __future__ import annotations

import ast
import json
import os
import pickle
import resource
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from terminals import session
from tests_support import tar_bytes
from webdataset.base.printing import short_repr
from webdataset.cli import main, terminal
from webdataset.errors import SampleError, SecurityError, ShardError, StorageError
from webdataset.indices.catalogue import Catalogue, Shard
from webdataset.shardlists import expand_urls
from webdataset.tools.inspect.tables import write_table

SECRET = "hunter2"


def doubled(levels: int = 60) -> bytes:
    """A list of twice the same list of twice the same list: a few hundred bytes that stand for 2^60 values."""
    return b"\x80\x04]q\x00" + b"](h\x00h\x00eq\x00" * levels + b"."


def wl(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    command = [sys.executable, "-m", "webdataset", *arguments]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, check=False)


# -- values that a few references make endless -----------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["show", "--html", "-"], ["extract", "-f", "pyd"], ["extract", "-F", "json", "-a"]]
)
def test_a_value_of_doubled_references_is_not_written_out(arguments: list[str], make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("a.pyd", doubled())])
    done = wl(*arguments, shard)
    assert done.returncode in (0, 1), done.stderr[-300:]
    assert len(done.stdout) < 1 << 20
    if arguments[0] == "extract":
        assert done.returncode == 1
        assert b"2,000,000" in done.stderr


def test_a_repr_that_would_be_endless_is_short() -> None:
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    assert len(short_repr(value, 50)) <= 50


# -- terminals -------------------------------------------------------------------------------------

EVIL = "\x1b]0;title\x07\x9b2J\x7f"


def test_errors_escape_all_of_their_text() -> None:
    assert str(StorageError(f"the server says {EVIL}", url="http://h/a.tar")).isprintable()


@pytest.mark.parametrize("format", ["tsv", "json"])
def test_fields_cannot_give_orders_to_a_terminal(format: str, make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("a.txt", EVIL.encode()), ("a.json", json.dumps({"x": EVIL}).encode())])
    done = wl("extract", "-F", format, "-f", "txt json", shard)
    assert done.returncode == 0
    assert all(char.isprintable() or char in "\t\n" for char in done.stdout.decode())


def test_csv_cannot_give_orders_to_a_terminal() -> None:
    master, terminal = os.openpty()
    with open(terminal, "wb") as out:
        write_table([{"txt": EVIL}], out, fields="txt", format="csv", header=False)
        out.flush()
        shown = os.read(master, 1000).decode()
    os.close(master)
    assert all(char.isprintable() or char in "\r\n" for char in shown)


@pytest.mark.parametrize("format", ["tsv", "csv", "json"])
def test_fields_turn_no_text_on_a_terminal(format: str, make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("a.txt", f"x\u202e{EVIL}".encode())])
    shown = session("extract", "-F", format, "-f", "txt", shard).written
    assert "202e" in shown.lower()
    assert not [order for order in ("\u202e", "\x1b]", "\x07", "\x9b", "\x7f") if order in shown]


@pytest.fixture
def evil_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_shard: Callable[..., str]) -> None:
    """A run and a shard whose names give orders; what the run has printed does, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items").write_text(f"{EVIL}\n")
    script = ["sh", "-c", "printf '%s\\r\\nnext' \"$1\"; exit 65", "sh", "{}"]
    assert wl("jobs", "--items-from", "items", "--state", "run", "--", *script).returncode == 1
    os.rename(make_shard(files=[("a.txt", b"x"), ("a.txt", b"x")]), tmp_path / f"{EVIL}.tar")
    (tmp_path / "a.py").write_text(f"import logging, webdataset.base.logs as logs; logs.Log('x').error({EVIL!r})\n")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jobs", "status", "run"], "ended with exit code 65"),
        (["jobs", "logs", "run"], "2J\\x7f\r\nnext"),
        (["jobs", "resume", "run"], "resuming: "),
        (["lint", "EVIL.tar"], "repeated-field"),
        (["map", "--load", "a.py:f", "EVIL.tar", "-o", "out.tar"], "title"),
    ],
)
@pytest.mark.usefixtures("evil_names")
def test_names_and_logs_cannot_give_orders_to_a_terminal(words: list[str], says: str, term: str) -> None:
    shown = session(*(word.replace("EVIL", EVIL) for word in words), term=term).written
    assert says in shown
    assert not [order for order in ("\x1b]", "\x07", "\x9b", "\x7f") if order in shown]


@pytest.mark.usefixtures("evil_names")
def test_pipes_and_files_get_what_is_there() -> None:
    assert EVIL.encode() in wl("jobs", "logs", "run").stdout


def test_text_of_commands_reaches_a_terminal_in_one_place() -> None:
    folder = Path(terminal.__file__).parent
    others = [path for path in folder.rglob("*.py") if path.name not in ("terminal.py", "pages.py")]
    writes = {"sys.stdout.write", "sys.stderr.write", "print"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in others
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in writes
    ]
    assert found == []


@pytest.mark.parametrize("start", [30_000, 2_000_000])
def test_a_field_with_orders_is_not_shown_by_cat(start: int, make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("a.txt", b"x" * start + EVIL.encode())])
    shown = session("cat", shard, "txt").written
    assert "-o FILE" in shown
    assert "\x1b]" not in shown
    assert wl("cat", shard, "txt").stdout.endswith(EVIL.encode())


def test_cells_that_a_spreadsheet_would_run_are_marked_when_asked(make_shard: Callable[..., str]) -> None:
    cells = ["=1+1", "+cmd", "-x", "@SUM(A1)", "-5", "+1.5e3", "plain"]
    shard = make_shard(files=[(f"{i}.txt", cell.encode()) for i, cell in enumerate(cells)])
    plain = wl("extract", "-F", "csv", "--nokey", "--noheader", "-f", "txt", shard).stdout.decode().splitlines()
    safe = (
        wl("extract", "-F", "csv", "--nokey", "--noheader", "--safe-csv", "-f", "txt", shard)
        .stdout.decode()
        .splitlines()
    )
    assert plain == cells
    assert safe == ["'=1+1", "'+cmd", "'-x", "'@SUM(A1)", "-5", "+1.5e3", "plain"]


# -- secrets in files ------------------------------------------------------------------------------


def test_a_saved_catalogue_has_no_secrets_and_one_reader(tmp_path: Path) -> None:
    url = f"https://me:{SECRET}@host/a.tar?token={SECRET}&part=1&X-Amz-Signature={SECRET}&access_key={SECRET}"
    Catalogue([Shard(url, 1)]).save(tmp_path / "catalogue.json")
    text = (tmp_path / "catalogue.json").read_text()
    assert SECRET not in text
    assert "https://host/a.tar?part=1" in text
    assert stat.S_IMODE(os.stat(tmp_path / "catalogue.json").st_mode) == 0o600


def test_a_samples_cache_has_no_secrets_and_one_reader(tmp_path: Path) -> None:
    sample = {"__key__": "a", "__url__": f"https://me:{SECRET}@host/a.tar?sig={SECRET}", "x": 1}
    stage = wds.DBCache(str(tmp_path / "cache.db"), 10, source=[sample])
    assert list(stage) == [sample]
    assert list(stage) == [sample | {"__url__": "https://host/a.tar"}]
    assert SECRET.encode() not in (tmp_path / "cache.db").read_bytes()
    assert stat.S_IMODE(os.stat(tmp_path / "cache.db").st_mode) == 0o600


def test_a_database_of_samples_has_no_secrets_and_one_reader(tmp_path: Path) -> None:
    sample = {"__key__": "a", "__url__": f"https://me:{SECRET}@host/a.tar", "x": 1}
    stage = wds.LMDBCached(str(tmp_path / "cache"), map_size=1 << 24)
    assert list(stage.run([sample])) == [sample]
    assert SECRET.encode() not in (tmp_path / "cache" / "data.mdb").read_bytes()
    assert stat.S_IMODE(os.stat(tmp_path / "cache" / "data.mdb").st_mode) & 0o077 == 0


# -- lists -----------------------------------------------------------------------------------------


def test_braces_of_endless_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="characters"):
        expand_urls("{" + "0" * 2000 + "..9999999}")
    assert len(expand_urls("{000000..099999}.tar")) == 100_000


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e400", "-1", '"many"', "[]", str(1 << 70)])
def test_a_catalogue_with_an_impossible_number_is_one_error(number: str, tmp_path: Path) -> None:
    row = f'{{"url": "a.tar", "nsamples": {number}}}'
    (tmp_path / "c.json").write_text(f'{{"__kind__": "wids-shard-index-v1", "shardlist": [{row}]}}')
    with pytest.raises(ShardError):
        Catalogue.load(tmp_path / "c.json")


def test_yaml_aliases_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    (tmp_path / "spec.yaml").write_text("\n".join(lines) + "\ndatasets: *a59\n")
    with pytest.raises(SampleError, match="aliases"):
        wds.MultiShardSample(str(tmp_path / "spec.yaml"))


@pytest.mark.parametrize(
    ("part", "times"), [("[", 10**6), ("{", 10**6), ("a: [", 10**5), ("- ", 30_000), ("? ", 30_000)]
)
def test_yaml_deeper_than_the_stack_is_one_error(
    part: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    (tmp_path / "spec.yaml").write_text(part * times)
    with pytest.raises(SampleError):
        wds.MultiShardSample(str(tmp_path / "spec.yaml"))


# -- caches ----------------------------------------------------------------------------------------


def test_a_fifo_in_place_of_a_caches_facts_holds_nobody_up(make_shard: Callable[..., str], tmp_path: Path) -> None:
    def read() -> int:
        return len(list(wds.WebDataset(f"pipe:cat {shard}", cache_dir=str(tmp_path / "cache"), shardshuffle=False)))

    shard = make_shard(samples=5)
    assert read() == 5
    beside = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".tar"]
    assert beside
    for path in beside:
        path.unlink()
        os.mkfifo(path)
    assert read() == 5


def test_a_fifo_in_place_of_a_samples_cache_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cache.db")
    with pytest.raises(SecurityError):
        list(wds.DBCache(str(tmp_path / "cache.db"), 10, source=[{"__key__": "a"}]))


@pytest.mark.parametrize("beside", ["", "-journal", "-wal"])
def test_a_link_in_place_of_a_samples_cache_leads_nowhere(beside: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    with sqlite3.connect(mine) as db:
        db.execute("create table cache (precious text)")
    db.close()
    before = mine.read_bytes()
    (tmp_path / f"cache.db{beside}").symlink_to(mine)
    with pytest.raises(SecurityError):
        list(wds.DBCache(str(tmp_path / "cache.db"), 10, source=[{"__key__": "a"}]))
    assert mine.read_bytes() == before


def planted_link(folder: Path, mine: Path) -> None:
    folder.symlink_to(mine)


def planted_lock(folder: Path, mine: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "lock.mdb").symlink_to(mine / "precious")


@pytest.mark.parametrize("planted", [planted_link, planted_lock])
def test_a_database_of_samples_in_a_folder_of_others_is_refused(planted: Any, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("precious")
    planted(tmp_path / "cache", mine)
    with pytest.raises(SecurityError):
        list(wds.LMDBCached(str(tmp_path / "cache"), map_size=1 << 24).run([{"__key__": "a"}]))
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [("precious", "precious")]


def test_a_poisoned_samples_cache_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    stage = wds.DBCache(str(path), 1, source=[{"__key__": "a"}])
    list(stage)
    with sqlite3.connect(path) as db:
        db.execute("update cache set data = ?", (b"cos\nsystem\n(S'true'\ntR.",))
    db.close()
    with pytest.raises(pickle.UnpicklingError):
        list(stage)


# -- what is made of foreign files -----------------------------------------------------------------


def zeros(path: Path, method: int) -> str:
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("a.txt", "w") as member:
        for _ in range(200):
            member.write(bytes(1 << 20))
    return str(path)


@pytest.mark.parametrize(
    ("method", "cure"),
    [(zipfile.ZIP_DEFLATED, b"WDS_MAX_RATIO"), (zipfile.ZIP_BZIP2, b"deflate"), (zipfile.ZIP_LZMA, b"deflate")],
)
def test_a_zip_archive_that_expands_too_far_is_refused(method: int, cure: bytes, tmp_path: Path) -> None:
    done = wl("create", zeros(tmp_path / "bomb.zip", method), "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 1
    assert cure in done.stderr
    assert not (tmp_path / "out.tar").exists()


def test_what_a_file_of_an_archive_expands_to_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", "1000")
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", os.urandom(1001))
    done = wl("create", str(tmp_path / "a.zip"), "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 1
    assert b"WDS_MAX_DECODED_BYTES" in done.stderr


@pytest.mark.parametrize("kind", ["recipe", "plan", "lines", "jsonl", "metadata.jsonl", "metadata.csv"])
def test_a_line_without_an_end_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / (kind if "." in kind else "endless")
    with open(path, "wb") as file:
        file.truncate(4 << 30)
    source = [str(tmp_path)] if "." in kind else ["--from", kind, str(path)]
    done = wl("create", *source, "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 1
    assert b"67108864" in done.stderr


@pytest.mark.parametrize("name", ["metadata.csv", "plan.csv"])
def test_a_row_without_an_end_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"file_name,txt\n" + b'"a\n",' * (14 << 20))
    done = wl("create", str(tmp_path if name == "metadata.csv" else tmp_path / name), "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 1
    assert b"67108864" in done.stderr


def test_a_list_of_classes_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    with open(tmp_path / "classes.txt", "wb") as file:
        file.truncate(4 << 30)
    done = wl("create", "--classes", str(tmp_path / "classes.txt"), str(tmp_path / "in"), "-o", str(tmp_path / "a.tar"))
    assert done.returncode == 1
    assert b"4194304" in done.stderr


def test_a_small_file_takes_no_memory_for_the_largest_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", str(8 << 30))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")
    done = wl("create", str(tmp_path / "in"), "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 0, done.stderr[-300:]


def test_rows_that_share_a_value_do_not_multiply_it(tmp_path: Path) -> None:
    import pyarrow as pa  # starts a thread
    import pyarrow.parquet as pq

    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * (20 << 20)]))
    pq.write_table(pa.table({"txt": text}), tmp_path / "in.parquet", compression="zstd")
    assert (tmp_path / "in.parquet").stat().st_size < 5000
    done = wl("create", "--count", "2", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.tar"))
    assert done.returncode == 0, done.stderr[-300:]
    assert [len(sample["txt"]) for sample in wds.WebDataset(str(tmp_path / "out.tar"))] == [20 << 20] * 2


# -- runs that somebody else has planted -------------------------------------------------------------


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that must not be there at the end of the test."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run of `LINE`, as it is beside the outputs."""
    monkeypatch.chdir(tmp_path)
    assert wl(*LINE).returncode == 0
    (folder,) = (tmp_path / ".runs").iterdir()
    return folder


LINE = ("jobs", "-s", "{0..1}", "--redo", "all", "--", "echo", "{}")


def poison(folder: Path, **facts: Any) -> None:
    """Change the plan of a run."""
    (plan,) = folder.glob("plans/*/plan.json")
    plan.write_text(json.dumps(json.loads(plan.read_text()) | facts))


def test_a_plan_that_somebody_has_swapped_is_not_run(run_folder: Path, canary: Path) -> None:
    poison(run_folder, program={"kind": "command", "words": ["touch", str(canary)], "outputs": []})
    assert wl(*LINE).returncode == 0
    assert (run_folder / "logs" / "1.1.txt").read_text() == "1\n"


@pytest.mark.parametrize("words", [LINE, ("jobs", "resume", "FOLDER"), ("jobs", "cancel", "FOLDER")])
def test_a_run_to_which_others_may_write_is_refused(run_folder: Path, canary: Path, words: tuple[str, ...]) -> None:
    poison(run_folder, program={"kind": "command", "words": ["touch", str(canary)], "outputs": []})
    run_folder.chmod(0o777)
    done = wl(*(word.replace("FOLDER", str(run_folder)) for word in words))
    assert done.returncode == 1
    assert b"chmod" in done.stderr


@pytest.mark.parametrize("name", ["logs/0.1.txt", "logs", "generations"])
def test_a_link_in_a_run_empties_no_file_and_leads_nowhere(run_folder: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "0.1.txt").write_text("precious")
    before = sorted(mine.iterdir())
    planted = run_folder / name
    shutil.rmtree(planted) if planted.is_dir() else planted.unlink()
    planted.symlink_to(mine / "0.1.txt" if name == "logs/0.1.txt" else mine)
    wl(*LINE)
    assert (mine / "0.1.txt").read_text() == "precious"
    assert sorted(mine.iterdir()) == before


def test_a_second_name_of_a_file_as_a_log_empties_no_file(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (run_folder / "logs" / "0.1.txt").unlink()
    os.link(tmp_path / "mine", run_folder / "logs" / "0.1.txt")
    assert wl(*LINE).returncode == 0
    assert (tmp_path / "mine").read_text() == "precious"


def submit(folder: Path, engine: str, handle: dict[str, Any]) -> None:
    """Say that tasks of a run were given to an engine."""
    (plan,) = folder.glob("plans/*")
    facts = {"engine": engine, "plan": plan.name, "numbers": "0-1", "per_task": 1, "handle": handle, "tried": {}}
    (folder / "submissions" / "00000001-aaaaaaaa-bbbbbb.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("word", ["logs", "cancel"])
def test_looking_at_a_run_runs_no_program_of_its_kubeconfig(
    run_folder: Path, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(canary)]}
    facts = {
        "users": [{"name": "u", "user": {"exec": {**login, "interactiveMode": "Never"}}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"user": "u", "cluster": "c"}}],
    }
    (tmp_path / "evil").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **facts}))
    poison(run_folder, options={"k8s": {"kubeconfig": str(tmp_path / "evil")}})
    submit(run_folder, "k8s", {"job": "a"})
    wl("jobs", word, str(run_folder))


def sayings() -> dict[str, tuple[str, Any]]:
    """What files of a run may say that no run of ours does: the file, and its facts or its size in bytes."""
    plan, part, submission = "plans/*/plan.json", "plans/*/items-000000.json", "submissions/*.json"
    return {
        "endless numbers": (submission, {"numbers": "0-99999999999"}),
        "the same numbers again and again": (submission, {"numbers": "0-1," * 1000 + "0-1"}),
        "numbers that are none": (submission, {"numbers": 7}),
        "many items": (plan, {"count": 10**12}),
        "no number of items": (plan, {"count": "x"}),
        "deep brackets": (plan, b"[" * 200_000),
        "no object": (plan, b"[1]"),
        "no items": (part, b"[[1,2,3]]"),
        "no name": (part, b'[[{"a":1},[],[],null,null]]'),
        "a plan without end": (plan, 40 << 30),
        "records without end": ("records/*/*.jsonl", 40 << 30),
        "a generation without end": ("generations/00000002-00000000.json", 40 << 30),
        "a name that is none": ("records/*/*.jsonl", b'{"item":{},"status":"done","final":true}\n'),
        "a time that is none": ("records/*/*.jsonl", b'{"item":"0","status":"done","time":"x"}\n'),
    }


@pytest.mark.parametrize("name", sayings())
def test_what_a_strangers_run_says_is_one_error(run_folder: Path, name: str) -> None:
    file, said = sayings()[name]
    path = next(run_folder.glob(file))
    if isinstance(said, int):
        os.truncate(path, said)
    else:
        path.write_bytes(said if isinstance(said, bytes) else json.dumps(json.loads(path.read_text()) | said).encode())
    word = "logs" if file.startswith("submissions") else "status"
    done = wl("jobs", word, str(run_folder))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(run_folder).encode() in line


def test_a_log_of_any_size_is_shown_piece_by_piece(run_folder: Path) -> None:
    with open(run_folder / "logs" / "0.1.txt", "ab") as file:
        file.write("\u00fc".encode() * (3 << 20))
        file.truncate(5 << 30)
    done = subprocess.Popen(
        [sys.executable, "-m", "webdataset", "jobs", "logs", str(run_folder)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
        stdout=subprocess.PIPE,
    )
    assert done.stdout is not None
    with done, done.stdout:
        assert done.stdout.read(8 << 20).decode().count("\u00fc") == 3 << 20
        done.kill()


@pytest.mark.parametrize("job", ["--state=RUNNING", "--me", "7;true", "7 8", "../7", "", None])
@pytest.mark.parametrize("word", ["logs", "cancel", "resume"])
def test_the_number_of_a_job_is_never_an_option(
    run_folder: Path, canary: Path, monkeypatch: pytest.MonkeyPatch, word: str, job: Any
) -> None:
    tools = canary.parent / "tools"
    tools.mkdir()
    for name in ("scancel", "squeue", "scontrol"):
        (tools / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    submit(run_folder, "slurm", {"jobs": [job]})
    done = wl("jobs", word, str(run_folder))
    assert done.returncode == 1
    assert b"number" in done.stderr


@pytest.mark.parametrize("job", ["../../../api/v1/namespaces/default/secrets", "a?b", "--help", "A", "a/b", None])
def test_the_name_of_a_job_is_never_a_path(run_folder: Path, tmp_path: Path, monkeypatch: Any, job: Any) -> None:
    (tmp_path / "kube").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "users": [{"name": "u", "user": {}}], "contexts": [{"name": "x", "context": {"user": "u", "cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]}))  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kube"))
    submit(run_folder, "k8s", {"job": job})
    done = wl("jobs", "cancel", str(run_folder))
    assert done.returncode == 1
    assert b" name " in done.stderr


def test_a_run_that_was_begun_by_somebody_else_is_resumed_only_when_asked(run_folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(run_folder, tmp_path / "download" / "run")
    poison(copied, program={"kind": "command", "words": ["touch", "ran-{}"], "outputs": []}, digest="other")
    done = wl("jobs", "resume", str(copied))
    assert done.returncode == 1
    assert b"ran-{}" in done.stderr
    assert not (tmp_path / "ran-0").exists()
    done = wl("jobs", "resume", str(copied), "--allow-foreign")
    assert b"ran-{}" in done.stderr
    assert (tmp_path / "ran-0").exists()


def test_the_status_of_a_strangers_run_asks_no_server_that_it_names(run_folder: Path, tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.1)
    copied = shutil.copytree(run_folder, tmp_path / "download" / "run")
    (part,) = copied.glob("plans/*/items-*.json")
    url = f"http://127.0.0.1:{server.getsockname()[1]}/a.tar"
    part.write_text(json.dumps([[name, [], [url], None, None] for name in "01"]))
    assert wl("jobs", "status", str(copied)).returncode == 0
    with pytest.raises(TimeoutError), server:
        server.accept()


# -- files from outside a downloaded folder --------------------------------------------------------------


@pytest.fixture
def downloaded(tmp_path: Path) -> Path:
    """A folder that somebody else has filled, beside a file of the user's."""
    (tmp_path / "key.txt").write_text(SECRET)
    folder = tmp_path / "downloaded"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_text("harmless")
    (folder / "link.txt").symlink_to(tmp_path / "key.txt")
    (folder / "links").symlink_to(tmp_path)
    return folder


NAMES = [
    "../key.txt",
    "in/../../key.txt",
    "{user}/key.txt",
    "links/key.txt",
    "link.txt",
    "~/key.txt",
    "file:{user}/key.txt",
]
NAMES += ["http://127.0.0.1:9/key.txt", "s3://bucket/key.txt", "ssh://127.0.0.1/key.txt"]


def metadata(folder: Path, kind: str, name: str) -> str:
    """The source that names this file."""
    column = "file_name" if kind.startswith("metadata") else "@txt"
    path = folder / kind
    if kind.endswith("csv"):
        path.write_text(f"{column},cls\n{name},1\n")
    elif kind.endswith("jsonl"):
        path.write_text(json.dumps({column: name, "cls": 1}))
    else:
        import pyarrow as pa  # starts a thread
        import pyarrow.parquet as pq

        pq.write_table(pa.table({column: [name], "cls": [1]}), path)
    return str(folder if kind.startswith("metadata") else path)


@pytest.mark.parametrize(
    "kind", [f"{name}.{form}" for name in ("metadata", "rows") for form in ("csv", "jsonl", "parquet")]
)
def test_what_a_folder_names_outside_of_it_is_not_taken(
    kind: str, downloaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = downloaded.parent
    monkeypatch.chdir(downloaded)
    monkeypatch.setenv("HOME", str(user))
    for number, name in enumerate(NAMES):
        source, out = metadata(downloaded, kind, name.format(user=user)), f"{user}/{number}.tar"
        assert main(["create", source, "-o", out]) == 1, name
        assert not os.path.exists(out)
    assert main(["create", metadata(downloaded, kind, "in/a.txt"), "-o", f"{user}/out.tar"]) == 0
    assert [sample["txt"] for sample in wds.WebDataset(f"{user}/out.tar")] == [b"harmless"]


@pytest.mark.parametrize("link", ["link.txt", "links"])
@pytest.mark.parametrize("words", [[], ["--classes"]])
def test_links_out_of_a_folder_are_not_followed(link: str, words: list[str], downloaded: Path) -> None:
    for other in {"link.txt", "links"} - {link}:
        (downloaded / other).unlink()
    if words and link == "link.txt":
        (downloaded / link).rename(downloaded / "in" / link)
    out = f"{downloaded}.tar"
    assert main(["create", *words, str(downloaded), "-o", out]) == 1
    assert not os.path.exists(out)
    assert main(["create", *words, str(downloaded), "-o", out, "--allow-outside"]) == 0
    assert any(SECRET.encode() in sample.values() for sample in wds.WebDataset(out))


@pytest.mark.parametrize("name", ["../key.txt", "{user}/key.txt"])
def test_files_from_anywhere_are_taken_when_asked_for_under_names_that_stay_inside(name: str, downloaded: Path) -> None:
    source = metadata(downloaded, "metadata.csv", name.format(user=downloaded.parent))
    assert main(["create", source, "-o", f"{downloaded}.tar", "--allow-outside"]) == 0
    (sample,) = wds.WebDataset(f"{downloaded}.tar")
    assert sample["txt"] == SECRET.encode()
    assert sample["__key__"] in ("key", f"{downloaded.parent}/key".lstrip("/"))


def test_a_table_may_name_files_in_the_folder_that_the_user_names(downloaded: Path) -> None:
    source = metadata(downloaded, "rows.csv", "key.txt")
    assert main(["create", source, "-C", str(downloaded.parent), "-o", f"{downloaded}.tar"]) == 0


@pytest.mark.parametrize("name", ["../home/a", "/home/a", "a/../../b"])
@pytest.mark.parametrize("kind", ["recipe", "jsonl", "field", "lines", "zip", "tar"])
def test_no_member_gets_a_name_that_leads_out_of_a_folder(kind: str, name: str, tmp_path: Path) -> None:
    source = tmp_path / f"in.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr(f"{name}.txt", "x")
    elif kind == "tar":
        source.write_bytes(tar_bytes([(f"{name}.txt", b"x")]))
    else:
        row = {"__key__": "a", f"x/{name}.txt": "x"} if kind == "field" else {"__key__": name, "txt": "x"}
        source.write_text({"recipe": f"{name}.txt text:x", "lines": f"{name}\tx"}.get(kind, json.dumps(row)))
    words = ["--from", kind.replace("field", "jsonl"), "-f", "__key__ txt"]
    main(["create", *words, str(source), "-o", str(tmp_path / "out.tar")])
    if (tmp_path / "out.tar").exists():
        with tarfile.open(tmp_path / "out.tar") as archive:
            assert not [name for name in archive.getnames() if name.startswith("/") or ".." in name.split("/")]
