"""Writing when things go wrong: nothing half done ever stands under a shard's name."""

import errno
import gc
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests_support import WITHOUT_PRIVILEGES
from webdataset.errors import (
    CommandError,
    EncodingError,
    MissingShardError,
    SecurityError,
    ShardWarning,
    StorageError,
)
from webdataset.writer import ShardWriter, TarWriter

SAMPLE = {"__key__": "a", "bin": b"x" * 1000}
LARGE = {"__key__": "a", "bin": b"x" * 3_000_000}


def keys_in(path: Path | str) -> list[str]:
    with tarfile.open(path) as tar:
        return [name.partition(".")[0] for name in tar.getnames()]


def names_in(folder: Path | str) -> list[str]:
    return sorted(os.listdir(folder))


def python(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(code: str, *arguments: object) -> tuple[int, str]:
    process = python(code, *arguments)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def killed_when_ready(process: subprocess.Popen) -> None:
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate(timeout=60)


def write_all(sink: TarWriter | ShardWriter, samples: list[dict]) -> None:
    for sample in samples:
        sink.write(sample)


def write_then_raise(sink: TarWriter | ShardWriter, samples: list[dict], error: type[BaseException]) -> None:
    write_all(sink, samples)
    raise error


def write_and_forget(path: Path) -> None:
    TarWriter(path).write(SAMPLE)
    gc.collect()


def small(n: int) -> list[dict]:
    return [{"__key__": str(i), "bin": b"x"} for i in range(n)]


class Unusual(BaseException):
    pass


# -- exceptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, Unusual])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_an_exception_leaves_nothing(tmp_path, kind, name):
    with pytest.raises(kind), TarWriter(tmp_path / name) as sink:
        write_then_raise(sink, [LARGE], kind)
    assert names_in(tmp_path) == []


def test_an_exception_leaves_complete_shards_only(tmp_path):
    posted = []
    with pytest.raises(ZeroDivisionError), ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=2, post=posted.append) as sink:
        write_then_raise(sink, small(5), ZeroDivisionError)
    assert names_in(tmp_path) == ["a-0.tar", "a-1.tar"]
    assert posted == [f"{tmp_path}/a-0.tar", f"{tmp_path}/a-1.tar"]


def test_an_exception_with_workers_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), ShardWriter(f"{tmp_path}/a-%d.tar", workers=2) as sink:
        write_then_raise(sink, small(50), ZeroDivisionError)
    assert names_in(tmp_path) == []


def test_an_exception_keeps_the_file_that_was_there(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), TarWriter(tmp_path / "a.tar") as sink:
        write_then_raise(sink, [LARGE], ZeroDivisionError)
    assert (tmp_path / "a.tar").read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.tar"]


def test_an_exception_gives_a_foreign_stream_no_end_marker():
    stream = io.BytesIO()
    with pytest.raises(ZeroDivisionError), TarWriter(stream) as sink:
        write_then_raise(sink, [LARGE], ZeroDivisionError)
    assert not stream.getvalue().endswith(bytes(1024))


def test_an_exception_stops_the_command_that_is_written_to(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        TarWriter(f"pipe:cat > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/a.tar") as sink,
    ):
        write_then_raise(sink, [SAMPLE], ZeroDivisionError)
    assert "a.tar" not in names_in(tmp_path)


def test_an_interrupt_leaves_nothing(tmp_path):
    code = """
import sys
from webdataset.writer import TarWriter
with TarWriter(sys.argv[1]) as sink:
    sink.write({"__key__": "a", "bin": b"x" * 3_000_000})
    print("ready", flush=True)
    sys.stdin.read()
"""
    process = python(code, tmp_path / "a.tar")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert names_in(tmp_path) == []


# -- kill -9 -----------------------------------------------------------------------------------------

WRITE_SHARDS = """
import sys
from webdataset.writer import ShardWriter
pattern, stop = sys.argv[1], int(sys.argv[2])
with ShardWriter(pattern, maxcount=10) as sink:
    for i in range(45):
        if i == stop:
            print("ready", flush=True)
            sys.stdin.read()
        sink.write({"__key__": f"{i:04d}", "bin": b"x" * 50_000})
"""


def test_a_killed_process_leaves_no_shard_under_its_name(tmp_path):
    killed_when_ready(python(WRITE_SHARDS, f"{tmp_path}/a-%d.tar", 25))
    assert [name for name in names_in(tmp_path) if not name.endswith(".tmp")] == ["a-0.tar", "a-1.tar"]
    (leftover,) = (name for name in names_in(tmp_path) if name.endswith(".tmp"))
    assert leftover.startswith(".a-2.tar.")


