"""Arrays as the bytes of a field: what numpy and safetensors write."""

from __future__ import annotations

import io

import numpy as np
import torch

from webdataset.autodecode import Decoder, morehandlers
from webdataset.codecs import encode

ARRAY = np.arange(6, dtype="f4").reshape(2, 3)


def back(field: str, value: object) -> object:
    return Decoder([morehandlers])({"__key__": "k", field: encode(field, value)})[field]


def test_tensors_are_written_as_arrays():
    assert np.array_equal(back("npy", torch.arange(3)), np.arange(3))
    assert np.array_equal(back("ten", torch.arange(3))[0], np.arange(3))
    assert np.array_equal(back("npz", {"a": torch.arange(3)})["a"], np.arange(3))


def test_arrays_in_safetensors():
    assert torch.equal(back("safetensors", {"a": ARRAY.T})["a"], torch.from_numpy(ARRAY.T.copy()))


def test_npz_is_byte_for_byte_what_numpy_writes():
    stream = io.BytesIO()
    np.savez_compressed(stream, a=ARRAY, b=np.zeros(3))
    assert encode("npz", {"a": ARRAY, "b": np.zeros(3)}) == stream.getvalue()
