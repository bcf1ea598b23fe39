"""Every command line of the documents that WebDataset began with, run as it is written there.

Buckets are a double of Google's store, web servers a real nginx that stands in for all of them as a proxy; gsutil,
kujob and run-ocr are scripts of a few lines. What comes out is looked at with GNU tar.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from servers.gcs import GcsServer
from servers.nginx import Nginx
from servers.programs import needs_programs_of
from tests_support import SCRIPTS, tar_bytes

STAND_INS = {
    "gsutil": 'test "$1" = cat && path=${2#gs://} && name=${path#*/} && '
    'exec curl -s -f "$STORAGE_EMULATOR_HOST/storage/v1/b/${path%%/*}/o/$name?alt=media"',
    "kujob": 'shift 3; for i in 0000 0001; do "${@//\\{\\}/$i}" || exit; done',
    "run-ocr": 'for page; do wc -c < "$page" > "${page%.png}.txt"; done',
}
"""Programs that a machine need not have. kujob runs two of the thousand jobs."""

Bash = Callable[[str], bytes]


@pytest.fixture
def bash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gcs_server: GcsServer, nginx: Nginx
) -> Callable[[str], bytes]:
    """Runs a line in a folder of its own, with all our programs installed; the result is its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.environment()["STORAGE_EMULATOR_HOST"])
    monkeypatch.setenv("http_proxy", nginx.url(""))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "bin").mkdir()
    for name, script in STAND_INS.items():
        Path("bin", name).write_text(f"#!/bin/bash\n{script}\n")
        Path("bin", name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{SCRIPTS}:{os.environ['PATH']}")

    def run(line: str) -> bytes:
        needs_programs_of(line)
        ended = subprocess.run(["bash", "-c", line], capture_output=True, timeout=100, check=False)
        assert ended.returncode == 0, ended.stderr.decode()
        assert b"Traceback" not in ended.stderr
        return ended.stdout

    return run


def picture(kind: str, seed: int = 0, side: int = 24) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def files(samples: int, field: str = "jpg") -> list[tuple[str, bytes]]:
    """Pictures, of which the field says the kind, and classes from 1."""
    kind = "PNG" if field == "png" else "JPEG"
    pairs = [((f"{i:04d}.{field}", picture(kind, i)), (f"{i:04d}.cls", b"%d" % (i + 1))) for i in range(samples)]
    return sorted(file for pair in pairs for file in pair)


def tgz(samples: int, field: str = "jpg") -> bytes:
    return gzip.compress(tar_bytes(files(samples, field)))


def content(archive: bytes, member: str, *flags: str) -> bytes:
    """What GNU tar takes out of an archive."""
    told = subprocess.run(["tar", *flags, "-xOf", "-", member], input=archive, capture_output=True, check=True)
    return told.stdout


def listed(archive: bytes, *flags: str) -> list[str]:
    told = subprocess.run(["tar", *flags, "-tf", "-"], input=archive, capture_output=True, check=True)
    return told.stdout.decode().splitlines()


def put(server: GcsServer, url: str, data: bytes) -> None:
    bucket, name = url.removeprefix("gs://").split("/", 1)
    server.gcs.buckets.setdefault(bucket, {})[name] = data


# -- WebLoader, 2019 -----------------------------------------------------------------------------------


def test_subtract_1_from_each_class(bash: Bash, nginx: Nginx) -> None:
    nginx.put("input.tgz", tgz(3))
    bash("""wl-map -c '_["cls"] -= 1' http://server/input.tgz -o output.tgz""")
    made = Path("output.tgz").read_bytes()
    assert listed(made, "-z") == [name for name, _ in files(3)]
    assert [content(made, f"{i:04d}.cls", "-z") for i in range(3)] == [b"0", b"1", b"2"]
    assert content(made, "0002.jpg", "-z") == picture("JPEG", 2)


def test_convert_png_samples_to_jpeg_samples(bash: Bash, gcs_server: GcsServer) -> None:
    put(gcs_server, "gs://bucket1/input.tgz", tgz(2, "png"))
    gcs_server.gcs.buckets["bucket2"] = {}
    bash(
        "wl-xargs -c 'convert sample.png sample.jpeg && rm sample.png' gs://bucket1/input.tgz -o gs://bucket2/output.tgz"
    )
    made = gcs_server.gcs.buckets["bucket2"]["output.tgz"]
    assert listed(made, "-z") == ["0000.cls", "0000.jpeg", "0001.cls", "0001.jpeg"]
    assert Image.open(io.BytesIO(content(made, "0001.jpeg", "-z"))).format == "JPEG"


def test_edge_detection_using_4_cores(bash: Bash, gcs_server: GcsServer) -> None:
    put(gcs_server, "gs://bucket1/input.tgz", tgz(6, "jpeg"))
    gcs_server.gcs.buckets["bucket2"] = {}
    bash("wl-xargs -P 4 -c 'mogrify -edge 5 sample.jpeg' gs://bucket1/input.tgz -o gs://bucket2/output.tgz")
    made = gcs_server.gcs.buckets["bucket2"]["output.tgz"]
    Path("by_hand.jpeg").write_bytes(picture("JPEG", 5))
    subprocess.run(["mogrify", "-edge", "5", "by_hand.jpeg"], check=True)
    assert listed(made, "-z") == [name for name, _ in files(6, "jpeg")]
    assert content(made, "0005.jpeg", "-z") == Path("by_hand.jpeg").read_bytes() != picture("JPEG", 5)


def test_datasets_are_simply_tar_files(bash: Bash, gcs_server: GcsServer) -> None:
    put(gcs_server, "gs://bucket/data.tgz", tgz(8))
    lines = bash("gsutil cat gs://bucket/data.tgz | tar -ztvf - | sed 10q").decode().splitlines()
    assert [line.split()[-1] for line in lines] == [name for name, _ in files(8)][:10]


def test_the_test_tools_look_at_a_shard(bash: Bash, gcs_server: GcsServer) -> None:
    put(gcs_server, "gs://bucket/data.tgz", tgz(3))
    assert bash("wl-cat gs://bucket/data.tgz jpg 1") == picture("JPEG", 1)
    assert bash("wl-extract -f '__key__ cls' gs://bucket/data.tgz") == b"0000\t1\n0001\t2\n0002\t3\n"
    assert json.loads(bash("wl-extract -F json -f cls -c 1 gs://bucket/data.tgz")) == {"cls": 1}
    assert bash("wl-dump -f jpg -c 2 gs://bucket/data.tgz") == b"out-000000.jpg\nout-000001.jpg\n"
    assert Path("out-000001.jpg").read_bytes() == picture("JPEG", 1)
    told = bash("wl-info gs://bucket/data.tgz").decode()
    assert "24x24x3" in told.replace(" ", "")
    assert "uint8" in told
    told = bash("wl-test --batchsize 2 gs://bucket/data.tgz").decode()
    assert "samples/s" in told


# -- the tutorial, 2019 --------------------------------------------------------------------------------


def test_a_tgz_from_a_web_server_through_tar(bash: Bash, nginx: Nginx) -> None:
    nginx.put("lpr-imagenet/imagenet_train-0000.tgz", tgz(4))
    url = "http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz"
    lines = bash(f"unset GZIP; curl -s {url} | tar -ztvf - | sed 5q").decode().splitlines()
    assert len(lines) == 5


@pytest.fixture
def small(bash: Bash) -> bytes:
    """small.tar, as the tutorial has made it."""
    Path("small.tar").write_bytes(tar_bytes(files(10)))
    return Path("small.tar").read_bytes()


def test_ten_samples_of_a_stream(bash: Bash, gcs_server: GcsServer) -> None:
    put(gcs_server, "gs://lpr-imagenet/imagenet_train-0000.tgz", tgz(50))
    bash("gsutil cat gs://lpr-imagenet/imagenet_train-0000.tgz | tarscat -c 10 > small.tar")
    assert bash("tar tvf small.tar | fgrep .jpg | wc -l").strip() == b"10"
    assert listed(Path("small.tar").read_bytes()) == [name for name, _ in files(50)][:20]


def test_tar2tsv_tabulates(bash: Bash, small: bytes) -> None:
    rows = [f"{i:04d}\t{i + 1}" for i in range(10)]
    assert bash("tar2tsv -f cls small.tar").decode().splitlines() == ["__key__\tcls", *rows]


def test_tarsplit_makes_shards_of_a_folder(bash: Bash) -> None:
    folder = Path("mdata/imagenet-raw/train")
    folder.mkdir(parents=True)
    for name, data in files(30):
        (folder / name).write_bytes(data)
    line = "tar -cf - --sort=name -C /mdata/imagenet-raw train | tarsplit -s 1e9 -o imagenet_train --maxshards 2"
    bash(line.replace("/mdata", "mdata"))
    assert listed(Path("imagenet_train-000000.tar").read_bytes()) == [f"train/{name}" for name, _ in files(30)]
    bash(line.replace("/mdata", "mdata").replace("1e9", "1e4"))
    first, second = (Path(f"imagenet_train-00000{i}.tar").read_bytes() for i in range(2))
    assert not Path("imagenet_train-000002.tar").exists()
    both = listed(first) + listed(second)
    assert both == [f"train/{name}" for name, _ in files(30)][: len(both)]


def test_tarshow_shows_two_samples(bash: Bash, small: bytes) -> None:
    shown = bash("tarshow  -c 2 small.tar").decode()
    assert [line.split("\t")[0].strip() for line in shown.splitlines()] == ["__key__", "cls", "jpg", ""] * 2
    assert "'0000'" in shown
    assert "'0001'" in shown


def test_tarproc_resizes_pictures_on_5_cores(bash: Bash, small: bytes) -> None:
    bash("tarproc -p 5 -c 'ls; gm mogrify -size 256x256 *.jpg -resize 256x256' small.tar > out.tar")
    made = Path("out.tar").read_bytes()
    assert sorted(listed(made)) == sorted(listed(small))
    for i in range(10):
        Path("by_hand.jpg").write_bytes(picture("JPEG", i))
        subprocess.run(["gm", "mogrify", "-size", "256x256", "by_hand.jpg", "-resize", "256x256"], check=True)
        assert content(made, f"{i:04d}.jpg") == Path("by_hand.jpg").read_bytes() != picture("JPEG", i)
        assert content(made, f"{i:04d}.cls") == b"%d" % (i + 1)


def test_shards_are_processed_by_jobs(bash: Bash, gcs_server: GcsServer) -> None:
    for i in range(2):
        put(gcs_server, f"gs://g1000/scanned-{i:04d}.tar", tar_bytes(files(3, "png")))
    bash(
        "kujob -s '{0000..0999}' -- tarproc -p 16 -c 'run-ocr *.png' gs://g1000/scanned-{}.tar -o gs://g1000/ocr-{}.tar"
    )
    made = gcs_server.gcs.buckets["g1000"]["ocr-0001.tar"]
    assert sorted(listed(made)) == sorted([*(name for name, _ in files(3, "png")), *(f"{i:04d}.txt" for i in range(3))])
    assert int(content(made, "0002.txt")) == len(picture("PNG", 2))


def test_the_other_programs_of_the_list(bash: Bash, small: bytes) -> None:
    """tarcat concatenates, tarcreate takes a plan, tarfirst finds, tarpcat shuffles, tarsort sorts by key."""
    Path("other.tar").write_bytes(tar_bytes([("x.cls", b"5")]))
    assert listed(bash("tarcat small.tar other.tar")) == [*listed(small), "x.cls"]
    Path("photo.jpg").write_bytes(picture("JPEG"))
    Path("plan.csv").write_text("__key__,@jpg,cls\na,photo.jpg,3\n")
    assert content(bash("tarcreate plan.csv"), "a.jpg") == picture("JPEG")
    assert bash("tarfirst -S '_[\"cls\"] == 4' small.tar") == picture("JPEG", 3)
    shuffled = bash("tarpcat -p 2 -s 1000 small.tar other.tar")
    assert sorted(listed(shuffled)) == sorted([*listed(small), "x.cls"])
    Path("shuffled.tar").write_bytes(shuffled)
    assert listed(bash("tarsort shuffled.tar")) == [*listed(small), "x.cls"]


# -- the README, 2022 ----------------------------------------------------------------------------------


def test_openimages_through_curl(bash: Bash, nginx: Nginx) -> None:
    nginx.put("nvdata-openimages/openimages-train-000000.tar", tar_bytes(files(8)))
    url = "http://storage.googleapis.com/nvdata-openimages/openimages-train-000000.tar"
    names = bash(f"curl -s {url} | tar tf - | sed 10q").decode().splitlines()
    assert names == [name for name, _ in files(8)][:10]
    piped = bash(f"wl ls --samples 'pipe:curl -L -s {url} || true'")
    assert [line.split(b"\t")[0] for line in piped.splitlines()] == [b"%04d" % i for i in range(8)]
    bash(f"curl -L -s {url} > openimages-train-000000.tar")
    assert bash("wl cat openimages-train-000000.tar cls 7") == b"8"


def test_gsutil_and_curl_as_pipes(bash: Bash, gcs_server: GcsServer, nginx: Nginx) -> None:
    put(gcs_server, "gs://bucket/file", tar_bytes(files(2)))
    nginx.put("file", tar_bytes(files(2)))
    for url in ("pipe:gsutil cat gs://bucket/file", "pipe:curl -s -L http://server/file"):
        assert listed(bash(f"wl concat '{url}'")) == [name for name, _ in files(2)]


def test_a_dataset_made_by_tar(bash: Bash) -> None:
    Path("dataset").mkdir()
    for name, data in files(3):
        Path("dataset", name).write_bytes(data)
    bash("tar --sort=name -cf dataset.tar dataset/")
    assert bash("wl extract -f cls dataset.tar").decode() == (
        "__key__\tcls\ndataset/0000\t1\ndataset/0001\t2\ndataset/0002\t3\n"
    )


def test_tarp_create_follows_a_recipe(bash: Bash) -> None:
    Path("source-name-1").write_bytes(picture("JPEG"))
    Path("recipe").write_text(
        "a/1.jpg source-name-1\na/1.txt text:something\na/1.up pipe:echo something | tr a-z A-Z\n"
    )
    bash("tarp create -o made.tar recipe")
    made = Path("made.tar").read_bytes()
    assert sorted(listed(made)) == ["a/1.jpg", "a/1.txt", "a/1.up"]
    assert content(made, "a/1.jpg") == picture("JPEG")
    assert content(made, "a/1.txt") == b"something"
    assert content(made, "a/1.up") == b"SOMETHING\n"
    assert bash("tarp create - -o - < recipe") == made


def test_tarp_cat_proc_sort_and_split(bash: Bash, small: bytes) -> None:
    assert listed(bash("tarp cat -o - small.tar")) == listed(small)
    assert content(bash("tarp proc -c 'echo more >> sample.cls' -o - small.tar"), "0003.cls") == b"4more\n"
    shuffled = bash("tarp sort -s __random__ -o - small.tar")
    assert sorted(listed(shuffled)) == listed(small)
    Path("shuffled.tar").write_bytes(shuffled)
    assert listed(bash("tarp sort -s __key__ -o - shuffled.tar")) == listed(small)
    bash("tarp split -c 4 -o part-%06d.tar small.tar")
    parts = [listed(path.read_bytes()) for path in sorted(Path().glob("part-*.tar"))]
    assert [name for part in parts for name in part] == listed(small)
    assert [len(part) for part in parts] == [8, 8, 4]
