"""From samples to members."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from webdataset import writer
from webdataset.errors import EncodingError, ShardError, ShardWarning
from webdataset.writer import TarWriter, make_encoder


def members_of(archive: bytes | Path) -> dict[str, bytes]:
    data = archive.read_bytes() if isinstance(archive, Path) else archive
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def written(*samples: dict, **options) -> dict[str, bytes]:
    stream = io.BytesIO()
    with TarWriter(stream, **options) as sink:
        for sample in samples:
            sink.write(sample)
    return members_of(stream.getvalue())


def sample(i: int) -> dict:
    return {"__key__": f"{i:06d}", "txt": f"text {i}", "cls": i}


def test_meta_fields_are_left_out():
    assert written({"__key__": "a", "__url__": "u", "_x": b"y", "__index__": 3, "txt": "x"}) == {"a.txt": b"x"}


def test_meta_fields_are_kept_on_request():
    kept = written({"__key__": "a", "__url__": "u", "_x": b"y", "txt": "x"}, keep_meta=True)
    assert kept == {"a.__url__": b"u", "a._x": b"y", "a.txt": b"x"}


def test_meta_fields_that_are_kept_must_be_text_or_bytes():
    with pytest.raises(EncodingError) as raised:
        written({"__key__": "a", "__index__": 3}, keep_meta=True)
    assert (raised.value.key, raised.value.field) == ("a", "__index__")


def test_fields_that_differ_in_case_alone_are_an_error_as_readers_refuse_them():
    with pytest.raises(EncodingError, match="'TXT'") as raised:
        written({"__key__": "a", "TXT": "1", "txt": "2"})
    assert (raised.value.key, raised.value.field) == ("a", "txt")
    assert written({"__key__": "a", "TXT": "1", "cls": 2, "_txt": "3"}) == {"a.TXT": b"1", "a.cls": b"2"}


def test_a_sample_may_be_any_mapping():
    from collections import ChainMap

    assert written(ChainMap({"__key__": "a"}, {"txt": "x"})) == {"a.txt": b"x"}


def test_the_sample_itself_is_not_changed():
    given_sample = {"__key__": "a", "cls": 3}
    written(given_sample)
    assert given_sample == {"__key__": "a", "cls": 3}


def test_values_are_encoded_by_their_extension():
    got = written({"__key__": "a", "json": {"x": 1}, "cls": 7, "txt": "é", "b.cls": 2, "any": "text", "raw": b"\0"})
    assert got == {
        "a.json": b'{"x": 1}',
        "a.cls": b"7",
        "a.txt": "é".encode(),
        "a.b.cls": b"2",
        "a.any": b"text",
        "a.raw": b"\0",
    }


def test_a_gz_field_is_compressed():
    got = written({"__key__": "a", "json.gz": {"x": 1}, "txt.gz": b"raw"})
    assert json.loads(gzip.decompress(got["a.json.gz"])) == {"x": 1}
    assert gzip.decompress(got["a.txt.gz"]) == b"raw"


@pytest.mark.parametrize("encoder", [False, None])
def test_without_an_encoder_only_bytes_are_accepted(encoder):
    assert written({"__key__": "a", "txt": b"x", "y": bytearray(b"z")}, encoder=encoder) == {"a.txt": b"x", "a.y": b"z"}
    with pytest.raises(ValueError, match="txt"):
        written({"__key__": "a", "txt": "x"}, encoder=encoder)


def test_without_an_encoder_gz_fields_stay_as_they_are():
    packed = gzip.compress(b"x")
    assert written({"__key__": "a", "txt.gz": packed}, encoder=False) == {"a.txt.gz": packed}


def test_an_encoder_may_be_a_function_of_the_sample():
    got = written({"__key__": "a", "n": 1}, encoder=lambda s: {"__key__": s["__key__"] + "2", "n": b"one"})
    assert got == {"a2.n": b"one"}


def test_an_encoder_may_be_a_dict():
    assert written({"__key__": "a", "n": 1, "txt": b"x"}, encoder={"n": lambda n: b"one"}) == {
        "a.n": b"one",
        "a.txt": b"x",
    }
    with pytest.raises(EncodingError) as raised:
        written({"__key__": "a", "cls": 1}, encoder={"n": bytes})
    assert (raised.value.key, raised.value.field) == ("a", "cls")


@pytest.mark.parametrize("encoder", ["rgb", 5])
def test_any_other_encoder_is_refused(encoder):
    with pytest.raises(ValueError, match="encoder"):
        TarWriter(io.BytesIO(), encoder=encoder)


def test_an_encoder_added_to_the_table_is_used_at_once(monkeypatch):
    with TarWriter(io.BytesIO()) as sink:
        monkeypatch.setitem(writer.default_handlers, "zzz", lambda value: b"z" * value)
        assert sink.write({"__key__": "a", "zzz": 3}) == 3


def test_make_encoder_gives_a_function_of_the_sample():
    assert make_encoder(True)({"__key__": "a", "cls": 3, "__url__": "u"}) == {
        "__key__": "a",
        "cls": b"3",
        "__url__": "u",
    }
    assert make_encoder(False)({"__key__": "a", "cls": 3}) == {"__key__": "a", "cls": 3}
    assert writer.encode_based_on_extension1(3, "x.cls", writer.default_handlers) == b"3"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"txt": "x"}, "__key__"),
        ({"__key__": 3, "txt": "x"}, "int"),
        ({"__key__": b"a", "txt": "x"}, "bytes"),
        ({"__key__": "", "txt": "x"}, "empty"),
        ({"__key__": "dir/", "txt": "x"}, "slash"),
        ({"__key__": "a\0b", "txt": "x"}, "zero"),
        ({"__key__": "a", "": "x"}, "empty"),
        ({"__key__": "a", "x/y": "x"}, "slash"),
        ({"__key__": "a", 3: "x"}, "str"),
        ({"__key__": "a", "unknown": 3}, "unknown"),
        ({"__key__": "a", "txt": None}, "txt"),
        ({"__key__": "a", "json": {1, 2}}, "json"),
        ([("__key__", "a")], "list"),
    ],
)
def test_a_bad_sample_is_refused_and_writes_nothing(bad, word):
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        with pytest.raises(EncodingError, match=word):
            sink.write(bad)
        sink.write({"__key__": "good", "txt": "x"})
    assert members_of(stream.getvalue()) == {"good.txt": b"x"}


def test_a_field_that_cannot_be_encoded_takes_the_whole_sample_with_it():
    stream = io.BytesIO()
    with TarWriter(stream) as sink, pytest.raises(EncodingError) as raised:
        sink.write({"__key__": "a", "cls": 1, "zzz": object()})
    assert (raised.value.key, raised.value.field) == ("a", "zzz")
    assert members_of(stream.getvalue()) == {}


def test_a_key_with_a_dot_gives_one_warning():
    with TarWriter(io.BytesIO()) as sink:
        with pytest.warns(ShardWarning, match=r"'dir\.x/img'"):
            sink.write({"__key__": "dir.x/img.001", "txt": "x"})
        sink.write({"__key__": "dir.x/other.002", "txt": "x"})


def test_a_key_with_a_dot_is_an_error_in_strict_mode(monkeypatch):
    monkeypatch.setenv("WDS_STRICT", "1")
    with pytest.raises(ShardError, match="dot"):
        TarWriter(io.BytesIO()).write({"__key__": "img.001", "txt": "x"})


def test_a_dot_in_a_folder_is_nothing_to_warn_about():
    assert written({"__key__": "v1.0/a", "txt": "x"}) == {"v1.0/a.txt": b"x"}
