"""Plain shards are joined byte for byte, and everything else is left to the slow way."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from garbage import left_to_this_process
from tests_support import tar_bytes
from webdataset.tools.transform import joining


def keys(listed: list[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".")[0] for name in listed))


def gnu_tar(folder: Path, name: str, files: dict[str, bytes], *options: str) -> Path:
    """A shard made by GNU tar, with today's times and this user."""
    (folder / name).mkdir()
    for member, data in files.items():
        (folder / name / member).parent.mkdir(exist_ok=True, parents=True)
        (folder / name / member).write_bytes(data)
    shard = folder / f"{name}.tar"
    subprocess.run(["tar", "-cf", shard, "-C", folder / name, *options, *files], check=True)
    return shard


def listing(archive: Path) -> str:
    return subprocess.run(["tar", "-tvf", archive], capture_output=True, text=True, check=True).stdout


def test_plain_shards_are_copied_headers_and_all(wl: Any, tmp_path: Path) -> None:
    one = gnu_tar(tmp_path, "one", {"a.cls": b"1", "a.txt": b"x" * 1000, "b.txt": b""}, "--mtime=@1234567890")
    two = gnu_tar(tmp_path, "two", {"d/c.txt": b"y" * 100_000})
    out = tmp_path / "out.tar"
    assert wl("concat", "-v", one, two, "-o", out).err.startswith("3 samples of 2 shards ")
    assert listing(out) == listing(one) + listing(two)
    assert "2009-02-13" in listing(out)
    members_end = [size.stat().st_size // 512 * 512 for size in (one, two)]
    assert out.stat().st_size < sum(members_end)  # the first end marker is gone, and the padding of both


def test_the_copy_of_our_own_shards_is_what_packing_them_anew_gives(wl: Any, make_shards: Any, tmp_path: Path) -> None:
    assert wl("split", "--maxcount", 40, *make_shards(3, samples=40), "-o", tmp_path / "own-%d.tar").code == 0
    shards = [tmp_path / f"own-{n}.tar" for n in range(3)]
    assert wl("concat", *shards, "-o", tmp_path / "copied.tar").code == 0
    assert wl("concat", "-c", 1000, *shards, "-o", tmp_path / "packed.tar").code == 0
    assert (tmp_path / "copied.tar").read_bytes() == (tmp_path / "packed.tar").read_bytes()


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-2000],
        lambda data: data[:7000],
        lambda data: changed(data, 1024 + 3),
        lambda data: changed(data, 5 * 1024 + 130),
        lambda data: changed(data, 5 * 1024 + 300),
        lambda data: b"",
        lambda data: b"not a tar" * 1000,
    ],
)
def test_damage_is_an_error_and_nothing_is_written(wl: Any, make_shard: Any, tmp_path: Path, damage: Any) -> None:
    whole = make_shard(samples=10)
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(damage(Path(whole).read_bytes()))
    ended = wl("concat", whole, damaged, "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert str(damaged) in ended.err
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("damaged.tar", Path(whole).name)] == []


def test_what_is_not_plain_is_packed_anew(wl: Any, tmp_path: Path, names: Any) -> None:
    shard = gnu_tar(tmp_path, "one", {"d/a.JPG": b"1", "d/b.txt": b"2", "README": b"3"})
    linked = gnu_tar(tmp_path, "two", {"c.txt": b"4"})
    subprocess.run(["ln", "-s", "c.txt", tmp_path / "two/e.txt"], check=True)
    subprocess.run(["tar", "-rf", linked, "-C", tmp_path / "two", "e.txt"], check=True)
    ended = wl("concat", shard, linked, "-o", tmp_path / "out.tar")
    assert ended.code == 0
    assert "left out: 1 member" in ended.err
    assert names(tmp_path / "out.tar") == ["d/a.jpg", "d/b.txt", "c.txt"]


