"""Ray Data: rows are samples, tasks are shards or parts of them, and what is written is read again."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from tests_support import tar_bytes
from webdataset.raydata import ShardPart, _blocks, _samples, shard_parts


def picture(number: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), number, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Two shards of ten samples, one with an index."""
    for shard in range(2):
        files = [
            (f"{shard}{i:02d}.{name}", data)
            for i in range(10)
            for name, data in (("cls", b"%d" % i), ("png", picture(i)))
        ]
        (tmp_path / f"train-{shard}.tar").write_bytes(tar_bytes(files))
    wds.index(str(tmp_path / "train-0.tar"), where="beside")
    return [str(tmp_path / f"train-{shard}.tar") for shard in range(2)]


def test_many_shards_are_dealt_whole(shards: list[str]) -> None:
    assert shard_parts(["a", "b", "c"], 2) == [[ShardPart("a"), ShardPart("b")], [ShardPart("c")]]
    assert shard_parts(shards, 2) == [[ShardPart(shards[0])], [ShardPart(shards[1])]]


def test_an_index_splits_a_shard(shards: list[str]) -> None:
    parts = shard_parts(shards, 8)
    assert [(part.start, part.stop) for (part,) in parts] == [(0, 2), (2, 5), (5, 7), (7, 10), (0, None)]
    keys = [sample["__key__"] for part in parts for sample in _samples(part)]
    assert keys == [f"{shard}{i:02d}" for shard in range(2) for i in range(10)]
    assert [part.rows for (part,) in parts] == [2, 3, 2, 3, None]


def test_fields_that_only_some_samples_have_are_null() -> None:
    pytest.importorskip("pyarrow")
    rows = [{"__key__": "a", "txt": b"x", "__url__": "u"}, {"__key__": "b", "cls": 3}]
    (table,) = _blocks(lambda parts: iter(rows), [], None)  # type: ignore[arg-type]
    assert table.to_pylist() == [
        {"__key__": "a", "txt": b"x", "__url__": "u", "cls": None},
        {"__key__": "b", "txt": None, "__url__": None, "cls": 3},
    ]


VALUES = [
    [{"a": 1}, {"b": [1, 2.5, None]}, None, {}],
    [[1, 2], [3, 4]],
    [[1, "x"], 3, "y", True, None],
    [1, True],
    [1.5, True, 2],
    [b"x", "x"],
    [2**70, 1],
    [7, None, 2],
]


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_values_stay_what_they_are(values: list[Any]) -> None:
    pytest.importorskip("ray.data")
    rows = [{"json": value} for value in values]
    (table,) = _blocks(lambda parts: iter(rows), [], None)  # type: ignore[arg-type]
    found = [row["json"] for row in table.to_pylist()]
    assert (found, [*map(type, found)]) == (values, [*map(type, values)])


def test_an_output_without_a_place_for_the_number() -> None:
    with pytest.raises(ValueError, match=r"\{\}"):
        wds.write_ray(None, "out.tar")


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(wds.MissingPackageError, match=r"webdataset\[ray\]"):
        wds.read_ray("a.tar")


def test_a_dataset_that_never_ends_is_refused(shards: list[str]) -> None:
    pytest.importorskip("ray.data")
    with pytest.raises(TypeError, match="to_ray"):
        wds.WebDataset(shards, resampled=True).to_ray()