def test_a_run_after_a_kill_gives_the_same_set_as_one_run(tmp_path):
    (tmp_path / "once").mkdir()
    (tmp_path / "again").mkdir()
    assert finished(WRITE_SHARDS, f"{tmp_path}/once/a-%d.tar", -1) == (0, "")
    killed_when_ready(python(WRITE_SHARDS, f"{tmp_path}/again/a-%d.tar", 25))
    assert finished(WRITE_SHARDS, f"{tmp_path}/again/a-%d.tar", -1) == (0, "")
    names = names_in(tmp_path / "once")
    assert names == ["a-0.tar", "a-1.tar", "a-2.tar", "a-3.tar", "a-4.tar"]
    assert [name for name in names_in(tmp_path / "again") if not name.endswith(".tmp")] == names
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


SHARE = """
import sys
from webdataset.writer import ShardWriter
pattern, process, samples, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with ShardWriter(pattern, maxcount=4, shared=True) as sink:
    for i in range(samples):
        if i == stop:
            print("ready", flush=True)
            sys.stdin.read()
        sink.write({"__key__": f"{process}-{i:04d}", "bin": b"x" * 1000})
"""


def test_processes_share_a_pattern_without_gaps_or_clashes_even_if_one_is_killed(tmp_path):
    pattern = f"{tmp_path}/a-%03d.tar"
    victim = python(SHARE, pattern, "victim", 40, 10)
    others = [python(SHARE, pattern, name, 30, -1) for name in ("one", "two", "three")]
    killed_when_ready(victim)
    for process in others:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    shards = [name for name in names_in(tmp_path) if not name.endswith(".tmp")]
    assert shards == [f"a-{n:03d}.tar" for n in range(2 + 3 * 8)]
    keys = sorted(key for name in shards for key in keys_in(tmp_path / name))
    expected = [f"victim-{i:04d}" for i in range(8)]
    expected += [f"{name}-{i:04d}" for name in ("one", "two", "three") for i in range(30)]
    assert keys == sorted(expected)


def test_the_last_of_two_writers_of_one_path_wins_whole(tmp_path):
    one, two = TarWriter(tmp_path / "a.tar"), TarWriter(tmp_path / "a.tar")
    for i in range(3):
        one.write({"__key__": f"one{i}", "bin": b"1"})
        two.write({"__key__": f"two{i}", "bin": b"2"})
    two.close()
    assert keys_in(tmp_path / "a.tar") == ["two0", "two1", "two2"]
    one.close()
    assert keys_in(tmp_path / "a.tar") == ["one0", "one1", "one2"]
    assert names_in(tmp_path) == ["a.tar"]


# -- forgotten writers -------------------------------------------------------------------------------


def test_a_writer_that_was_never_closed_publishes_nothing_and_says_where_its_samples_are(tmp_path):
    code = """
import sys
from webdataset.writer import TarWriter
sink = TarWriter(sys.argv[1])
sink.write({"__key__": "a", "txt": "x"})
"""
    status, errors = finished(code, tmp_path / "a.tar")
    (leftover,) = names_in(tmp_path)
    assert (status, leftover[:7], leftover[-4:]) == (0, ".a.tar.", ".tmp")
    assert f" {tmp_path / leftover};" in errors
    assert keys_in(tmp_path / leftover) == ["a"]


def test_a_writer_that_is_forgotten_warns_at_once(tmp_path):
    with pytest.warns(ShardWarning, match="closed"):
        write_and_forget(tmp_path / "a.tar.gz")
    assert [name[-4:] for name in names_in(tmp_path)] == [".tmp"]


def test_a_forgotten_writer_without_samples_leaves_nothing(tmp_path):
    TarWriter(tmp_path / "a.tar")
    gc.collect()
    assert names_in(tmp_path) == []


def test_a_forked_process_does_not_touch_its_parents_shard(tmp_path):
    code = """
import os, sys
from webdataset.writer import TarWriter
sink = TarWriter(sys.argv[1])
sink.write({"__key__": "a", "txt": "x"})
if os.fork() == 0:
    del sink
    sys.exit()
os.wait()
sink.write({"__key__": "b", "txt": "x"})
sink.close()
"""
    assert finished(code, tmp_path / "a.tar") == (0, "")
    assert keys_in(tmp_path / "a.tar") == ["a", "b"]
    assert names_in(tmp_path) == ["a.tar"]