def test_equal_keys_where_two_shards_meet_are_an_error(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    ended = wl("concat", make_shard(samples=1), make_shard(samples=1), "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "key 000000" in ended.err
    assert not (tmp_path / "out.tar").exists()


def test_a_shard_may_be_replaced_by_its_concatenation(wl: Any, make_shards: Any, names: Any) -> None:
    one, two = make_shards(2, samples=2)
    assert wl("concat", one, two, "-o", one).code == 0
    assert keys(names(one)) == ["000000", "000001", "000002", "000003"]


def test_a_full_disk_leaves_nothing_of_a_copy(make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=3000)
    line = f"ulimit -f 100; exec {sys.executable} -m webdataset concat {shard} -o {tmp_path}/out.tar"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "full" in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != Path(shard).name] == []


NAMES = st.tuples(
    st.sampled_from(["a", "b", "c/a", "d-é", "__m__", "x y", ".h", "f" * 80 + "/" + "e" * 80]),
    st.sampled_from([".txt", ".cls", ".TXT", ".seg.png", ".__url__", ""]),
)


FILES = st.lists(st.tuples(NAMES.map("".join), st.sampled_from([b"", b"1", bytes(512), b"x" * 40_000])), max_size=12)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shards=st.lists(FILES, min_size=1, max_size=3), end=st.booleans())
def test_a_copy_holds_the_same_samples_as_packing_anew(
    wl: Any, members: Any, tmp_path: Path, shards: list[list[tuple[str, bytes]]], end: bool
) -> None:
    paths = [tmp_path / f"{n}.tar" for n in range(len(shards))]
    for path, files in zip(paths, shards, strict=True):
        path.write_bytes(tar_bytes(files, end=end))
    copied, packed = (tmp_path / "copied.tar", tmp_path / "packed.tar")
    one = wl("concat", *paths, "-o", copied)
    other = wl("concat", "-c", 1000, *paths, "-o", packed)
    assert (one.code, one.told.replace("copied.tar", "packed.tar")) == (other.code, other.told)
    assert one.code != 0 or members(copied) == members(packed)


def large_shards(folder: Path, last: dict[str, bytes]) -> list[Path]:
    """Four shards that are worth more than one process, the last one with these files too."""
    files = [{f"{shard}-{n}.bin": bytes(4 << 20), f"{shard}-{n}.txt": b"x"} for shard in range(4) for n in range(5)]
    merged = [{name: data for part in files[5 * n : 5 * n + 5] for name, data in part.items()} for n in range(4)]
    return [gnu_tar(folder, f"large{n}", {**shard, **last} if n == 3 else shard) for n, shard in enumerate(merged)]


def test_several_processes_check_what_is_copied(wl_process: Any, tmp_path: Path) -> None:
    shards = large_shards(tmp_path, {"z.txt": b"z"})
    ended = wl_process("concat", "-v", *shards, "-o", tmp_path / "out.tar")
    assert (ended.returncode, ended.stderr[:14]) == (0, b"21 samples of ")
    assert listing(tmp_path / "out.tar") == "".join(map(listing, shards))


def test_what_another_process_finds_is_looked_at_closely(wl_process: Any, tmp_path: Path, names: Any) -> None:
    shards = large_shards(tmp_path, {"README": b"z", "z.TXT": b"z"})
    ended = wl_process("concat", *shards, "-o", tmp_path / "out.tar")
    assert ended.returncode == 0
    assert b"left out: 1 member" in ended.stderr
    assert names(tmp_path / "out.tar")[-1] == "z.txt"


def test_damage_that_another_process_finds_is_an_error(wl_process: Any, tmp_path: Path) -> None:
    shards = large_shards(tmp_path, {})
    shards[3].write_bytes(changed(shards[3].read_bytes(), 4))
    ended = wl_process("concat", *shards, "-o", tmp_path / "out.tar")
    assert ended.returncode == 1
    assert str(shards[3]).encode() in ended.stderr
    assert not (tmp_path / "out.tar").exists()


def test_equal_keys_where_the_shards_of_two_processes_meet(wl_process: Any, tmp_path: Path) -> None:
    shards = large_shards(tmp_path, {"0-0.txt": b"z"})
    ended = wl_process("concat", *shards, shards[0], "-o", tmp_path / "out.tar")
    assert ended.returncode == 1
    assert b"key 0-0" in ended.stderr


def test_a_process_that_checks_does_not_collect_the_garbage_of_the_program(
    make_shard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [joining._Shard.of(make_shard(f"{n}.tar", samples=2)) for n in range(2)]
    check = joining._checked
    monkeypatch.setattr(joining, "_checked", lambda *given: (gc.collect(), check(*given))[1])
    checker = joining._Checker(shards, 1)
    with left_to_this_process(tmp_path):
        checker.start(2)
        assert checker.next().samples == 2
        checker.end()
