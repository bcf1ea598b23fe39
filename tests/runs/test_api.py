"""Runs from Python: what the seeds wrote, and what becomes of functions that fail, die, hang or cannot be sent."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import runs_support
import webdataset as wds
from runs_support import calls_of, make_inputs
from webdataset.runs.api import RunError
from webdataset.runs.functions import FunctionError
from webdataset.runs.items import ItemsError


def test_every_shard_is_done_once(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 5)
    assert wds.distributed_map_unordered(runs_support.doubled, pairs, workers=2) == [3] * 5
    samples = list(wds.WebDataset(pairs[4][1], shardshuffle=False).decode())
    assert [sample["cls"] for sample in samples] == [0, 2, 4]
    assert wds.distributed_map_unordered(runs_support.doubled, pairs) == []
    assert [calls_of(source) for source, _ in pairs] == [1] * 5


def test_what_is_done_is_told_as_it_comes(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 3)
    told = list(wds.jobs(runs_support.fails_for_one, pairs, retries=1, workers=2))
    assert sorted((done.item, done.ok, done.result, done.record.attempt) for done in told) == [
        ("out-000", True, 3, 1),
        ("out-001", False, None, 2),
        ("out-002", True, 3, 1),
    ]
    assert [done.error for done in told if not done.ok] == ["ValueError: of my own"]
    assert not Path(pairs[1][1]).exists()


def test_a_changed_input_and_other_code_are_done_again(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 3)
    wds.distributed_map_unordered(runs_support.doubled, pairs)
    make_inputs(tmp_path, 1, samples=4)
    assert wds.distributed_map_unordered(runs_support.doubled, pairs) == [4]
    again = wds.distributed_map_unordered(runs_support.doubled, pairs, version="2")
    assert sorted(again) == [3, 3, 4]
    Path(pairs[2][1]).unlink()
    assert wds.distributed_map_unordered(runs_support.doubled, pairs, version="2") == [3]


def test_a_shard_that_kills_who_does_it_is_given_up(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 3)
    told = {done.item: done for done in wds.jobs(runs_support.kills_itself_for_one, pairs, retries=2)}
    assert told["out-000"].ok
    assert told["out-002"].ok
    assert not told["out-001"].ok
    assert told["out-001"].record.attempt == 3
    assert "signal 9" in told["out-001"].error


def test_a_shard_that_never_ends_is_given_up(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 3)
    told = {done.item: done for done in wds.jobs(runs_support.hangs_for_one, pairs, retries=0, timeout=6, workers=1)}
    assert [told[f"out-00{n}"].ok for n in range(3)] == [True, False, True]
    assert "6 seconds" in told["out-001"].error
    assert told["out-001"].record.status == "timeout"


def test_a_killed_attempt_leaves_nothing_under_the_name_of_the_output(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 2)
    assert wds.distributed_map_unordered(runs_support.kills_itself_once, pairs) == [3, 3]
    expected = tmp_path / "expected"
    expected.mkdir()
    others = make_inputs(expected, 2)
    wds.distributed_map_unordered(runs_support.doubled, others)
    assert [Path(out).read_bytes() for _, out in pairs] == [Path(out).read_bytes() for _, out in others]


def test_a_full_disk_is_tried_again_then_named(tmp_path: Path) -> None:
    (done,) = wds.jobs(runs_support.fills_the_disk, make_inputs(tmp_path, 1), retries=1)
    assert os.strerror(errno.ENOSPC) in done.error
    assert done.record.attempt == 2


def test_too_many_failures_stop_the_run(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 30)
    with pytest.raises(RunError, match="2 shards"):
        list(wds.jobs(runs_support.fills_the_disk, pairs, retries=0, max_failures=2, workers=1))


def test_shards_that_failed_are_an_error_in_the_end(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"1 of 3 .*out-001.*ValueError: of my own"):
        wds.distributed_map_unordered(runs_support.fails_for_one, make_inputs(tmp_path, 3), retries=0)


def test_a_function_that_does_not_pickle(tmp_path: Path) -> None:
    lock = multiprocessing.Lock()

    def locked(source: str, target: str) -> None:
        with lock:
            runs_support.doubled(source, target)

    with pytest.raises(FunctionError, match="locked") as raised:
        wds.jobs(locked, make_inputs(tmp_path, 1), on="local")
    assert raised.value.hint


def test_two_shards_with_one_output(tmp_path: Path) -> None:
    pairs = [(source, str(tmp_path / "out.tar")) for source, _ in make_inputs(tmp_path, 2)]
    with pytest.raises(ItemsError, match="'out'"):
        wds.jobs(runs_support.doubled, pairs)


SEED = """
    import io
    import multiprocessing as mp
    import numpy as np
    from PIL import Image
    from webdataset import TarWriter, WebDataset, distributed_map_unordered

    if __name__ == "__main__":
        for i in range(2):
            with TarWriter(f"original-{i:04d}.tar") as sink:
                for k in range(3):
                    image = Image.fromarray(np.zeros((40, 40, 3), np.uint8))
                    sink.write(dict(__key__=f"{i}{k}", jpg=image, cls=k))

    def process_sample(sample):
        return dict(__key__=sample["__key__"],
                      png=sample["jpg"].resize((256, 256)),
                      cls=str(sample["cls"]))

    pool = mp.Pool(2)

    def process_shard(input_shard, output_shard):
        processed = pool.imap_unordered(process_sample, WebDataset(input_shard, decoder="pil"))
        with TarWriter(output_shard) as sink:
            for sample in processed: sink.write(sample)

    shards = [(f"original-{i:04d}.tar", f"rescaled-{i:04d}.tar")
                  for i in range(2)]

    distributed_map_unordered(process_shard, shards)
    print(sorted(sample["__key__"] for sample in WebDataset("rescaled-0001.tar")))
