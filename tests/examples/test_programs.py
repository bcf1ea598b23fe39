"""The training programs run on what --demo makes, and learn from it."""

from __future__ import annotations

import http.server
import importlib.util
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.loaded import EXAMPLES, ROOT, loaded, run
from frameworks.accounts import run_ranks
from servers.object_stores import ObjectServer
from tests_support import python
from webdataset.shardlists import expand_urls

SMALL = "--steps 2 --batch 4 --size 32 --classes 10"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in ("demos", "environment", "tinydata"))


@pytest.fixture(scope="module")
def image_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    with loaded(EXAMPLES / "demos.py") as demos:
        return str(demos.image_shards(str(tmp_path_factory.mktemp("images")), count=120))


def main_of(name: str, *arguments: str) -> Any:
    with loaded(EXAMPLES / name) as program:
        return program.main(list(arguments))


CALL = """
import importlib.util, json, os, sys
path, *words = sys.argv[1:]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("program", path)
program = sys.modules["program"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
print(json.dumps(program.main(words), default=float))
"""


def result_of(name: str, *arguments: str) -> Any:
    """What a training gives, in a process of its own: the first optimizer in a process takes three seconds."""
    done = python("-c", CALL, EXAMPLES / name, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# -- each kind of data -----------------------------------------------------------------------------


def test_videos_are_told_apart_by_where_things_move() -> None:
    assert result_of("video-clips.py", "--demo", "--steps", "25") > 0.5  # one in four by chance


def test_sounds_are_told_apart_by_their_spectrum() -> None:
    assert result_of("audio.py", "--demo", "--steps", "25") > 0.5


def test_a_recording_of_another_rate_is_told() -> None:
    with pytest.raises(ValueError, match="--rate"):
        main_of("audio.py", "--demo", "--steps", "1", "--rate", "16000")


def test_texts_in_buckets_have_little_padding() -> None:
    loss, padding = result_of("text-tokens.py", "--demo", "--steps", "12")
    _, without_buckets = result_of("text-tokens.py", "--demo", "--steps", "12", "--no-buckets")
    assert loss < 5  # log(258) is 5.6
    assert padding < 0.2 < without_buckets


def test_masks_are_learnt_from_the_same_crops_as_images() -> None:
    assert result_of("segmentation.py", "--demo", "--steps", "15") > 0.4


# -- frameworks ------------------------------------------------------------------------------------


@contextmanager
def proxy(folder: str) -> Iterator[tuple[str, list[str]]]:
    """A web proxy that has the files of every server in one folder: its address, and what it was asked for."""
    asked: list[str] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = Path(folder, self.path.rpartition("/")[2]).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_the_resnet_of_pytorch_trains_on_shards_of_a_server_behind_a_proxy(image_shards: str) -> None:
    with proxy(str(Path(image_shards).parent)) as (address, asked):
        words = ["http://shards.test/demo-{000..001}.tar", "--http-proxy", address, "--workers", "1"]
        loss = result_of("pytorch-resnet50.py", *words, *SMALL.split())
    assert math.isfinite(loss)
    assert set(asked) == {"http://shards.test/demo-000.tar", "http://shards.test/demo-001.tar"}


@pytest.mark.parametrize("store", ["moto_server", "gcs_server"])
@pytest.mark.usefixtures("nobody")
def test_the_resnet_of_pytorch_trains_on_shards_of_a_bucket(
    store: str, image_shards: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: ObjectServer = request.getfixturevalue(store)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = server.bucket()
    for path in expand_urls(image_shards):
        server.store(f"{bucket}/{Path(path).name}", Path(path).read_bytes())
    shards = f"{bucket}/{Path(image_shards).name}"
    assert shards.startswith(("s3://", "gs://"))
    assert math.isfinite(result_of("pytorch-resnet50.py", shards, "--workers", "1", *SMALL.split()))


@pytest.mark.framework("keras")
def test_the_resnet_of_keras_trains_on_torch(image_shards: str) -> None:
    done = python(EXAMPLES / "keras-resnet50.py", image_shards, *SMALL.split(), "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert " torch " in done.stdout


@pytest.mark.framework("jax")
def test_jax_gets_its_batches_ahead_and_needs_no_torch() -> None:
    done = run(EXAMPLES / "jax-images.py", "--demo", "--steps", "15", "--lr", "0.1")
    assert done.returncode == 0, done.stderr
    losses = [float(each) for each in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert losses[-1] < losses[0]


@pytest.mark.framework("jax")
def test_batches_for_jax_are_on_their_way_before_they_are_asked_for() -> None:
    program = f"""if True:
        import sys
        sys.path.insert(0, {str(EXAMPLES)!r})
        import importlib.util
        spec = importlib.util.spec_from_file_location("jax_images", {str(EXAMPLES / "jax-images.py")!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        taken = []
        batches = module.prefetched((taken.append(n) or n for n in range(5)), ahead=2)
        first = next(batches)
        print(int(first), list(taken), [int(each) for each in batches], "torch" in sys.modules)
    """
    done = run(Path("-c"), program)
    assert done.stdout == "0 [0, 1] [1, 2, 3, 4] False\n", done.stderr


def test_a_stream_without_epochs_trains_on_two_ranks(image_shards: str, tmp_path: Path) -> None:
    words = [
        image_shards,
        *SMALL.split(),
        "--arch",
        "resnet10",
        "--workers",
        "1",
        "--shuffle",
        "50",
        "--val-every",
        "6",
    ]
    words += ["--val", image_shards, "--checkpoint", "stream.pt", "--steps"]
    runs = [{"world": 2, "arguments": [*words, "12"]}, {"world": 2, "arguments": [*words, "18"]}]
    shown = run_ranks("ddp-stream.py", tmp_path, runs)
    assert re.findall(r"step (\d+)/", shown) == ["6", "12", "18"]  # the second run goes on from the checkpoint


def test_a_demo_on_ranks_starts_them_itself() -> None:
    done = python(EXAMPLES / "uneven.py", "--demo", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("7 batches, 39 samples") == 2


def test_the_example_without_a_framework_has_a_demo() -> None:
    done = run(EXAMPLES / "numpy_loop.py", "--demo", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert "26 steps, 13 in an epoch" in done.stdout


def test_dali_reads_the_same_both_ways_or_is_asked_for() -> None:
    done = run(EXAMPLES / "dali.py", "--demo")
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None:
        assert done.returncode == 1
        assert "nvidia-dali" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        reader, external = re.findall(r": (600 images, mean \S+ labels \d+)", done.stdout)
        assert reader == external


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_says_how_it_is_called(path: Path) -> None:
    assert path.read_text().startswith('"""')
    text = path.read_text()
    assert f"{path.name} --demo" in text or path.name == "digits.py"  # which is a demo itself
    assert text.endswith(("main()\n", "sys.exit(main())\n"))


@pytest.mark.parametrize("name", ["pytorch-resnet50.py", "video-clips.py", "audio.py", "text-tokens.py"])
def test_help_names_the_kinds_of_urls(name: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main_of(name, "--help")
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "s3://" in shown
    assert "--demo" in shown


@pytest.mark.parametrize("program", [ROOT / "pytorch-resnet50.py", EXAMPLES / "segmentation.py"])
def test_a_program_without_shards_says_what_it_does_and_trains_on_its_demo(program: Path) -> None:
    done = python(program.name, "--steps", "1", cwd=program.parent)
    assert done.returncode == 0, done.stderr
    what, how, *_ = done.stdout.splitlines()
    assert program.read_text().startswith(f'"""{what}')
    assert f'{program.name} "train-' in how


@pytest.mark.framework("keras")
def test_the_resnet_of_keras_runs_from_the_root_without_shards() -> None:
    words = ["keras-resnet50.py", "--steps", "1", "--epochs", "1", "--batch", "4"]
    done = python(*words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert " torch " in done.stdout


def test_the_resnet_of_pytorch_learns() -> None:
    done = python(EXAMPLES / "pytorch-resnet50.py", "--demo", "--workers", "1")
    assert done.returncode == 0, done.stderr
    losses = [float(each) for each in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert len(losses) == 25
    assert statistics.mean(losses[-5:]) < 0.7 * statistics.mean(losses[:5])


# -- which Python ----------------------------------------------------------------------------------


def bare_python(folder: Path) -> Path:
    """An environment without any package."""
    venv.create(folder, symlinks=True)
    return folder / "bin/python"


def clone(folder: Path) -> Path:
    """The programs where there is no .venv yet."""
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "venv"))
    for name in ("pytorch-resnet50.py", "keras-resnet50.py"):
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.mark.parametrize("name", ["pytorch-resnet50.py", "keras-resnet50.py"])
def test_a_python_without_packages_says_how_they_are_installed(tmp_path: Path, name: str) -> None:
    words = [bare_python(tmp_path / "bare"), name]
    done = subprocess.run(words, cwd=clone(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "webdataset" in done.stderr
    assert "./setup-venv" in done.stderr


def test_a_program_goes_on_under_the_python_of_the_environment(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    (clone(tmp_path) / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    words = [python, "pytorch-resnet50.py", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: pytorch-resnet50.py")


def test_the_page_names_every_program() -> None:
    page = (ROOT / "docs/programs.md").read_text()
    assert [path.name for path in PROGRAMS if f"examples/{path.name})" not in page] == []
