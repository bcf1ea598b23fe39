"""The one table of codecs: extension -> how a value is encoded and decoded.

`encoders` and `decoders` are its two halves as dicts that programs may add to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from webdataset.errors import EncodingError, MissingPackageError

from . import arrays, basic, cbor, imagefiles, pickles
from .basic import kind_of
from .pickle import torchfiles


class Codec(NamedTuple):
    """How the values under an extension become bytes, and bytes values."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any] | None = None
    asked_only: bool = False  # stays bytes in decode(), as it always has, unless `morehandlers` is among the handlers


CODECS = {
    "txt text transcript": Codec(basic.encode_text, basic.decode_text),
    "html htm": Codec(basic.encode_text, basic.decode_text, asked_only=True),
    "cls cls2 index inx id": Codec(basic.encode_int, basic.decode_int),
    "class count": Codec(basic.encode_int, basic.decode_int, asked_only=True),
    "json jsn": Codec(basic.encode_json, basic.decode_json),
    "pyd pickle pkl": Codec(pickles.dumps, pickles.loads),
    "pth": Codec(torchfiles.encode_pth, torchfiles.decode_pth),
    "npy": Codec(arrays.encode_npy, arrays.decode_npy),
    "npz": Codec(arrays.encode_npz, arrays.decode_npz),
    "ten tb": Codec(arrays.encode_ten, arrays.decode_ten),
    "tenbin": Codec(arrays.encode_ten, arrays.decode_ten, asked_only=True),
    "mp msg": Codec(basic.encode_msgpack, basic.decode_msgpack),
    "msgpack": Codec(basic.encode_msgpack, basic.decode_msgpack, asked_only=True),
    "cbor": Codec(cbor.encode_cbor, cbor.decode_cbor),
    "safetensors": Codec(arrays.encode_safetensors, arrays.decode_safetensors, asked_only=True),
    "bin": Codec(basic.encode_bytes),
    "jpg jpeg img image": Codec(imagefiles.encode_jpeg),
    "png": Codec(imagefiles.encode_png),
    "pbm pgm ppm": Codec(imagefiles.encode_ppm),
    "tiff tif": Codec(imagefiles.encode_tiff),
    "webp": Codec(imagefiles.encode_webp),
}

by_extension = {extension: codec for extensions, codec in CODECS.items() for extension in extensions.split()}
encoders: dict[str, Callable[[Any], Any]] = {extension: codec.encode for extension, codec in by_extension.items()}
decoders: dict[str, Callable[[bytes], Any]] = {
    extension: codec.decode for extension, codec in by_extension.items() if codec.decode and not codec.asked_only
}
more_decoders: dict[str, Callable[[bytes], Any]] = {
    extension: codec.decode for extension, codec in by_extension.items() if codec.decode and codec.asked_only
}

# their counterparts with allow_pickle=True
trusting: dict[Callable[[bytes], Any], Callable[[bytes], Any]] = {
    pickles.loads: pickles.loads_trusted,
    torchfiles.decode_pth: torchfiles.decode_pth_trusted,
}


def encode(field: str, value: object, table: dict[str, Callable[[Any], Any]] = encoders) -> bytes:
    """The bytes that are stored for a value under a field's name.

    Bytes stay as they are and str becomes UTF-8 under any name; other values are encoded by the field's last
    extension; a trailing `.gz` compresses the result.

    >>> encode("cls", 7), encode("meta.json", [1]), encode("anything", b"bytes")
    (b'7', b'[1]', b'bytes')
    """
    if field[-3:].lower() == ".gz":
        return _gzipped(encode(field[:-3], value, table))
    if type(value) is bytes:
        return value
    try:
        return _encoded(field, value, table)
    except (EncodingError, MissingPackageError) as exn:
        raise exn.at(field=field) from exn.__cause__
    except Exception as exn:
        raise EncodingError(f"{kind_of(value)} cannot be encoded: {exn}", field=field) from exn


def _encoded(field: str, value: object, table: dict[str, Callable[[Any], Any]]) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    extension = field.rpartition(".")[2].lower()
    encoder = table.get(extension)
    if encoder is None:
        raise EncodingError(
            f"there is no encoder for {kind_of(value)} under .{extension}",
            hint="store bytes or str, or add one: webdataset.writer.default_handlers[extension] = function",
        )
    data = encoder(value)
    if isinstance(data, str):
        return data.encode("utf-8")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise EncodingError(f"the encoder for .{extension} returned {kind_of(data)}, not bytes")
    return bytes(data)


def _gzipped(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)
