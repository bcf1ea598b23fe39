"""wl concat, and the old programs that concatenate."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests_support import numbered, tar_bytes


def keys(listed: list[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".")[0] for name in listed))


def test_all_samples_in_order(wl: Any, make_shards: Any, names: Any) -> None:
    shards = make_shards(3, samples=2)
    assert keys(names(wl("concat", *shards).out)) == [f"{i:06d}" for i in range(6)]


def test_braces_globs_and_folders(wl: Any, make_shards: Any, tmp_path: Path) -> None:
    expected = wl("concat", *make_shards(3, samples=2)).out
    for spec in ("shard-{000000..000002}.tar", "shard-*.tar", ""):
        assert wl("concat", f"{tmp_path}/{spec}").out == expected


def test_select_skip_count_and_slice(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=20)
    assert keys(names(wl("concat", "-s", 3, "-c", 2, shard).out)) == ["000003", "000004"]
    assert keys(names(wl("concat", "-S", "cls % 5 == 0", "-s", 1, "-c", 2, shard).out)) == ["000005", "000010"]
    assert keys(names(wl("concat", "--slice", "2:9:3", shard).out)) == ["000002", "000005", "000008"]


def test_fields_are_chosen_and_renamed(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=1)
    assert names(wl("concat", "-f", "text:foo,txt cls", shard).out) == ["000000.cls", "000000.text"]
    assert names(wl("concat", "-f", "foo;txt", shard).out) == ["000000.txt"]
    wrong = wl("concat", "-f", "clss", shard)
    assert wrong.code == 1
    assert "there is no field 'clss', did you mean 'cls'?; the fields here are cls txt" in wrong.err


@pytest.mark.parametrize("pattern", ["#", "%09d", "{index:09d}"])
def test_rekey(wl: Any, make_shard: Any, names: Any, pattern: str) -> None:
    shard = make_shard(samples=2, start=5)
    assert keys(names(wl("concat", "--rekey", pattern, shard).out)) == ["000000000", "000000001"]
    assert keys(names(wl("concat", "--rekey", "x/{key}", shard).out)) == ["x/000005", "x/000006"]
    assert wl("concat", "--rekey", "same", shard).code != 0


def test_shuffle_and_mix_keep_all_samples(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(3, samples=5)
    everything = members(wl("concat", *shards).out)
    shuffled = wl("concat", "--shuffle", 100, "--seed", 3, *shards).out
    assert members(shuffled) == members(wl("concat", "--mix", 2, *shards).out) == everything
    assert shuffled == wl("concat", "--shuffle", 100, "--seed", 3, *shards).out != wl("concat", *shards).out


def test_equal_keys_side_by_side_are_an_error_with_the_cure(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=1)
    ended = wl("concat", shard, shard)
    assert ended.code == 1
    assert "two samples in a row have the same key" in ended.err
    assert "key 000000]; --rekey '{key}-{index}' makes keys unique" in ended.err
    cured = wl("concat", "--rekey", "{key}-{index}", shard, shard)
    assert keys(names(cured.out)) == ["000000-0", "000000-1"]
    assert cured.err == ""


def test_equal_keys_on_either_side_of_a_shards_end_are_fine(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=1)
    assert wl("concat", shard, shard, "--maxcount", 1, "-o", tmp_path / "o-%d.tar").code == 0
    assert len(list(tmp_path.glob("o-?.tar"))) == 2


def test_output_patterns_make_shards(wl: Any, make_shard: Any, tmp_path: Path, names: Any) -> None:
    shard = make_shard(samples=5)
    assert wl("concat", shard, "--maxcount", 2, "-o", tmp_path / "o-{shard:03d}.tar").code == 0
    assert sorted(path.name for path in tmp_path.glob("o-*")) == ["o-000.tar", "o-001.tar", "o-002.tar"]
    assert len(names(tmp_path / "o-002.tar")) == 2


def test_a_single_underscore_is_a_field_like_any_other(wl: Any, make_shard: Any, names: Any) -> None:
    assert names(wl("concat", make_shard(files=[("a._x", b"1"), ("a.y", b"2")])).out) == ["a._x", "a.y"]


def test_members_in_no_sample_are_counted(wl: Any, make_shard: Any) -> None:
    ended = wl("concat", make_shard(files=[("README", b"1"), ("a.y", b"2")]))
    assert ended.code == 0
    assert "left out: 1 members" in ended.err


# -- bad input ---------------------------------------------------------------------------------------


def test_a_missing_file_is_one_line(wl: Any, tmp_path: Path) -> None:
    ended = wl("concat", tmp_path / "none.tar")
    assert ended.code == 1
    assert ended.err == f"wl concat: no such file [url {tmp_path}/none.tar, shard 0]\n"


def test_a_folder_that_does_not_exist(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    ended = wl("concat", make_shard(), "-o", tmp_path / "nowhere/out.tar")
    assert ended.code == 1
    assert "nowhere" in ended.err
    assert "Traceback" not in ended.err


def test_a_tar_cut_in_the_middle(wl: Any, tmp_path: Path, names: Any) -> None:
    (tmp_path / "cut.tar").write_bytes(tar_bytes(numbered(10))[:7000])
    ended = wl("concat", tmp_path / "cut.tar", "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "offset" in ended.err
    assert not (tmp_path / "out.tar").exists()
    skipped = wl("concat", "--on-error", "skip", tmp_path / "cut.tar")
    assert skipped.code == 0
    assert "left out: 1 shards" in skipped.err
    assert keys(names(skipped.out)) == ["000000", "000001", "000002"]


def test_a_member_that_says_it_has_ten_gigabytes(wl: Any, tmp_path: Path) -> None:
    import tarfile

    header = tarfile.TarInfo("a.bin")
    header.size = 10_000_000_000
    (tmp_path / "big.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    ended = wl("concat", tmp_path / "big.tar")
    assert ended.code == 1
    assert "a.bin" in ended.err


def test_a_full_disk(make_shard: Any, wl_process: Any) -> None:
    ended = wl_process("concat", make_shard(samples=100), "-o", "/dev/full")
    assert ended.returncode == 1
    assert b"No space left" in ended.stderr or b"full" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_secrets_stay_out_of_errors(wl: Any) -> None:
    assert "hunter2" not in wl("concat", "nosuch://me:hunter2@host/a.tar").err


def test_a_wrong_option_is_exit_2(wl: Any) -> None:
    assert wl("concat", "--nonsense").code == 2
    assert wl("concat", "-c", "many").code == 2
    assert wl("concat", "-S", "cls ==").code == 2


# -- pipes -------------------------------------------------------------------------------------------


def test_it_reads_no_more_than_it_needs_and_ends_the_producer(make_shard: Callable[..., str]) -> None:
    shard = make_shard(samples=3000)
    endless = f"(while true; do cat {shard} || exit; done; echo never)"
    line = f"{endless} | {sys.executable} -m webdataset concat -c 10 - | tar -tf -"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert len(ended.stdout.split()) == 20
    assert "Traceback" not in ended.stderr
    assert "wl" not in ended.stderr


def test_a_reader_that_goes_away_is_no_error(make_shard: Callable[..., str]) -> None:
    shard = make_shard(samples=3000)
    line = f"set -o pipefail; {sys.executable} -m webdataset concat {shard} | head -c 100 | wc -c"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "100", "")


def test_a_terminal_gets_no_bytes(make_shard: Callable[..., str]) -> None:
    line = f"{sys.executable} -m webdataset concat {make_shard()}"
    ended = subprocess.run(
        ["script", "-qec", line, "/dev/null"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "not writing bytes to a terminal: use -o FILE" in ended.stdout


# -- old names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["tarscat", "tarcat", "tarcats"])
def test_ten_samples_from_stdin_as_the_seed_shows(program: str, make_shard: Any, tmp_path: Path, names: Any) -> None:
    shard = make_shard(samples=50)
    code = "import sys; from webdataset.cli.old.programs import main; sys.exit(main())"
    (tmp_path / program).write_text(f"#!{sys.executable}\n{code}\n")
    (tmp_path / program).chmod(0o755)
    line = f"cat {shard} | {tmp_path}/{program} -c 10 > {tmp_path}/small.tar"
    assert subprocess.run(["bash", "-c", line], timeout=60, check=False).returncode == 0
    assert len(names(tmp_path / "small.tar")) == 20


def test_their_count_includes_the_skipped(wl: Any, make_shard: Any, names: Any) -> None:
    assert keys(names(wl.old("tarcats", "-s", 3, "-c", 5, make_shard()).out)) == ["000003", "000004"]


def test_tarp_cat(wl: Any, make_shards: Any, names: Any, tmp_path: Path) -> None:
    shards = make_shards(3, samples=2)
    (tmp_path / "list").write_text("\n".join(shards))
    ended = wl.old("tarp", "cat", "-l", tmp_path / "list", "-f", "t:txt", "-R", "#", "--slice", "1:3", "-o", "-")
    assert names(ended.out) == ["000000000.t", "000000001.t"]
    one = wl.old("tarp", "cat", "--shardslice", "1:2", *shards, "-o", "-")
    assert keys(names(one.out)) == ["000002", "000003"]


def test_an_old_program_that_is_not_there(wl: Any) -> None:
    assert wl.old("tarp", "dance").code == 2


# -- shards that are copied as they lie ----------------------------------------------------------------


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
    assert wl("concat", "-v", one, two, "-o", out).err.startswith("3 samples in ")
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
    assert "left out: 1 members" in ended.err
    assert names(tmp_path / "out.tar") == ["d/a.jpg", "d/b.txt", "c.txt"]


def test_equal_keys_where_two_shards_meet_are_an_error(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    ended = wl("concat", make_shard(samples=1), make_shard(samples=1), "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "two samples in a row have the same key" in ended.err
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize("order", [("--shuffle", "9", "--seed", "1"), ("--mix", "3")])
def test_equal_keys_are_kept_apart_where_the_order_is_free(wl: Any, make_shard: Any, members: Any, order: Any) -> None:
    shard = make_shard(samples=4)
    ended = wl("concat", *order, shard, shard, shard)
    assert ended.code == 0
    assert set(members(ended.out).values()) == {3}
    assert len(members(ended.out)) == 8


def test_a_shard_may_be_replaced_by_its_concatenation(wl: Any, make_shards: Any, names: Any) -> None:
    one, two = make_shards(2, samples=2)
    assert wl("concat", one, two, "-o", one).code == 0
    assert keys(names(one)) == ["000000", "000001", "000002", "000003"]


def test_a_full_disk_leaves_nothing_of_a_copy(make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=3000)
    line = f"ulimit -f 100; exec {sys.executable} -m webdataset concat {shard} -o {tmp_path}/out.tar"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "the disk is full" in ended.stderr
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
    assert (one.code, one.err.replace("copied.tar", "packed.tar")) == (other.code, other.err)
    assert one.code != 0 or members(copied) == members(packed)


# -- several processes check ---------------------------------------------------------------------------


def large_shards(folder: Path, last: dict[str, bytes]) -> list[Path]:
    """Four shards that are worth more than one process, the last one with these files too."""
    files = [{f"{shard}-{n}.bin": bytes(4 << 20), f"{shard}-{n}.txt": b"x"} for shard in range(4) for n in range(5)]
    merged = [{name: data for part in files[5 * n : 5 * n + 5] for name, data in part.items()} for n in range(4)]
    return [gnu_tar(folder, f"large{n}", {**shard, **last} if n == 3 else shard) for n, shard in enumerate(merged)]


def test_several_processes_check_what_is_copied(wl_process: Any, tmp_path: Path) -> None:
    shards = large_shards(tmp_path, {"z.txt": b"z"})
    ended = wl_process("concat", "-v", *shards, "-o", tmp_path / "out.tar")
    assert (ended.returncode, ended.stderr[:14]) == (0, b"21 samples in ")
    assert listing(tmp_path / "out.tar") == "".join(map(listing, shards))


def test_what_another_process_finds_is_looked_at_closely(wl_process: Any, tmp_path: Path, names: Any) -> None:
    shards = large_shards(tmp_path, {"README": b"z", "z.TXT": b"z"})
    ended = wl_process("concat", *shards, "-o", tmp_path / "out.tar")
    assert ended.returncode == 0
    assert b"left out: 1 members" in ended.stderr
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
    assert b"two samples in a row have the same key" in ended.stderr
