"""Descriptions as text and as an image."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from webdataset.display.describing import Description, describe
from webdataset.errors import MissingPackageError
from webdataset.tools.inspect.histograms import lines, plot


def picture(width: int, height: int, mode: str = "RGB", kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height), 200).save(stream, kind)
    return stream.getvalue()


def test_the_text_has_a_block_for_each_field() -> None:
    told = "\n".join(lines(describe([{"cls": b"1"}, {"cls": b"1"}, {"cls": b"4"}])))
    shown = [line.split() for line in told.splitlines()]
    assert shown[0] == ["3", "samples,", "3", "bytes"]
    assert ["cls"] in shown
    assert ["values", "1", "..", "4,", "mean", "2"] in shown
    assert shown[-2:] == [["1", "2", "#" * 40], ["4", "1", "#" * 20]]


def test_a_picture_of_histograms_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"webdataset\[plot\]"):
        plot(Description(), "a.png")


def test_a_picture_of_histograms_is_a_picture_with_something_in_it(tmp_path: Path) -> None:
    samples = [
        {"__key__": str(i), "cls": b"%d" % (i % 7), "png": picture(4 + i % 9, 3), "txt": b"x" * i} for i in range(60)
    ]
    path = tmp_path / "histograms.png"
    plot(describe(samples), str(path))
    with Image.open(path) as drawn:
        assert (drawn.format, drawn.width) == ("PNG", 700)
        assert drawn.height == 750
        colours = drawn.convert("RGB").getcolors(1 << 20)
    assert colours is not None
    assert (255, 255, 255) in [colour for _, colour in sorted(colours)[-2:]]
    assert sum(n for n, colour in colours if colour[2] > colour[0] + 60) > 10_000


def test_a_picture_of_nothing_is_a_picture(tmp_path: Path) -> None:
    plot(Description(), str(tmp_path / "a.png"))
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.width == 700