# -- disks, folders, commands ------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path):
    code = """
import resource, sys
from webdataset.errors import StorageError
from webdataset.writer import ShardWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
try:
    with ShardWriter(sys.argv[1], maxcount=6) as sink:
        for i in range(100):
            sink.write({"__key__": str(i), "bin": b"x" * (700_000 if i < 10 else 2_000_000)})
except StorageError as error:
    sys.exit(f"{error.errno} {error.url} {error.hint}")
"""
    status, errors = finished(code, f"{tmp_path}/a-%d.tar")
    number, url, *hint = errors.split()
    assert (status, number, url, "free" in hint) == (1, str(errno.EFBIG), f"{tmp_path}/a-1.tar", True)
    assert names_in(tmp_path) == ["a-0.tar"]


@pytest.mark.parametrize("compress", [False, "gz"])
def test_after_a_failed_write_a_shard_cannot_be_published(tmp_path, compress):
    code = """
import os, resource, sys
from webdataset.errors import StorageError
from webdataset.writer import TarWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
sink = TarWriter(sys.argv[1], compress=sys.argv[2] == "gz" and "gz")
failures = 0
for i in range(20):
    try:
        sink.write({"__key__": str(i), "bin": os.urandom(300_000)})
    except StorageError as error:
        failures += 1
assert failures > 1, failures
try:
    sink.close()
except StorageError as error:
    assert "incomplete" in str(error), error
    sink.close()
else:
    raise SystemExit("published")
"""
    assert finished(code, tmp_path / "a.tar", compress) == (0, "")
    assert names_in(tmp_path) == []


def test_a_device_without_space_is_an_error():
    with pytest.raises(StorageError) as caught, TarWriter("/dev/full") as sink:
        sink.write(LARGE)
    assert (caught.value.url, caught.value.errno) == ("/dev/full", errno.ENOSPC)


def test_a_missing_folder_is_an_error_that_says_what_to_do(tmp_path):
    for make in (TarWriter, ShardWriter):
        with pytest.raises(MissingShardError) as caught:
            make(f"{tmp_path}/missing/a-%d.tar")
        assert caught.value.hint.endswith(f"mkdir -p {tmp_path}/missing")
    (tmp_path / "file").touch()
    with pytest.raises(MissingShardError) as caught:
        TarWriter(f"{tmp_path}/file/a.tar")
    assert "mkdir" not in caught.value.hint


@pytest.mark.parametrize("path", ["", "/"])
def test_a_folder_cannot_be_written_to(tmp_path, path):
    with pytest.raises(StorageError) as caught:
        TarWriter(f"{tmp_path}{path}")
    assert (caught.value.url, caught.value.errno) == (f"{tmp_path}{path}", errno.EISDIR)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        TarWriter(tmp_path / "file" / "a.tar")
    assert caught.value.url == str(tmp_path / "file" / "a.tar")


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    name = "é" * 125 + "x.tar"
    with TarWriter(tmp_path / name) as sink:
        sink.write(SAMPLE)
    assert names_in(tmp_path) == [name]


def test_a_name_that_is_too_long_is_an_error(tmp_path):
    with pytest.raises(StorageError) as caught, TarWriter(tmp_path / ("x" * 300)) as sink:
        sink.write(SAMPLE)
    assert caught.value.errno == errno.ENAMETOOLONG
    assert names_in(tmp_path) == []


def test_a_folder_that_vanishes_is_an_error(tmp_path):
    (tmp_path / "folder").mkdir()
    sink = TarWriter(tmp_path / "folder" / "a.tar")
    sink.write(SAMPLE)
    shutil.rmtree(tmp_path / "folder")
    with pytest.raises(StorageError) as caught:
        sink.close()
    assert caught.value.url == str(tmp_path / "folder" / "a.tar")


def test_a_folder_without_permission_is_an_error(tmp_path):
    tmp_path.chmod(0o555)
    code = f"""{WITHOUT_PRIVILEGES}
import sys
import webdataset as wds
try:
    with wds.ShardWriter(sys.argv[1]) as sink:
        sink.write({{"__key__": "a", "txt": "x"}})
except wds.StorageError as error:
    sys.exit(f"{{error.errno}} {{error.url}}")
"""
    status, errors = finished(code, f"{tmp_path}/a-%d.tar")
    tmp_path.chmod(0o755)
    assert (status, errors) == (1, f"{errno.EACCES} {tmp_path}/a-0.tar\n")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("command", ["exit 3", "cat >/dev/null; exit 3", "head -c 100 >/dev/null; exit 3"])
