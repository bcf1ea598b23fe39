"""An earlier set of shards, when a new one is written over it."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from interrupts import different_moments, interrupted
from servers.doubles import Double, Reply
from webdataset.errors import ExistingShardsError, ShardWarning


def write(pattern: Any, samples: int, **options: Any) -> None:
    """So many shards of one sample."""
    with wds.ShardWriter(str(pattern), maxcount=1, verbose=0, **options) as sink:
        write_all(sink, ({"__key__": f"{i:06d}", "cls": samples} for i in range(samples)))


def write_all(sink: wds.ShardWriter, samples: Iterable[dict[str, Any]]) -> None:
    for sample in samples:
        sink.write(sample)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def no_warning() -> Any:
    """All that warns is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_shards_that_are_left_over_are_told_in_the_end(tmp_path: Path) -> None:
    write(tmp_path / "a-%03d.tar", 10)
    with pytest.warns(ShardWarning, match=r"8 shards .*a-002\.tar to .*a-009\.tar"):
        write(tmp_path / "a-%03d.tar", 2)
    assert len(names(tmp_path)) == 10


def test_the_warning_comes_once_and_is_a_user_warning(tmp_path: Path) -> None:
    write(tmp_path / "a-%03d.tar", 3)
    sink = wds.ShardWriter(str(tmp_path / "a-%03d.tar"), verbose=0)
    sink.write({"__key__": "a", "cls": 1})
    with pytest.warns(UserWarning, match="2 shards"):
        sink.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sink.close()


@pytest.mark.usefixtures("no_warning")
def test_overwriting_removes_what_is_left_over_with_its_indices(tmp_path: Path) -> None:
    pattern = tmp_path / "a-%03d.tar"
    write(pattern, 4, index=["wdx", "dali", "energon"])
    (tmp_path / "a-x.tar").touch()
    (tmp_path / "a-7.tar").touch()
    write(pattern, 2, overwrite=True)
    assert names(tmp_path) == ["a-000.tar", "a-001.tar", "a-7.tar", "a-x.tar"]
    assert [sample["cls"] for sample in wds.WebDataset(str(tmp_path / "a-00*.tar"), shardshuffle=False)] == [b"2", b"2"]


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("pattern", ["a-%03d.tar", "a-{shard:03d}.tar", "{shard}/a.tar", "file:a-%03d.tar"])
def test_every_kind_of_pattern_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        Path(str(number)).mkdir()
    write(pattern, 5)
    write(pattern, 2, overwrite=True)
    assert len(list(tmp_path.glob("**/a*.tar"))) == 2


def test_an_existing_shard_is_an_error_at_once_if_asked_for(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 3)
    before = {path: path.stat() for path in tmp_path.iterdir()}
    with pytest.raises(ExistingShardsError, match=r"3 shards .*a-002\.tar") as raised:
        wds.ShardWriter(pattern, overwrite=False)
    assert "overwrite=True" in raised.value.hint
    assert isinstance(raised.value, FileExistsError)
    assert {path: path.stat() for path in tmp_path.iterdir()} == before


@pytest.mark.usefixtures("no_warning")
def test_shards_before_the_first_number_are_none_of_a_writers_business(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 3)
    write(pattern, 2, start_shard=3, overwrite=False)
    write(pattern, 1, start_shard=4, overwrite=True)
    assert names(tmp_path) == [f"a-{number:03d}.tar" for number in range(5)]


def test_a_pattern_without_a_number_is_a_set_of_one(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a.tar")
    write(pattern, 1)
    write(pattern, 1)
    with pytest.raises(ExistingShardsError, match=r"1 shard "):
        wds.ShardWriter(pattern, overwrite=False)
    write(pattern, 1, overwrite=True)
    assert names(tmp_path) == ["a.tar"]


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("overwrite", ["warn", True])
def test_shards_that_another_writer_writes_meanwhile_are_not_left_over(tmp_path: Path, overwrite: Any) -> None:
    """Two writers, each of which has a range of the numbers; the second is the quicker one."""
    pattern = str(tmp_path / "a-%03d.tar")
    options = {"maxcount": 1, "verbose": 0, "overwrite": overwrite}
    with wds.ShardWriter(pattern, **options) as slow:
        slow.write({"__key__": "a", "cls": 1})
        write(pattern, 2, start_shard=1)
    assert len(names(tmp_path)) == 3


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("overwrite", ["warn", True])
def test_old_shards_that_another_writer_replaced_meanwhile_stay(tmp_path: Path, overwrite: Any) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 3)
    with wds.ShardWriter(pattern, maxcount=1, verbose=0, overwrite=overwrite) as slow:
        slow.write({"__key__": "a", "cls": 1})
        write(pattern, 2, start_shard=1)
    assert len(names(tmp_path)) == 3


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("overwrite", ["warn", True])
def test_a_range_of_numbers_behind_a_gap_belongs_to_another_writer(tmp_path: Path, overwrite: Any) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 2, start_shard=100)
    write(pattern, 2, overwrite=overwrite)
    assert names(tmp_path) == ["a-000.tar", "a-001.tar", "a-100.tar", "a-101.tar"]