PROGRAM = """
    import sys
    import ray
    import numpy as np
    import webdataset as wds

    address, folder = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False

    raw = wds.read_ray(folder + "/train-{0..1}.tar", override_num_blocks=4)
    decoded = wds.read_ray(folder + "/train-{0..1}.tar", decode="rgb8", fields={"image": "png", "label": "cls"})
    batch = decoded.take_batch(4)
    assert batch["image"].shape == (4, 4, 6, 3), batch["image"].shape
    assert set(batch) == {"__key__", "__url__", "image", "label"}
    assert {row["__url__"] for row in raw.take_all()} == {folder + f"/train-{n}.tar" for n in range(2)}

    pairs = wds.WebDataset(folder + "/train-{0..1}.tar", shardshuffle=False).decode("rgb8").to_tuple("cls", "png;jpg")
    named = pairs.shuffle(10).map_tuple(lambda cls: cls + 1).to_ray().take_batch(2)
    assert set(named) == {"cls", "png;jpg"}, named
    turned = pairs.map(lambda pair: pair[::-1]).to_ray()
    assert sorted(row["item_1"] for row in turned.take_all()) == sorted(list(range(10)) * 2)
    Point = __import__("collections").namedtuple("Point", "x y")
    assert pairs.map(lambda pair: Point(*pair)).to_ray().schema().names == ["x", "y"]

    told = wds.read_ray(folder + "/json-{0..1}.tar", decode=[])
    told = {row["__key__"]: row["json"] for row in told.repartition(1).take_all()}
    assert told == {"0": {"a": 1}, "1": {"b": [1, "x"]}, "2": [1, 2], "3": 7}, told

    wds.write_ray(raw, folder + "/copy-{}.tar")
    wds.write_ray(raw, folder + "/joined-{}.tar", min_rows_per_shard=20)
    wds.write_ray(ray.data.from_items([{"cls": 7, "npy": np.arange(3)}]), folder + "/made-{}.tar")
    print("done")
"""


@pytest.mark.xdist_group("ray")
def test_rows_are_samples(ray_address: str, shards: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    for shard, values in enumerate([[b'{"a": 1}', b'{"b": [1, "x"]}'], [b"[1, 2]", b"7"]]):
        files = [(f"{2 * shard + number}.json", value) for number, value in enumerate(values)]
        (tmp_path / f"json-{shard}.tar").write_bytes(tar_bytes(files))
    words = [sys.executable, str(program), ray_address, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.stdout == "done\n", told.stderr[-3000:]
    copies = sorted(str(path) for path in tmp_path.glob("copy-*.tar"))
    assert samples(copies) == samples(shards)
    (joined,) = tmp_path.glob("joined-*.tar")
    assert samples([str(joined)]) == samples(shards)
    (made,) = wds.WebDataset([str(path) for path in tmp_path.glob("made-*.tar")], shardshuffle=False).decode()
    assert (made["cls"], made["npy"].tolist()) == (7, [0, 1, 2])


def samples(urls: list[str]) -> dict[str, Any]:
    found = wds.WebDataset(urls, shardshuffle=False)
    return {sample["__key__"]: (sample["cls"], sample["png"]) for sample in found}


OVERWRITING = """
    import sys
    import warnings
    import ray
    import webdataset as wds

    address, folder, overwrite = sys.argv[1:]
    overwrite = {"True": True, "False": False}.get(overwrite, overwrite)
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = [{"cls": n} for n in range(6)]
    dataset = ray.data.from_items(rows, override_num_blocks=6).filter(lambda row: row["cls"] % 2 == 0)
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", wds.ShardWarning)
            wds.write_ray(dataset.materialize(), folder + "/out-{}.tar", overwrite=overwrite)
        print([str(one.message) for one in heard if isinstance(one.message, wds.ShardWarning)])
    except wds.errors.ExistingShardsError as error:
        print(type(error).__name__)
"""


@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("overwrite", ["True", "False", "warn"])
def test_shards_of_an_older_set_are_not_left_between_new_ones(ray_address: str, tmp_path: Path, overwrite: str) -> None:
    old = [tmp_path / f"out-{number:06d}.tar" for number in range(8)]
    for path in old:
        path.write_bytes(tar_bytes([("old.cls", b"99")]))
    wds.index(str(old[0]), where="beside")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(OVERWRITING))
    words = [sys.executable, str(program), ray_address, str(tmp_path), overwrite]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    shards = sorted(str(path) for path in tmp_path.glob("out-*.tar"))
    values = sorted(sample["cls"] for sample in wds.WebDataset(shards, shardshuffle=False))
    if overwrite == "True":
        assert values == [b"0", b"2", b"4"]
        assert told.stdout == "[]\n"
        assert len(list(tmp_path.glob("out-*"))) == 3, "nor is an index of an old one left"
    elif overwrite == "False":
        assert values == [b"99"] * 8
        assert told.stdout == "ExistingShardsError\n"
    else:
        assert values == [b"0", b"2", b"4", *[b"99"] * 5]
        assert "5 shards" in told.stdout
