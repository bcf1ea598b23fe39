"""Folders and files that are one's own, in places where others may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from webdataset.base.private import check_own, inside, make_private, opened, write_private
from webdataset.errors import SecurityError


@pytest.fixture
def usual_umask():
    """That of systems on which every user has a group."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def read(folder: object, name: str) -> bytes:
    with opened(str(folder), name, os.O_RDONLY) as number:
        return os.read(number, 100)


@pytest.mark.usefixtures("usual_umask")
def test_what_is_made_can_be_written_to_by_nobody_else(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    group.chmod(0o2775)
    folder = group / "runs" / "one"
    write_private(str(folder), "plans/a/plan.json", b"{}")
    assert read(folder, "plans/a/plan.json") == b"{}"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700
    for path in [*folder.rglob("*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o2775])
@pytest.mark.parametrize("which", [".", "plans"])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path: Path, mode: int, which: str) -> None:
    write_private(str(tmp_path / "run"), "plans/a", b"x")
    (tmp_path / "run" / which).chmod(mode)
    with pytest.raises(SecurityError) as caught:
        read(tmp_path / "run", "plans/a")
    assert Path(str(caught.value.url)) == tmp_path / "run" / which
    assert "chmod" in caught.value.hint
    with pytest.raises(SecurityError):
        write_private(str(tmp_path / "run"), "plans/a", b"y")


def strangers(tmp_path: Path) -> str:
    """A folder that is not this user's: one that root gives away, else one in which everybody may write."""
    folder = tmp_path / "strange"
    folder.mkdir()
    folder.chmod(0o777)
    if os.geteuid() == 0:
        folder.chmod(0o755)
        os.chown(folder, 12345, -1)
    return str(folder)


def test_a_folder_of_another_user_is_refused_and_can_be_looked_at(tmp_path: Path) -> None:
    folder = strangers(tmp_path)
    Path(folder, "a").write_bytes(b"x")
    with pytest.raises(SecurityError), opened(folder, "a", os.O_RDONLY):
        """It is refused."""
    with pytest.raises(SecurityError):
        make_private(folder)
    with opened(folder, "a", os.O_RDONLY, foreign=True) as number:
        assert os.read(number, 9) == b"x"


def test_a_pod_is_told_whose_runs_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = os.stat_result((0o40700, 0, 0, 1, 12345, 12345, 0, 0, 0, 0))
    with pytest.raises(SecurityError):
        check_own(facts, "run")
    monkeypatch.setenv("WDS_OWNER", "12345")
    check_own(facts, "run")


@pytest.mark.parametrize("name", ["logs/a", "logs"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    make_private(str(run))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_bytes(b"precious")
    if name == "logs":
        (run / "logs").symlink_to(tmp_path / "mine")
    else:
        (run / "logs").mkdir()
        (run / "logs" / "a").symlink_to(tmp_path / "mine" / "a")
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
        with pytest.raises(SecurityError, match="link"), opened(str(run), "logs/a", flags):
            """It is refused."""
    assert (tmp_path / "mine" / "a").read_bytes() == b"precious"


def test_a_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    make_private(str(tmp_path / "other"))
    (tmp_path / "run").symlink_to(tmp_path / "other")
    with pytest.raises(SecurityError, match="link"):
        write_private(str(tmp_path / "run"), "a", b"x")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    make_private(str(tmp_path / "run"))
    os.mkfifo(tmp_path / "run" / "a")
    with pytest.raises(SecurityError, match="regular"):
        read(tmp_path / "run", "a")


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "a//b", ""])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SecurityError), inside(str(tmp_path), name):
        """It is refused."""
