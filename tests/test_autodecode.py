"""Decoding samples: the order of handlers, what they are given, and how errors are told."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from webdataset import autodecode
from webdataset.autodecode import Continue, Decoder, basichandlers, gzfilter, handle_extension, imagehandler
from webdataset.codecs import decoders
from webdataset.errors import DecodingError, UnsafePickleError


def png(size: tuple[int, int] = (3, 2)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, "PNG")
    return stream.getvalue()


class Log:
    """A handler that remembers what it was given."""

    def __init__(self, answer=None):
        self.answer = answer
        self.seen = []

    def __call__(self, key, data):
        self.seen.append((key, data))
        return self.answer(key, data) if self.answer else None


def test_fields_are_decoded_by_their_last_extension():
    sample = {"__key__": "a", "__url__": b"u", "__x__": 5, "cls": b" 7\n", "a.b.json": b"[1]", "bin": b"\0"}
    sample["txt"] = b"hi"
    expected = {"__key__": "a", "__url__": "u", "__x__": 5, "cls": 7, "a.b.json": [1], "bin": b"\0", "txt": "hi"}
    assert Decoder([])(sample) == expected
    assert sample["cls"] == b" 7\n"


def test_what_always_stayed_bytes_stays_bytes():
    names = ["class", "count", "tenbin", "msgpack", "html", "safetensors", "bin", "TXT", "_cls.x", "jpg", ""]
    sample = dict.fromkeys(names, b"5")
    assert Decoder([])(sample) == sample


def test_special_keys_that_are_not_text_stay_bytes():
    assert Decoder([])({"__key__": b"\xff", "__cls__": b"7"}) == {"__key__": b"\xff", "__cls__": "7"}


def test_handlers_run_in_order_until_one_answers():
    first, second, third = Log(), Log(lambda key, data: "mine"), Log()
    assert Decoder([first, second, third])({"foo": b"x"}) == {"foo": "mine"}
    assert (first.seen, second.seen, third.seen) == ([(".foo", b"x")], [(".foo", b"x")], [])


def test_continue_changes_key_and_data_for_those_that_follow():
    renamed, last = Log(lambda key, data: Continue(".txt", b"new")), Log()
    assert Decoder([renamed, last])({"foo": b"x"}) == {"foo": "new"}
    assert last.seen == [(".txt", b"new")]
    assert Decoder([Log(lambda key, data: Continue(".zzz", b"new"))])({"foo": b"x"}) == {"foo": b"new"}


def test_pre_and_post_replace_the_defaults():
    pre, post = Log(), Log()
    data = gzip.compress(b"x")
    assert Decoder([], pre=[pre], post=[post])({"txt.gz": data}) == {"txt.gz": data}
    assert [key for key, _ in pre.seen + post.seen] == [".txt.gz", ".txt.gz"]
    assert Decoder([], pre=[], post=[])({"cls": b"7"}) == {"cls": b"7"}
    assert Decoder([], [pre], [post], "cls", True).only == {"cls"}


def test_gzipped_fields_keep_their_name():
    sample = {"txt.gz": gzip.compress(b"hi"), "json.gz": gzip.compress(b"[1]"), "gz": gzip.compress(b"x")}
    assert Decoder([])(sample) == {"txt.gz": "hi", "json.gz": [1], "gz": b"x"}
    assert gzfilter(".txt", b"") is None
    with pytest.raises(DecodingError, match="gzip"):
        Decoder([])({"txt.gz": b"not"})


@pytest.mark.parametrize("only", ["cls txt", {"cls", "txt"}, ["cls", "txt"]])
def test_only_limits_the_fields(only):
    sample = {"__key__": "a", "cls": b"7", "txt": b"x", "a.txt": b"y", "json": b"[]", "other": 5}
    expected = {"__key__": "a", "cls": 7, "txt": "x", "a.txt": b"y", "json": b"[]", "other": 5}
    assert Decoder([], only=only)(sample) == expected


def test_values_that_are_not_bytes_need_partial():
    assert Decoder([], partial=True)({"a": 3, "cls": b"7", "b": bytearray(b"x")}) == {"a": 3, "cls": 7, "b": b"x"}
    with pytest.raises(DecodingError, match="int") as raised:
        Decoder([])({"a": 3})
    assert raised.value.field == "a"
    assert "partial=True" in str(raised.value)


@pytest.mark.parametrize(
    ("extensions", "hits"),
    [
        ("png", [".png", ".seg.png", ".a.PNG", "png"]),
        (".png", [".png"]),
        ("jpg jpeg", [".seg.jpg", ".xseg.jpg", ".JPEG", ".jpg"]),
        ("seg.jpg", [".seg.jpg"]),
        ("SEG.JPG", [".seg.jpg"]),
        (".seg.png", [".seg.png"]),
        ("", []),
    ],
)
def test_handle_extension_compares_part_by_part(extensions, hits):
    handler = handle_extension(extensions, lambda data: True)
    keys = [".png", ".seg.png", ".a.PNG", "png", ".seg.jpg", ".xseg.jpg", ".JPEG", ".jpg", ".", ""]
    assert [key for key in keys if handler(key, b"")] == hits


def test_images_are_decoded_by_a_spec():
    sample = {"__key__": "a", "png": png(), "x.PNG": png(), "cls": b"1"}
    decoded = Decoder([imagehandler("rgb8")])(sample)
    assert decoded["png"].shape == decoded["x.PNG"].shape == (2, 3, 3)
    assert Decoder(["pil"])(sample)["png"].size == (3, 2)
    assert Decoder("torchrgb")(sample)["png"].shape == (3, 2, 3)
    assert imagehandler("rgb8", ["jpg"])(".png", png()) is None
    assert imagehandler("rgb8", "jpg png").extensions == {"jpg", "png"}


def gray_png(values: list[int], dtype: str = "u2") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.array([values], dtype)).save(stream, "PNG")
    return stream.getvalue()


def test_fields_have_specs_of_their_own():
    sample = {"__key__": "a", "png": gray_png([300]), "mask.png": gray_png([300]), "mask.json": b"[1]", "cls": b"1"}
    for name in ("mask", "mask.png", ".mask.png", "MASK.PNG"):
        decoded = Decoder(["l8"], fields={name: "pixels"})(sample)
        assert decoded["png"].tolist() == [[1]]
        assert decoded["mask.png"].tolist() == [[300]]
        assert (decoded["mask.json"], decoded["cls"]) == ([1], 1)
    assert Decoder([], fields={"png": "pixels"})(sample)["mask.png"] == sample["mask.png"]


def test_a_field_named_in_full_needs_no_image_extension():
    sample = {"mask": gray_png([300]), "mask.raw": gray_png([300]), "masks.png": gray_png([300])}
    decoded = Decoder([], fields={"mask": "pixels"})(sample)
    assert decoded["mask"].tolist() == [[300]]
    assert (decoded["mask.raw"], decoded["masks.png"]) == (sample["mask.raw"], sample["masks.png"])
    assert Decoder([], fields={"mask.raw": "pixels"})(sample)["mask.raw"].tolist() == [[300]]


def test_the_longer_name_of_a_field_wins():
    fields = {"mask": len, "mask.left.png": lambda data: "left", "mask.left": lambda data: "other"}
    sample = {"mask.png": b"abc", "mask.left.png": b"", "mask.left.x": b""}
    assert Decoder([], fields=fields)(sample) == {"mask.png": 3, "mask.left.png": "left", "mask.left.x": "other"}
    reverse = dict(reversed(fields.items()))
    assert Decoder([], fields=reverse)(sample) == Decoder([], fields=fields)(sample)


def test_a_field_is_decoded_by_a_function_of_its_bytes_or_by_a_handler():
    sample = {"n": b"12", "up.x": b"abc", "both": b"x", "none": b"y"}
    handler = handle_extension("x", bytes.upper)
    fields = {"n": int, "up": handler, "both": lambda key, data: (key, data), "none": lambda data: None}
    assert Decoder([], fields=fields)(sample) == {"n": 12, "up.x": b"ABC", "both": (".both", b"x"), "none": b"y"}
    assert Decoder([], fields={"n": imagehandler("l8")})({"n.png": gray_png([300])})["n.png"].tolist() == [[1]]


def test_a_gzipped_field_has_its_spec_too():
    sample = {"mask.png.gz": gzip.compress(gray_png([300]))}
    for name in ("mask", "mask.png"):
        assert Decoder(["l8"], fields={name: "pixels"})(sample)["mask.png.gz"].tolist() == [[300]]


def test_what_does_not_decode_a_field_is_refused_at_once():
    with pytest.raises(ValueError, match="'pixels'"):
        Decoder([], fields={"mask": "pixel"})
    for wrong in (5, None, True):
        with pytest.raises(TypeError, match=rf"mask={wrong}"):
            Decoder([], fields={"mask": wrong})


def test_a_decoder_with_fields_pickles():
    decoder = pickle.loads(pickle.dumps(Decoder(["l8"], fields={"mask": "pixels", "n": int})))
    decoded = decoder({"mask.png": gray_png([300]), "n": b"3"})
    assert (decoded["mask.png"].tolist(), decoded["n"]) == ([[300]], 3)
    assert "FieldHandler('mask', ImageHandler('pixels'))" in repr(decoder.handlers)


def test_a_failing_field_says_where():
    with pytest.raises(DecodingError) as raised:
        Decoder([], fields={"mask": "pixels"})({"__key__": "k", "mask.png": b"no image"})
    assert (raised.value.key, raised.value.field) == ("k", "mask.png")


def test_a_decoder_of_functions_decodes_a_dataset():
    decoder = Decoder(handle_extension("up", bytes.upper), autodecode.torch_video)
    samples = [{"__key__": "a", "up": b"x"}, {"__key__": "b", "up": b"y"}]
    assert [sample["up"] for sample in decoder(samples)] == [b"X", b"Y"]
    assert [sample["up"] for sample in decoder(iter(samples))] == [b"X", b"Y"]

    class Dataset:
        def map(self, function):
            return [function(sample) for sample in samples]

    assert [sample["up"] for sample in decoder(Dataset())] == [b"X", b"Y"]
    with pytest.raises(ValueError, match="dict"):
        decoder(5)


def test_what_is_not_a_handler_is_an_error_at_once():
    for handlers in ([5], [None]):
        with pytest.raises(ValueError, match="handler"):
            Decoder(handlers)
    with pytest.raises(ValueError, match="rgbx"):
        Decoder(["rgbx"])


def test_subclasses_may_replace_decode1():
    class Shouting(Decoder):
        def decode1(self, key, data):
            value = super().decode1(key, data)
            return value.upper() if isinstance(value, str) else value

    decoder = Shouting([], only="txt cls", partial=True)
    assert (decoder.only, decoder.partial) == ({"txt", "cls"}, True)
    assert decoder({"txt": b"a", "cls": b"1", "x": b"y"}) == {"txt": "A", "cls": 1, "x": b"y"}
    assert decoder.decode({"txt": b"a"}) == {"txt": "A"}


def test_decode1_takes_keys_with_and_without_a_dot():
    assert Decoder([]).decode1("cls", b"7") == Decoder([]).decode1(".cls", b"7") == 7


def test_a_program_can_add_a_decoder(monkeypatch):
    assert autodecode.decoders is decoders
    monkeypatch.setitem(autodecode.decoders, "xyz", len)
    assert Decoder([])({"xyz": b"abc"}) == {"xyz": 3}
    monkeypatch.setitem(autodecode.decoders, "cls", bytes.upper)
    assert Decoder([])({"cls": b"abc"}) == {"cls": b"ABC"}


def test_an_error_says_what_and_where():
    sample = {"__key__": "k", "__url__": "http://u:secret@host/a.tar?token=xyz", "x.json": b"[1,"}
    with pytest.raises(DecodingError) as caught:
        Decoder([])(sample)
    error = caught.value
    assert (error.url, error.key, error.k, error.field) == (sample["__url__"], "k", "x.json", "x.json")
    assert error.sample is sample
    assert isinstance(error.__cause__, json.JSONDecodeError)
    assert "secret" not in str(error)
    assert "xyz" not in str(error)
    assert "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("cls", b"x"),
        ("cls", b""),
        ("cls", b"5.0"),
        ("cls", b"9" * 5000),
        ("txt", b"\xff"),
        ("json", b""),
        ("json", b"[" * 200_000),
        ("json", b'{"a":' * 200_000),
        ("mp", b"\xc1"),
        ("mp", b"\x91" * 100_000),
        ("mp", b"\xdd\xff\xff\xff\xff"),
        ("cbor", b"\x81" * 100_000),
        ("cbor", b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"),
        ("cbor", b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff"),
        ("cbor", b""),
        ("npy", b""),
        ("npz", b""),
        ("pyd", b""),
        ("pyd", b"."),
        ("pth", b""),
        ("pth", b"PK\x03\x04"),
        ("ten", b"x"),
        ("png", b"x"),
        ("jpg", b"\xff\xd8\xff"),
        ("json.gz", b"\x1f\x8b"),
    ],
)
def test_bad_bytes_are_decoding_errors(field, data):
    decoder = Decoder([imagehandler("rgb8")])
    with pytest.raises(DecodingError) as caught:
        decoder({"__key__": "k", field: data})
    assert caught.value.__cause__ is not None
    assert len(str(caught.value)) < 600


HEADS = {
    "npy": b"\x93NUMPY\x01\x00",
    "npz": b"PK\x03\x04",
    "pyd": b"\x80\x04",
    "pth": b"PK\x03\x04",
    "png": b"\x89PNG\r\n\x1a\n",
    "jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF\0",
    "tiff": b"II*\0",
    "webp": b"RIFF\0\0\0\0WEBP",
    "gif": b"GIF89a",
    "ten": b"~TenBin~",
    "json.gz": b"\x1f\x8b\x08",
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*decoders, *HEADS]), st.binary(max_size=300), st.booleans())
def test_any_bytes_give_a_value_or_a_decoding_error(field, data, with_head):
    content = HEADS.get(field, b"") + data if with_head else data
    try:
        Decoder([imagehandler("rgb8"), autodecode.morehandlers])({"__key__": "k", field: content})
    except DecodingError as exn:
        line = str(exn)
        cause = exn.__cause__
    else:
        return
    assert len(line) > 10
    assert cause is not None


def seeds() -> dict[str, bytes]:
    from webdataset.codecs import encode

    array = np.arange(6, dtype="f4").reshape(2, 3)
    values = {
        "npy": array,
        "npz": {"a": array},
        "ten": [array],
        "pyd": {"a": array, "t": torch.ones(2)},
        "pth": {"t": torch.ones(2)},
        "json.gz": [1, 2],
        "mp": {"a": [1, 2.5]},
        "cbor": {"a": [1, 2.5]},
        "png": np.zeros((4, 4), np.uint8),
        "jpg": np.zeros((16, 16, 3), np.uint8),
        "webp": np.zeros((4, 4, 3), np.uint8),
        "tiff": np.zeros((4, 4), np.uint16),
        "deep.png": np.zeros((4, 4, 3), np.uint16),
        "pgm": np.zeros((4, 4), np.uint16),
        "safetensors": {"t": torch.ones(2)},
    }
    return {field: encode(field, value) for field, value in values.items()}


SEEDS = seeds()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SEEDS)), st.data())
def test_damaged_files_give_a_value_or_a_decoding_error(field, data):
    content = bytearray(SEEDS[field])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(content)))
    with contextlib.suppress(DecodingError):
        Decoder([imagehandler("rgb8"), autodecode.morehandlers])({"__key__": "k", field: bytes(content[:cut])})
    with contextlib.suppress(DecodingError):
        Decoder([imagehandler("pixels")])({"__key__": "k", field: bytes(content[:cut])})


class Point:
    def __init__(self, x):
        self.x = x


def test_allow_pickle_reaches_pickles_and_torch_files(monkeypatch):
    stream = io.BytesIO()
    torch.save(Point(3), stream)
    sample = {"__key__": "k", "pyd": pickle.dumps(Point(3)), "a.pth": stream.getvalue()}
    trusting = Decoder([], allow_pickle=True)
    assert [value.x for name, value in trusting(sample).items() if name != "__key__"] == [3, 3]
    for field in ("pyd", "a.pth"):
        with pytest.raises(DecodingError):
            Decoder([])({field: sample[field]})
    with pytest.raises(UnsafePickleError, match="Point"):
        Decoder([])({"pyd": sample["pyd"]})
    monkeypatch.setenv("WDS_ALLOW_PICKLE", "1")
    assert Decoder([])(sample)["a.pth"].x == 3


def test_torch_files_may_be_trusted_by_themselves(monkeypatch):
    stream = io.BytesIO()
    torch.save(Point(3), stream)
    assert autodecode.pytorch_weights_only is True
    monkeypatch.setitem(vars(autodecode), "pytorch_weights_only", False)  # undone, it is gone, and the setting counts
    assert Decoder([])({"pth": stream.getvalue()})["pth"].x == 3
    monkeypatch.undo()
    monkeypatch.setenv("WDS_PYTORCH_WEIGHTS_ONLY", "0")
    assert autodecode.pytorch_weights_only is False
    assert autodecode.torch_loads(stream.getvalue()).x == 3


def test_tensors_in_torch_files_come_back():
    stream = io.BytesIO()
    torch.save({"a": torch.arange(3), "b": [1, "x"]}, stream)
    value = autodecode.torch_loads(stream.getvalue())
    assert (value["a"].tolist(), value["b"]) == ([0, 1, 2], [1, "x"])


def test_a_decoder_pickles():
    decoder = pickle.loads(pickle.dumps(Decoder([imagehandler("rgb8"), handle_extension("up", bytes.upper)])))
    assert decoder({"cls": b"1", "up": b"a"}) == {"cls": 1, "up": b"A"}
    trusting = pickle.loads(pickle.dumps(Decoder([], allow_pickle=True)))
    assert trusting({"pyd": pickle.dumps(Point(3))})["pyd"].x == 3
    assert pickle.loads(pickle.dumps(autodecode.default_decoder))({"cls": b"1"}) == {"cls": 1}


def test_arrays_are_writable_and_npz_is_a_dict():
    stream = io.BytesIO()
    np.savez(stream, np.asfortranarray(np.ones((2, 3))), b=np.array(5))
    arrays = autodecode.npz_loads(stream.getvalue())
    assert list(arrays) == ["arr_0", "b"] or list(arrays) == ["b", "arr_0"]
    arrays["arr_0"][0, 0] = 2
    assert arrays["arr_0"].flags.f_contiguous


def test_basichandlers_alone():
    assert basichandlers(".x.cls", b"4") == basichandlers("cls", b"4") == 4
    assert basichandlers(".CLS", b"4") is None
    assert basichandlers("a.b/cls", b"4") is None


def test_importing_brings_in_no_heavy_package():
    script = "import sys, webdataset.autodecode; print({'numpy', 'torch', 'PIL', 'av'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_other_names_of_specs_work_but_are_not_in_the_table_that_programs_iterate_over():
    assert "rgbtorch" not in autodecode.imagespecs
    assert autodecode.imagehandler("rgbtorch").imagespec == "torchrgb"
    image = io.BytesIO()
    Image.new("RGB", (2, 3)).save(image, "png")
    for spec in [*autodecode.imagespecs, "rgbtorch"]:
        assert autodecode.imagehandler(spec)(".png", image.getvalue()) is not None
