"""The methods of compression have one interface, whichever package serves."""

from __future__ import annotations

import gzip

import pytest

from webdataset.codecs.methods import KINDS, ZlibDecompressor

DATA = b"".join(b"%d " % (number * number) for number in range(20_000))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [None, 1])
def test_every_method_reads_what_it_writes_in_bounded_pieces(kind: str, level: int | None) -> None:
    method = KINDS[kind]
    compressor = method.compressor(level)
    packed = compressor.compress(DATA[:1000]) + compressor.compress(DATA[1000:]) + compressor.flush()
    assert packed.startswith(method.magics)
    decompressor, pieces, waiting = method.decompressor(), [], packed + b"tail"
    while not decompressor.eof:
        pieces.append(decompressor.decompress(waiting, 4096))
        waiting = b""
    assert max(map(len, pieces)) <= 4096
    assert (b"".join(pieces), decompressor.unused_data) == (DATA, b"tail")


def test_zlib_has_the_same_interface() -> None:
    decompressor, out, waiting = ZlibDecompressor(), b"", gzip.compress(DATA) + b"tail"
    while not decompressor.eof:
        out += decompressor.decompress(waiting, 4096)
        waiting = b""
    assert (out, decompressor.unused_data) == (DATA, b"tail")
