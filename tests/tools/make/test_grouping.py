"""Which files `wl create` takes for one sample, and which it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from cli_support import wl
from webdataset.errors import SampleError
from webdataset.tools.make.creating import from_folder, from_recipe

__all__ = ["wl"]

CAMERA = [f"IMG.{number:04d}.jpg" for number in range(30, 42)]
UNRELATED = {
    "a camera": CAMERA,
    "a camera with captions": [name for photo in CAMERA for name in (photo, photo.replace("jpg", "txt"))],
    "a camera beside others": [*CAMERA, *(f"{number}.jpg" for number in range(100))],
    "versions": ["v1.5-a.png", "v1.5-b.png"],
    "dates": ["photo 2020.01.01.jpg", "photo 2020.01.02.jpg"],
    "days of two years": [
        f"{year}.{month:02d}.{day:02d}.jpg" for year in (2020, 2021) for month in range(1, 13) for day in (1, year % 28)
    ],
    "all days of two years": [
        f"{year}.{month:02d}.{day:02d}.jpg" for year in (2021, 2022) for month in range(1, 13) for day in range(1, 29)
    ],
    "times of day": [f"2024-05-{day:02d} 12.{day:02d}.{second:02d}.jpg" for day in range(1, 9) for second in (1, 59)],
    "articles": [f"{month}.{number:05d}.pdf" for month in range(2101, 2105) for number in range(month, 9000, 1000)],
    "names of people": ["john.doe.jpg", "john.smith.jpg", "mary.jane.jpg", "mary.poppins.jpg", "bob.jpg"],
    "a name that all begin with": ["photo.paris.jpg", "photo.london.jpg", "photo.rome.jpg", "a.jpg"],
    "an input and a target of one sample, for all one knows": ["a.input.png", "a.target.png"],
    "photos and videos": ["IMG.0030.jpg", "IMG.0031.mp4", "IMG.0032.png"],
    "a photo and the text of another": ["IMG.0030.jpg", "IMG.0031.txt"],
    "times of photos and videos": ["2024-05-01 12.30.jpg", "2024-05-01 12.45.mp4", "2024-05-01 13.00.jpg"],
    "names of people in many formats": ["john.doe.jpg", "john.smith.png", "mary.jane.jpg", "bob.png"],
    "names with blanks": ["Dr. Jones.jpg", "Dr. Smith.jpg"],
    "classes with as many photos each": [f"{name}.{number}.jpg" for name in ("cat", "dog") for number in range(20)],
    "numbers that may be views or photos": [f"{key}.{number}.jpg" for key in "abc" for number in range(6)],
    "numbers that may be frames or photos": [f"{key}.{number:03d}.jpg" for key in range(9) for number in range(20)],
    "class folders": [f"{name}/IMG.{number}.jpg" for name, number in (("cat", 1), ("cat", 2), ("dog", 7), ("dog", 8))],
}
RELATED = {
    "captions": (["a.jpg", "a.json", "b.jpg", "b.json"], 2),
    "input and target of many": ([f"{key}.{name}.png" for key in "abc" for name in ("input", "target")], 3),
    "a mask": (["a.jpg", "a.seg.png"], 1),
    "parts of one image": (["a.jpg", "a.seg.png", "a.depth.npy", "a.json"], 1),
    "all at once": (
        ["a.jpg", "a.json", "c.jpg", "c.seg.png", "x.tar.gz"]
        + [f"{key}.{name}" for key in "bd" for name in ("input.png", "target.npy")],
        5,
    ),
    "views": ([f"{key}.view{view}.jpg" for key in "abc" for view in range(6)], 3),
    "frames beside a record": (
        [f"a.{frame}.jpg" for frame in range(9)] + ["b.0.jpg", "b.1.jpg", "a.json", "b.json"],
        2,
    ),
    "masks of what is seen": (["1.jpg", "1.dog.png", "1.cat.png", "2.jpg", "2.car.png", "2.tree.png", "3.jpg"], 3),
    "masks of the same kind": (["1.png", "1.dog.png", "1.cat.png", "2.png", "2.car.png", "2.bus.png"], 2),
    "several records": (["a.jpg", "a.boxes.json", "a.meta.json", "b.jpg", "b.meta.json"], 2),
    "captions in languages": (["a.jpg", "a.en.txt", "a.de.txt", "b.jpg", "b.fr.txt", "b.en.txt", "c.jpg"], 3),
    "class folders": (["v1.5/cat/1.jpg", "v1.5/cat/2.jpg", "v1.5/dog.2/1.jpg"], 3),
    "two sources": ([f"views/{i}.{v}.png" for i in (1, 2) for v in ("left", "right")] + ["a/1.jpg", "a/1.txt"], 3),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(folder: str, names: Iterable[str]) -> str:
    for name in names:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def samples_of(name: str = "out.tar") -> dict[str, set[str]]:
    samples = list(wds.WebDataset(name))
    found = {sample["__key__"]: {field for field in sample if field[:2] != "__"} for sample in samples}
    assert len(found) == len(samples)
    return found


@pytest.mark.parametrize("names", UNRELATED.values(), ids=UNRELATED)
def test_unrelated_files_are_not_merged(wl: Any, names: list[str]) -> None:
    ended = wl("create", put("in", names), "-o", "out-%02d.tar", "--maxcount", 1)
    assert ended.code == 1
    assert "--key last-dot" in ended.err
    assert sum(repr(name) in ended.err for name in names) == 2
    assert [path.name for path in Path().iterdir()] == ["in"]


@pytest.mark.parametrize("names", UNRELATED.values(), ids=UNRELATED)
def test_keys_that_end_at_the_last_dot_keep_files_apart(wl: Any, names: list[str]) -> None:
    ended = wl("create", put("in", names), "-o", "out.tar", "--key", "last-dot")
    assert ended.code == 0, ended.err
    assert len(samples_of()) == len({name.rpartition(".")[0] for name in names})


@pytest.mark.parametrize(("names", "samples"), RELATED.values(), ids=RELATED)
def test_files_of_one_sample_stay_together(wl: Any, names: list[str], samples: int) -> None:
    ended = wl("create", put("in", names), "-o", "out.tar")
    assert ended.code == 0, ended.err
    assert len(samples_of()) == samples
    assert f"of {len(names)} files" in ended.err


def test_a_key_before_the_last_dot_has_no_dots(wl: Any) -> None:
    put("in", ["v1.5/IMG.0030.jpg", "v1.5/IMG.0030.json", "v1.5/IMG.0031.JPG"])
    assert wl("create", "in", "-o", "out.tar", "--key", "last-dot").code == 0
    assert samples_of() == {"v1.5/IMG_0030": {"jpg", "json"}, "v1.5/IMG_0031": {"jpg"}}


def test_keys_that_differ_only_in_dots_are_an_error(wl: Any) -> None:
    put("in", ["IMG.1.jpg", "IMG_1.json"])
    ended = wl("create", "in", "-o", "out.tar", "--key", "last-dot")
    assert (ended.code, Path("out.tar").exists()) == (1, False)
    assert "'IMG.1.jpg' and 'IMG_1.json'" in ended.err


def test_a_key_that_is_neither_a_place_nor_a_format_is_a_mistake(wl: Any) -> None:
    ended = wl("create", put("in", ["a.jpg"]), "-o", "out.tar", "--key", "middle-dot")
    assert (ended.code, Path("out.tar").exists()) == (2, False)
    assert "last-dot" in ended.err


def test_the_user_may_say_that_files_belong_together(wl: Any) -> None:
    assert wl("create", put("in", CAMERA), "-o", "out.tar", "--key", "first-dot").code == 0
    assert samples_of() == {"IMG": {name[4:] for name in CAMERA}}


def recipe(names: list[str]) -> str:
    Path("recipe").write_text("".join(f"{name} text:{name}\n" for name in names))
    return "recipe"


def zipped(names: list[str]) -> str:
    with zipfile.ZipFile("in.zip", "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return "in.zip"


def tarred(names: list[str]) -> str:
    subprocess.run(["tar", "-cf", "in.tar", "-C", put("files", names), *sorted(names)], check=True)
    return "in.tar"


def with_metadata(names: list[str]) -> str:
    put("photos", names)
    Path("photos/metadata.csv").write_text("\n".join(["file_name,text", *(f"{name},hello" for name in names)]))
    return "photos"


SOURCES = [recipe, zipped, tarred, with_metadata]


@pytest.mark.parametrize("source", SOURCES)
def test_files_are_told_apart_wherever_their_names_come_from(wl: Any, source: Any) -> None:
    made = source(CAMERA)
    ended = wl("create", made, "-o", "out.tar")
    assert (ended.code, Path("out.tar").exists()) == (1, False)
    assert "'IMG.0030.jpg', 'IMG.0031.jpg' and 10 more" in ended.err
    assert wl("create", made, "-o", "out.tar", "--key", "last-dot").code == 0
    assert [*samples_of()] == [f"IMG_{number:04d}" for number in range(30, 42)]
    assert [sample["jpg"].decode() for sample in wds.WebDataset("out.tar")] == CAMERA


def test_all_sources_are_checked_before_one_is_written(wl: Any) -> None:
    put("good", ["a.jpg", "b.jpg"])
    ended = wl("create", "good", put("bad", CAMERA), "-o", "out-%02d.tar", "--maxcount", 1)
    assert (ended.code, sorted(path.name for path in Path().iterdir())) == (1, ["bad", "good"])


def test_the_end_of_a_source_and_the_beginning_of_the_next_are_no_sample(wl: Any) -> None:
    put("photos", ["1.jpg", "2.jpg"])
    put("texts", ["2.txt", "3.txt"])
    ended = wl("create", "photos", "texts", "-o", "out.tar")
    assert (ended.code, Path("out.tar").exists()) == (1, False)
    assert "'2.jpg' and '2.txt'" in ended.err
    assert wl("create", "photos", "texts", "-o", "out.tar", "--sort").code == 0
    assert samples_of() == {"1": {"jpg"}, "2": {"jpg", "txt"}, "3": {"txt"}}
    put("more", ["1.jpg"])
    assert wl("create", "texts", "more", "-o", "out.tar", "--force").code == 0
    assert samples_of() == {"2": {"txt"}, "3": {"txt"}, "1": {"jpg"}}


def test_an_archive_from_a_pipe_is_checked_and_written() -> None:
    archive = Path(tarred(CAMERA))
    words = [sys.executable, "-m", "webdataset", "create", "--from", "tar", "-", "-o", "out.tar"]
    for more, code in (([], 1), (["--key", "last-dot"], 0)):
        with archive.open("rb") as stream:
            ended = subprocess.run([*words, *more], stdin=stream, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
    assert len(samples_of()) == 12


@pytest.mark.parametrize("kind", ["csv", "jsonl", "lines"])
def test_a_key_of_a_row_that_readers_would_cut_is_an_error(wl: Any, kind: str) -> None:
    keys = ["v1.5", "v1.6"]
    texts = {
        "csv": ["__key__,txt", *(f"{key},x" for key in keys)],
        "jsonl": [json.dumps({"__key__": key, "txt": "x"}) for key in keys],
        "lines": [f"{key}\tx" for key in keys],
    }
    Path(f"in.{kind}").write_text("\n".join(texts[kind]))
    words = ["--from", "lines", "--fields", "__key__ txt"] if kind == "lines" else []
    ended = wl("create", f"in.{kind}", *words, "-o", "out.tar")
    assert (ended.code, Path("out.tar").exists()) == (1, False)
    assert "key v1.5" in ended.err
    assert wl("create", f"in.{kind}", *words, "-o", "out.tar", "--key", "last-dot").code == 0
    assert samples_of() == {"v1_5": {"txt"}, "v1_6": {"txt"}}


JUNK = ["Thumbs.db", "c/desktop.ini", "__MACOSX/c/._a.jpg", ".DS_Store", "c/._a.jpg", ".git/config.txt", "README"]


def in_folder(names: list[str]) -> str:
    return put("in", names)


@pytest.mark.parametrize(("source", "words"), [(in_folder, []), (in_folder, ["--classes"]), (zipped, []), (tarred, [])])
def test_files_of_the_desktop_are_left_out_and_counted(wl: Any, source: Any, words: list[str]) -> None:
    ended = wl("create", source(["c/a.jpg", "c/b.jpg", *JUNK]), *words, "-o", "out.tar", "--json")
    assert ended.code == 0, ended.err
    assert [*samples_of()] == ["c/a", "c/b"]
    assert json.loads(ended.err.splitlines()[-1])["members_dropped"] == len(JUNK)


def test_python_gets_the_same_error() -> None:
    with pytest.raises(SampleError) as error:
        from_folder(put("in", CAMERA))
    assert (error.value.url, error.value.key) == ("in", "IMG")
    with pytest.raises(SampleError):
        from_recipe(f"{name} text:x" for name in CAMERA)
    assert next(iter(from_folder("in", key_end="last-dot"))).name == "IMG_0030.jpg"
