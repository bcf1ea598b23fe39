"""What a dataset holds, in numbers."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from webdataset.display.describing import describe


def picture(width: int, height: int, mode: str = "RGB", kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height), 200).save(stream, kind)
    return stream.getvalue()


def stored_array(values: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(values))
    return stream.getvalue()


def test_pictures_are_described_by_shape_type_range_and_how_they_are_stored() -> None:
    samples = [{"__key__": "a", "png": picture(4, 3, "L")}, {"__key__": "b", "png": picture(8, 3)}]
    facts = describe(samples).fields["png"].as_dict()
    assert facts["types"] == {"image": 2}
    assert facts["dtypes"] == {"uint8": 2}
    assert facts["modes"] == {"PNG L": 1, "PNG RGB": 1}
    assert facts["shape_range"] == ["3 x 4-8 x 3"]
    assert facts["range"] == [0.0, 200.0]


def test_arrays_are_described_by_shape_type_and_range() -> None:
    facts = describe([{"npy": stored_array([[1.0, -2.5]])}]).fields["npy"].as_dict()
    assert (facts["types"], facts["dtypes"]) == ({"array": 1}, {"float64": 1})
    assert facts["shapes"] == [{"shape": [1, 2], "samples": 1}]
    assert facts["range"] == [-2.5, 1.0]


def test_numbers_and_texts_are_described_by_range_and_length() -> None:
    description = describe([{"cls": b"3", "txt": b"ab"}, {"cls": b"9", "txt": b"abcd"}])
    assert description.fields["cls"].as_dict()["range"] == [3.0, 9.0]
    assert description.fields["txt"].as_dict()["lengths"] == [2, 4]
    assert description.fields["txt"].as_dict()["bytes"] == {"min": 2, "mean": 3.0, "max": 4, "total": 6.0}


def test_samples_with_other_fields_are_counted_apart() -> None:
    description = describe([{"a": b"1"}, {"a": b"1"}, {"a": b"1", "b": b"2"}])
    assert description.as_dict()["field_sets"] == [
        {"fields": ["a"], "samples": 2},
        {"fields": ["a", "b"], "samples": 1},
    ]


def test_a_field_that_cannot_be_decoded_is_counted_and_ends_nothing() -> None:
    facts = describe([{"json": b"{"}, {"json": b"{}"}]).fields["json"].as_dict()
    assert facts["types"] == {"unreadable": 1, "dict": 1}
    assert "JSONDecodeError" in next(iter(facts["errors"]))


def test_a_pickle_in_the_data_is_not_run(tmp_path: object) -> None:
    facts = describe([{"pyd": b"cos\nsystem\n(S'exit 1'\ntR."}]).fields["pyd"].as_dict()
    assert facts["types"] == {"unreadable": 1}


def test_nothing_is_decoded_if_not_wanted() -> None:
    assert describe([{"json": b"{"}], decode=None).fields["json"].as_dict()["types"] == {"bytes": 1}


def test_strange_arrays_do_no_harm() -> None:
    for values in (np.array([]), np.array(["a"]), np.array([1j]), np.array([np.nan]), np.array(True)):
        assert describe([{"npy": stored_array(values)}]).samples == 1


def test_keys_rates_and_durations_are_told() -> None:
    import wave

    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(4 * 4000))
    description = describe([{"__url__": "a.tar", "wav": stream.getvalue(), "json": b'{"score": 1, "label": "a"}'}])
    facts = description.as_dict()
    assert facts["shards"] == 1
    assert facts["fields"]["json"]["keys"] == {"score": 1, "label": 1}
    assert (facts["fields"]["wav"]["rates"], facts["fields"]["wav"]["seconds"]) == ({"8,000 Hz": 1}, [0.5, 0.5])


def test_without_pillow_headers_tell_format_and_size(make_shard: Any, tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (30, 20)).save(stream, "PNG")
    shard = make_shard(files=[("a.png", stream.getvalue()), ("a.cls", b"1")])
    hidden = "import sys; sys.modules['PIL'] = sys.modules['simplejpeg'] = None\n"
    for command, told in (("info", "PNG RGB"), ("show", "PNG 30x20 RGB")):
        code = f"{hidden}from webdataset.cli import main; sys.exit(main(['{command}', {shard!r}]))"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (ended.returncode, told in ended.stdout) == (0, True), ended.stderr


def test_images_that_fail_for_the_same_reason_are_counted_together() -> None:
    found = describe([{"__key__": str(number), "jpg": b"no image"} for number in range(3)]).fields["jpg"]
    ((reason, count),) = found.errors.items()
    assert (reason.partition(":")[0], count) == ("UnidentifiedImageError", 3)