"""


def test_the_seeds_program_with_its_pool_runs_as_it_stands(tmp_path: Path) -> None:
    """Its function uses a pool of this process, so it can run only here."""
    program = tmp_path / "seed.py"
    program.write_text(textwrap.dedent(SEED))
    ended = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout == "['10', '11', '12']\n", ended.stderr
    assert "this process" in ended.stderr


SCRIPT = """
    import webdataset as wds

    FACTOR = 3

    def tripled(source, target):
        with wds.TarWriter(target) as sink:
            for sample in wds.WebDataset(source, shardshuffle=False).decode():
                sink.write({"__key__": sample["__key__"], "cls": FACTOR * sample["cls"]})
        return FACTOR

    pairs = [("in-000.tar", "out-000.tar")]
    print(wds.distributed_map_unordered(tripled, pairs))
"""


def test_a_function_of_a_script_without_a_guard(tmp_path: Path) -> None:
    make_inputs(tmp_path, 1)
    program = tmp_path / "script.py"
    program.write_text(textwrap.dedent(SCRIPT))
    for expected in ("[3]\n", "[]\n"):
        ended = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.stdout == expected, ended.stderr
    program.write_text(textwrap.dedent(SCRIPT).replace("FACTOR = 3", "FACTOR = 4"))
    ended = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout == "[4]\n", "a constant that the function uses is part of its code"


def test_progress_is_a_bar_of_tqdm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pairs = make_inputs(tmp_path, 2)
    assert wds.distributed_map_unordered(runs_support.doubled, pairs, progress=True) == [3, 3]
    assert "100%" in capfd.readouterr().err
    lock = threading.Lock()  # which cannot be sent to another process
    with pytest.warns(UserWarning, match="this process"):
        told = wds.jobs(lambda source, target: lock.locked(), pairs, progress=True)
    assert len(list(told)) == 2
    assert "100%" in capfd.readouterr().err


def test_an_output_that_is_called_as_another_one_leaves_that_done(tmp_path: Path) -> None:
    (first, _), (second, _), (third, _) = make_inputs(tmp_path, 3)
    pairs = [(first, f"{tmp_path}/out/x.tar")]
    assert wds.distributed_map_unordered(runs_support.doubled, pairs) == [3]
    pairs += [(second, f"{tmp_path}/more/x.tar"), (third, f"{tmp_path}/out/x.tgz")]
    assert {done.outputs for done in wds.jobs(runs_support.doubled, pairs)} == {(target,) for _, target in pairs[1:]}
    assert [calls_of(source) for source, _ in pairs] == [1, 1, 1]