def test_nothing_is_removed_if_nothing_was_written(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 2)
    with pytest.warns(ShardWarning, match="nothing"):
        write(pattern, 0, overwrite=True)
    assert len(names(tmp_path)) == 2


def test_an_error_removes_nothing_and_says_what_is_new_and_what_is_not(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 5)
    samples = ({"__key__": f"{i}", "cls": 6 // (2 - i)} for i in range(3))
    with pytest.raises(ZeroDivisionError) as failed, wds.ShardWriter(pattern, maxcount=1, overwrite=True) as sink:
        write_all(sink, samples)
    assert len(names(tmp_path)) == 5
    [note] = failed.value.__notes__
    new, old = note.split("; ")
    assert (new.split()[0], pattern % 0 in new) == ("1", True)
    assert (old.split()[0], pattern % 1 in old, pattern % 4 in old) == ("4", True, True)


@pytest.mark.filterwarnings("ignore:the writer of:webdataset.errors.ShardWarning")
@pytest.mark.parametrize("earlier", [0, 2])
def test_an_interrupt_at_any_moment_names_all_complete_shards(tmp_path: Path, earlier: int) -> None:
    inside = ("writing/outputs.py", "writing/overwriting.py", "storage/publish.py")
    counts: set[int] = set()

    def written() -> None:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for number in range(earlier):
            (folder / f"a-{number}.tar").touch()
        try:
            write(folder / "a-%d.tar", 3, overwrite=True)
        except KeyboardInterrupt as error:
            new = [name for name in names(folder) if name.startswith("a-") and os.stat(folder / name).st_size]
            [note] = [*getattr(error, "__notes__", []), ""][:1]
            assert new == [f"a-{number}.tar" for number in range(len(new))]
            assert (note.split()[:2] == [str(len(new)), "complete"]) == bool(new), note
            counts.add(len(new))
            raise

    for moment in different_moments(written, inside):
        assert interrupted(written, moment, inside)
        assert not list(tmp_path.rglob(".*"))  # nothing unfinished is left either
    assert counts == {0, 1, 2, 3}


def test_a_writer_that_was_given_up_removes_nothing_when_it_is_closed_later(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", 3)
    sink = wds.ShardWriter(str(tmp_path / "a-%d.tar"), maxcount=1, verbose=0, overwrite=True)
    write_all(sink, [{"__key__": "a", "cls": 1}, {"__key__": "b", "cls": 2}])
    sink.abort()
    sink.close()
    assert len(names(tmp_path)) == 3


def test_shared_writers_take_free_numbers_and_overwrite_nothing(tmp_path: Path) -> None:
    pattern = str(tmp_path / "a-%03d.tar")
    write(pattern, 2, shared=True)
    write(pattern, 2, shared=True)
    assert len(names(tmp_path)) == 4
    with pytest.raises(ValueError, match="shared=True"):
        wds.ShardWriter(pattern, shared=True, overwrite=True)


def test_an_unknown_value_of_overwrite_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'no'"):
        wds.ShardWriter(str(tmp_path / "a-%d.tar"), overwrite="no")


@pytest.mark.usefixtures("no_warning")
def test_commands_and_openers_have_no_check(tmp_path: Path) -> None:
    (tmp_path / "a-0.tar").touch()
    write(f"pipe:cat > {tmp_path}/a-%d.tar", 1, overwrite=False)
    write(str(tmp_path / "a-%d.tar"), 1, overwrite=False, opener=lambda name: open(name, "wb"))  # noqa: SIM115 - closed by the writer


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_place_that_may_only_be_written_to_is_told_and_written_to(overwrite: bool) -> None:
    with Double(lambda question: Reply(201 if question.method == "PUT" else 403)) as server:
        with pytest.warns(ShardWarning, match=r"a-%d\.tar .*403"):
            write(f"{server.url}/a-%d.tar", 2, overwrite=overwrite)
        assert [question.raw_path for question in server.questions if question.body] == ["/a-0.tar", "/a-1.tar"]


@pytest.mark.usefixtures("no_warning")
def test_who_asked_for_nothing_is_not_told_of_a_place_that_may_only_be_written_to() -> None:
    with Double(lambda question: Reply(201 if question.method == "PUT" else 403)) as server:
        write(f"{server.url}/a-%d.tar", 2)


@pytest.mark.usefixtures("no_warning")
def test_a_server_without_the_shards_is_asked_once() -> None:
    with Double(lambda question: Reply(201 if question.method == "PUT" else 404)) as server:
        write(f"{server.url}/a-%d.tar", 1)
        assert [question.method for question in server.questions] == ["HEAD", "PUT"]


def test_rewritten_names_are_looked_at_where_they_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPEN_REWRITE", f"mine:={tmp_path}/")
    write("mine:a-%d.tar", 3)
    write("mine:a-%d.tar", 1, overwrite=True)
    assert names(tmp_path) == ["a-0.tar"]