def test_a_command_that_fails_is_an_error(command):
    with pytest.raises(CommandError), TarWriter(f"pipe:{command}") as sink:
        write_all(sink, [LARGE | {"__key__": f"{i:06d}"} for i in range(20)])


def test_an_error_of_a_foreign_stream_passes_through_and_ends_the_archive():
    class Failing(io.BytesIO):
        def write(self, data):
            raise TimeoutError("gone")

    sink = TarWriter(Failing())
    with pytest.raises(TimeoutError):
        sink.write(LARGE)
    with pytest.raises(StorageError, match="incomplete"):
        sink.close()


def test_a_post_that_fails_leaves_the_shard(tmp_path):
    def post(name):
        raise ConnectionError("upload")

    with pytest.raises(ConnectionError), ShardWriter(f"{tmp_path}/a-%d.tar", post=post) as sink:
        sink.write(SAMPLE)
    assert names_in(tmp_path) == ["a-0.tar"]


def test_an_opener_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), ShardWriter("a-%d.tar", opener=lambda name: 1 / 0) as sink:
        sink.write(SAMPLE)


def test_a_stale_index_never_stands_beside_a_new_shard(tmp_path):
    (tmp_path / "a.idx").write_text("old")
    with TarWriter(tmp_path / "a.tar", index=True) as sink:
        sink.write(SAMPLE)
        assert (tmp_path / "a.idx").read_text() == "old"
    assert (tmp_path / "a.idx").read_text().startswith("v1.2 1\n")


# -- files that are there already --------------------------------------------------------------------


def test_a_replaced_file_keeps_its_mode(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"old")
    (tmp_path / "a.tar").chmod(0o640)
    with TarWriter(tmp_path / "a.tar") as sink:
        sink.write(SAMPLE)
    assert (tmp_path / "a.tar").stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with TarWriter(tmp_path / "a.tar") as sink:
        sink.write(SAMPLE)
    assert (tmp_path / "a.tar").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "a.tar").symlink_to(tmp_path / "data" / "real.tar")
    with TarWriter(tmp_path / "a.tar") as sink:
        sink.write(SAMPLE)
    assert (tmp_path / "a.tar").is_symlink()
    assert keys_in(tmp_path / "data" / "real.tar") == ["a"]


def test_changing_the_folder_of_the_process_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, options in (("a-%d.tar", {}), ("b-%d.tar", {"shared": True})):
        with ShardWriter(name, **options) as sink:
            sink.write(SAMPLE)
            monkeypatch.chdir(tmp_path / "elsewhere")
        monkeypatch.chdir(tmp_path)
    assert names_in(tmp_path) == ["a-0.tar", "b-0.tar", "elsewhere"]


def test_durable_shards_are_written_too(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar", durable=True, shared=True) as sink:
        sink.write(SAMPLE)
    assert keys_in(tmp_path / "a-0.tar") == ["a"]


# -- security ----------------------------------------------------------------------------------------


def test_secure_mode_refuses_local_files_and_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    for target in (f"{tmp_path}/a.tar", f"file:{tmp_path}/a.tar", f"pipe:cat > {tmp_path}/a.tar"):
        with pytest.raises(SecurityError):
            TarWriter(target)
    with pytest.raises(SecurityError):
        ShardWriter(f"{tmp_path}/a-%d.tar")
    assert names_in(tmp_path) == []


def test_secure_mode_allows_its_roots_but_no_link_out_of_them(tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    monkeypatch.setenv("WDS_SECURE", "1")
    monkeypatch.setenv("WDS_SECURE_ROOTS", str(tmp_path / "root"))
    with TarWriter(tmp_path / "root" / "a.tar") as sink:
        sink.write(SAMPLE)
    with pytest.raises(SecurityError):
        TarWriter(tmp_path / "root" / "out" / "a.tar")
    assert names_in(tmp_path) == ["root"]


def test_secrets_in_a_url_do_not_reach_messages():
    sink = TarWriter("pipe:cat >/dev/null # https://me:secret@host/a.tar")
    with pytest.raises(EncodingError) as caught:
        sink.write({"__key__": "a", "zzz": object()})
    sink.close()
    with pytest.raises(StorageError) as closed:
        sink.write(SAMPLE)
    assert "secret" not in str(caught.value) + str(closed.value)
