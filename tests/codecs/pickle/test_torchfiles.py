"""What torch.save wrote: tensors and plain data come back, the rest is refused with the switch that allows it."""

from __future__ import annotations

import datetime
import io
import zipfile
from typing import Any

import pytest
import torch

import webdataset as wds
from webdataset.codecs.pickle.torchfiles import tensors_in


def decoded(data: bytes, **options: Any) -> Any:
    return wds.Decoder([], **options)({"__key__": "a", "pth": data})["pth"]


@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_and_plain_data_come_back(legacy: bool) -> None:
    value = {"a": torch.arange(6).reshape(2, 3), "b": [1, "x", None], "c": torch.eye(3).to_sparse()}
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=not legacy)
    found = decoded(stream.getvalue())
    assert torch.equal(found["a"], value["a"])
    assert (found["b"], torch.equal(found["c"].to_dense(), torch.eye(3))) == ([1, "x", None], True)


def test_other_objects_need_the_programs_word() -> None:
    value = datetime.date(2024, 1, 2)
    stream = io.BytesIO()
    torch.save(value, stream)
    with pytest.raises(wds.UnsafePickleError, match=r"datetime\.date"):
        decoded(stream.getvalue())
    assert decoded(stream.getvalue(), allow_pickle=True) == value


def test_a_file_of_something_else_is_an_error() -> None:
    with pytest.raises(wds.DecodingError):
        decoded(b"garbage" * 100)


def test_a_zip_that_expands_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", "1000")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(10_000))
    with pytest.raises(wds.DecodingError, match="10000"):
        decoded(stream.getvalue())


def test_every_tensor_is_found_once() -> None:
    one, other = torch.zeros(2), torch.ones(3)
    assert {id(tensor) for tensor in tensors_in([{"a": [one, (other,)]}, one])} == {id(one), id(other)}
