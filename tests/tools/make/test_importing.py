"""`wl create` from files that other programs make."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import webdataset as wds
from cli_support import members, names, wl

__all__ = ["members", "names", "wl"]


def picture(kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 3)).save(stream, kind)
    return stream.getvalue()


def made(wl: Any, *words: object) -> list[dict[str, Any]]:
    ended = wl("create", *words, "-o", "out.tar")
    assert ended.code == 0, ended.err
    return [
        {name: value for name, value in sample.items() if name[:2] != "__" or name == "__key__"}
        for sample in wds.WebDataset("out.tar")
    ]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_json_lines(wl: Any) -> None:
    Path("photo.jpg").write_bytes(b"picture")
    rows = [
        {"__key__": "a", "cls": 7, "txt": "hello", "meta.json": {"x": [1]}, "@jpg": "photo.jpg"},
        {"txt": "b", "n": None},
    ]
    Path("in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert made(wl, "in.jsonl") == [
        {"__key__": "a", "cls": b"7", "txt": b"hello", "meta.json": b'{"x": [1]}', "jpg": b"picture"},
        {"__key__": "000000001", "txt": b"b"},
    ]


@pytest.mark.parametrize(("line", "message"), [("{oh", "line 1"), ("[1]", "line 1")])
def test_a_wrong_line_is_named(wl: Any, line: str, message: str) -> None:
    Path("in.jsonl").write_text(line)
    ended = wl("create", "in.jsonl", "-o", "out.tar")
    assert (ended.code, message in ended.err, Path("out.tar").exists()) == (1, True, False)


def test_parquet_with_images_as_hugging_face_stores_them(wl: Any) -> None:
    images = [{"bytes": picture(), "path": None}, {"bytes": picture("JPEG"), "path": "x/y.jpeg"}]
    import pyarrow as pa  # starts a thread
    import pyarrow.parquet as pq

    table = pa.table({"image": images, "label": [3, 4], "txt": ["a", "b"], "boxes": [[1.5], []]})
    pq.write_table(table, "in.parquet")
    first, second = made(wl, "in.parquet", "-k", "row{record:03d}")
    assert (first["__key__"], first["png"], first["label"], first["boxes"]) == ("row000", picture(), b"3", b"[1.5]")
    assert (second["jpeg"][:2], second["txt"]) == (b"\xff\xd8", b"b")


def test_a_zip_archive(wl: Any) -> None:
    with zipfile.ZipFile("in.zip", "w") as archive:
        for name in ("d/b.cls", "d/a.jpg", "README", "d/b.jpg", "d/a.cls", "d/.hidden.x"):
            archive.writestr(name, name)
    assert [(sample["__key__"], sample["cls"]) for sample in made(wl, "in.zip")] == [
        ("d/a", b"d/a.cls"),
        ("d/b", b"d/b.cls"),
    ]
    Path("bad.zip").write_bytes(b"nothing")
    ended = wl("create", "bad.zip", "-o", "out.tar", "--force")
    assert (ended.code, "bad.zip" in ended.err) == (1, True)


def test_a_file_without_a_name_in_a_zip_archive_is_left_out(wl: Any) -> None:
    with zipfile.ZipFile("in.zip", "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("zz.txt", "z")
    Path("in.zip").write_bytes(Path("in.zip").read_bytes().replace(b"zz.txt", b"\0z.txt"))
    assert made(wl, "in.zip") == [{"__key__": "a", "txt": b"a"}]


def test_an_existing_archive(wl: Any, make_shard: Any) -> None:
    shard = make_shard("in.tar", samples=3)
    assert [sample["txt"] for sample in made(wl, shard)] == [b"txt0", b"txt1", b"txt2"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_image_folder_with_metadata(wl: Any, kind: str) -> None:
    Path("photos/train").mkdir(parents=True)
    for name in ("a", "b"):
        Path(f"photos/train/{name}.png").write_bytes(picture())
    rows = [{"file_name": f"train/{name}.png", "text": f"a {name}"} for name in ("b", "a")]
    lines = (
        ["file_name,text", *(f"{row['file_name']},{row['text']}" for row in rows)]
        if kind == "csv"
        else map(json.dumps, rows)
    )
    Path(f"photos/metadata.{kind}").write_text("\n".join(lines))
    samples = made(wl, "photos")
    assert [(sample["__key__"], sample["png"]) for sample in samples] == [
        ("train/b", picture()),
        ("train/a", picture()),
    ]
    assert [json.loads(sample["json"]) for sample in samples] == [{"text": "a b"}, {"text": "a a"}]


def test_metadata_without_file_names_are_an_error(wl: Any) -> None:
    Path("photos").mkdir()
    Path("photos/metadata.csv").write_text("name,text\na.png,x\n")
    ended = wl("create", "photos", "-o", "out.tar")
    assert (ended.code, "file_name" in ended.err) == (1, True)


def test_samples_are_shuffled_the_same_way_for_a_seed(wl: Any) -> None:
    Path("in").mkdir()
    for number in range(20):
        for ending in ("txt", "cls"):
            Path(f"in/{number:02d}.{ending}").write_text(f"{number}")
    keys = {
        seed: [sample["__key__"] for sample in made(wl, "in", "--shuffle", *seed)] for seed in ((), ("--seed", "1"))
    }
    assert sorted(keys[()]) == [f"{number:02d}" for number in range(20)]
    assert keys[()] != keys["--seed", "1"] != sorted(keys[()])
    assert [sample["__key__"] for sample in made(wl, "in", "--shuffle", "--seed", "1")] == keys["--seed", "1"]
    assert wl("create", "--sort", "--shuffle", "in", "-o", "out.tar").code == 2


@pytest.mark.parametrize("ending", ["zip", "parquet"])
def test_a_file_that_is_not_there_is_named(wl: Any, ending: str) -> None:
    for name in (f"none.{ending}", f"http://localhost/a.{ending}"):
        ended = wl("create", name, "-o", "out.tar")
        assert (ended.code, name in ended.err) == (1, True)
