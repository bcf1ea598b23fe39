"""wl xargs: a shell command per sample."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from servers.programs import needs_programs_of


@pytest.fixture
def shard(make_shard: Any) -> str:
    files = [(f"{i:03d}.{ext}", f"{ext}{i}".encode()) for i in range(10) for ext in ("cls", "txt")]
    return make_shard("in.tar", files=files)


def test_files_come_back_into_the_sample(wl: Any, shard: str, names: Any, members: Any) -> None:
    ended = wl("xargs", "-c", "tr a-z A-Z < sample.txt > sample.up; rm sample.cls", "--count", 2, shard)
    assert ended.code == 0
    assert names(ended.out) == ["000.txt", "000.up", "001.txt", "001.up"]
    assert members(ended.out)["001.up", b"TXT1"] == 1


def test_doing_nothing_is_the_identity(wl: Any, shard: str) -> None:
    assert wl("xargs", "-c", "true", shard).out == wl("concat", shard).out


def test_parallel_is_serial(wl: Any, shard: str) -> None:
    command = "sleep 0.0$(( $(cat sample.txt | tr -d a-z) % 3 )); md5sum < sample.txt > sample.md5"
    serial, parallel = wl("xargs", "-c", command, shard), wl("xargs", "-P", 4, "-c", command, shard)
    assert serial.code == parallel.code == 0
    assert serial.out == parallel.out


def test_the_key_is_a_file_and_can_be_changed(wl: Any, shard: str, names: Any) -> None:
    ended = wl("xargs", "-c", "echo new-$(cat sample.__key__) > sample.__key__", "--count", 1, shard)
    assert names(ended.out) == ["new-000.cls", "new-000.txt"]


def test_folders_become_samples(wl: Any, shard: str, names: Any) -> None:
    command = "mkdir x y; cp sample.txt x; cp sample.txt y; echo own > y/sample.__key__"
    assert names(wl("xargs", "-c", command, "--count", 1, shard).out) == ["000/x.txt", "own.txt"]


def test_numbered_files_become_samples(wl: Any, shard: str, names: Any) -> None:
    command = "for i in 000001 000002; do cp sample.txt sample-$i.txt; cp sample.cls sample-$i.cls; done"
    expected = ["000/000001.cls", "000/000001.txt", "000/000002.cls", "000/000002.txt"]
    assert names(wl("xargs", "-c", command, "--count", 1, shard).out) == expected
    added = wl("xargs", "--add", "-c", command, "--count", 1, shard)
    assert names(added.out) == ["000.cls", "000.txt", *expected]


def test_no_files_drop_the_sample(wl: Any, shard: str, names: Any) -> None:
    assert names(wl("xargs", "-c", "grep -q 3 sample.txt || rm sample.*", shard).out) == ["003.cls", "003.txt"]


def test_other_files_are_left_out_with_a_word(wl: Any, shard: str, names: Any) -> None:
    ended = wl("xargs", "-c", "touch notes", shard)
    assert len(names(ended.out)) == 20
    assert ended.err.count("not called sample.EXT, such as 'notes'") == 1


@pytest.mark.parametrize("processes", [1, 3])
def test_a_command_that_fails_once_under_each_on_error(wl: Any, shard: str, names: Any, processes: int) -> None:
    run = ("xargs", "-P", processes, "-c", "echo oh no; ! grep -q 5 sample.txt", shard)
    raised = wl(*run)
    assert raised.code == 1
    assert raised.out == b""
    assert "the command ended with status 1: oh no" in raised.err
    assert "key 005" in raised.err
    skipped = wl(*run, "--on-error", "skip")
    assert (skipped.code, len(names(skipped.out))) == (0, 18)
    assert "left out: 1 samples" in skipped.err
    stopped = wl(*run, "--on-error", "stop")
    assert (stopped.code, names(stopped.out)[-1]) == (1, "004.txt")


def test_a_failed_command_leaves_no_output_under_its_name(wl: Any, shard: str, tmp_path: Path) -> None:
    assert wl("xargs", "-c", "false", shard, "-o", tmp_path / "out.tar").code == 1
    assert sorted(os.listdir(tmp_path)) == ["in.tar"]


@pytest.mark.parametrize(
    "name",
    ["a b.txt", "it's.txt", 'say "x".txt', "new\nline.txt", "-rf.txt", "$(touch trap).txt", "dir/-x.a b.txt", "ü.txt"],
)
def test_any_name_is_safe(wl: Any, make_shard: Any, name: str, members: Any, tmp_path: Path) -> None:
    shard = make_shard("odd.tar", files=[(name, b"x"), (name.rsplit(".", 1)[0] + ".$(rm x) ;`id`", b"y")])
    ended = wl("xargs", "-c", "cat sample.* > /dev/null; cp sample.__key__ sample.copy", shard)
    assert ended.code == 0
    found = members(ended.out)
    assert found[name, b"x"] == 1
    assert not (tmp_path / "trap").exists()


def test_the_commands_do_not_read_our_input(shard: str, wl_process: Any) -> None:
    with open(shard, "rb") as stdin:
        ended = wl_process("xargs", "-c", "cat > sample.stdin", stdin=stdin)
    assert ended.returncode == 0
    listed = subprocess.run(["tar", "-tf", "-"], input=ended.stdout, capture_output=True, check=True).stdout
    assert listed.count(b".stdin") == 10


def test_what_commands_print_goes_to_stderr(shard: str, wl_process: Any) -> None:
    ended = wl_process("xargs", "-c", "echo $(cat sample.txt)", "--count", "2", shard)
    assert ended.stderr == b"txt0\ntxt1\n"
    assert wl_process("xargs", "-q", "-c", "echo loud", shard).stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_children_and_leaves_nothing(shard: str, tmp_path: Path, number: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = f"echo $$ >> {tmp_path}/started; sleep 100"
    argv = [sys.executable, "-m", "webdataset", "xargs", "-P", "2", "-c", command, shard, "-o", f"{tmp_path}/out.tar"]
    argv += ["--tmpdir", str(work)]
    child = subprocess.Popen(argv, stderr=subprocess.PIPE)
    started = tmp_path / "started"
    while not started.exists() or started.read_text().count("\n") < 2:
        assert child.poll() is None
        os.sched_yield()
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == (130 if number == signal.SIGINT else 143)
    assert b"Traceback" not in told
    for pid in started.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert not (tmp_path / "out.tar").exists()
    assert os.listdir(work) == []


def test_no_command_sees_the_files_of_another(wl: Any, shard: str, names: Any) -> None:
    command = "ls -a > sample.ls; mkdir d; touch .hidden d/x sample.more; ln -s /nowhere sample.link; rm sample.link"
    ended = wl("xargs", "-q", "--exclude", "more", "-c", command, shard, "--subfolders", "--add")
    assert ended.code == 0
    assert names(ended.out) == [f"{n:03d}.{field}" for n in range(10) for field in ("cls", "ls", "txt")]
    told = subprocess.run(["tar", "-xOf", "-", "--wildcards", "*.ls"], input=ended.out, capture_output=True, check=True)
    assert set(told.stdout.split()) == {b".", b"..", b"sample.__key__", b"sample.cls", b"sample.ls", b"sample.txt"}


def test_what_runs_on_after_its_command_does_not_write_into_another_sample(wl: Any, shard: str, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    later = f"(read line < {fifo}; touch sample.late; echo done > {fifo}) > /dev/null 2>&1 &"
    command = (
        f"if grep -q txt0 sample.txt; then {later} elif grep -q txt9 sample.txt; then echo > {fifo}; cat {fifo}; fi"
    )
    ended = wl("xargs", "-c", command, shard)
    assert (ended.code, ended.err) == (0, "done\n")
    assert b"late" not in ended.out


def test_folders_of_failed_commands_do_not_stay(wl: Any, shard: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    count = f"ls {tmp_path}/work/* | wc -l > sample.n; [ $(cat sample.n) -lt 3 ] && grep -q 9 sample.txt"
    ended = wl("xargs", "--on-error", "skip", "--tmpdir", tmp_path / "work", "-c", count, shard)
    assert "left out: 9 samples" in ended.err
    assert os.listdir(tmp_path / "work") == []


def test_kept_folders_are_one_for_each_sample(wl: Any, shard: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    assert wl("xargs", "--keep", "--tmpdir", tmp_path / "work", "-c", "! grep -q 5 sample.txt", shard).code == 1
    found = sorted(path.read_text() for path in tmp_path.glob("work/*/*/sample.txt"))
    assert found[:6] == [f"txt{n}" for n in range(6)]


def test_a_shell_that_does_not_exist(wl: Any, shard: str) -> None:
    ended = wl("xargs", "--shell", "no-such-shell", "-c", "true", shard)
    assert ended.code == 1
    assert "cannot start: No such file or directory: no-such-shell" in ended.err


def test_commands_are_refused_in_secure_mode(wl: Any, shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_ALLOW_PIPE", "0")
    ended = wl("xargs", "-c", "true", shard)
    assert ended.code == 1
    assert "commands are refused" in ended.err


def test_two_files_for_one_field_are_an_error(wl: Any, shard: str) -> None:
    ended = wl("xargs", "-c", "cp sample.txt sample.TXT", shard)
    assert ended.code == 1
    assert "two files for one field" in ended.err


def test_a_key_that_ends_in_a_newline_stays(wl: Any, make_shard: Any, members: Any) -> None:
    shard = make_shard(files=[("a\n.txt", b"x")])
    assert members(wl("xargs", "-c", "true", shard).out) == members(shard)


def test_wrong_use_is_exit_2(wl: Any, shard: str) -> None:
    assert wl("xargs", shard).code == 2
    assert wl("xargs", "--script", "/nowhere", shard).code == 2
    assert "one command is needed" in wl("xargs", shard).err


# -- the seeds' lines ----------------------------------------------------------------------------------


def picture(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.tile(np.arange(40, dtype=np.uint8), (60, 3)).reshape(60, 40, 3)).save(buffer, kind)
    return buffer.getvalue()


def test_convert_png_to_jpeg(wl: Any, make_shard: Any, tmp_path: Path, names: Any) -> None:
    needs_programs_of("convert")
    shard = make_shard("input.tar", files=[(f"{i}.png", picture("PNG")) for i in range(2)])
    line = ["wl-xargs", "-c", "convert sample.png sample.jpeg && rm sample.png", shard, "-o", tmp_path / "output.tgz"]
    assert wl.old(*line).code == 0
    assert names(tmp_path / "output.tgz") == ["0.jpeg", "1.jpeg"]


def test_edge_detection_on_four_cores(wl: Any, make_shard: Any, tmp_path: Path, members: Any) -> None:
    needs_programs_of("mogrify")
    shard = make_shard("input.tar", files=[(f"{i}.jpeg", picture("JPEG")) for i in range(5)])
    assert wl.old("wl-xargs", "-P", "4", "-c", "mogrify -edge 5 sample.jpeg", shard, "-o", tmp_path / "o.tar").code == 0
    found = members(tmp_path / "o.tar")
    assert len(found) == 5
    assert all(data != picture("JPEG") for _, data in found)


def test_resizing_with_graphicsmagick(wl: Any, make_shard: Any, members: Any, tmp_path: Path) -> None:
    needs_programs_of("gm")
    shard = make_shard(
        "small.tar",
        files=[(f"{i}.{e}", picture("JPEG") if e == "jpg" else b"1") for i in range(3) for e in ("cls", "jpg")],
    )
    ended = wl.old("tarproc", "-p", "5", "-c", "ls; gm mogrify -size 256x256 *.jpg -resize 256x256", shard)
    assert ended.code == 0
    assert "sample.jpg" in ended.err
    (tmp_path / "by_hand.jpg").write_bytes(picture("JPEG"))
    by_hand = "gm mogrify -size 256x256 by_hand.jpg -resize 256x256"
    subprocess.run(by_hand.split(), cwd=tmp_path, check=True)
    expected = (tmp_path / "by_hand.jpg").read_bytes()
    assert expected != picture("JPEG")
    assert [data for name, data in members(ended.out) if name.endswith(".jpg")] == [expected] * 3


def test_tarproc_skips_by_default_and_tarp_proc_makes_several(wl: Any, shard: str, names: Any) -> None:
    ended = wl.old("tarproc", "-c", "! grep -q 5 sample.txt", shard)
    assert (ended.code, len(names(ended.out))) == (0, 18)
    made = wl.old("tarp", "proc", "-m", "cp sample.txt sample-000007.txt", "--slice", "1:2", shard, "-o", "-")
    assert names(made.out) == ["001/000007.txt"]
