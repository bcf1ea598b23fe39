from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.storage.ais import xxhash
from webdataset.storage.ais.xxhash import is_affordable, new, xxh64

# Published test vectors of XXH64 with seed 0.
VECTORS = {
    b"": "ef46db3751d8e999",
    b"a": "d24ec4f1a98c6e5b",
    b"as": "1c330fb2d66be179",
    b"asd": "631c37ce72a97393",
    b"asdf": "415872f599cea71e",
    b"abc": "44bc2cf5ad770999",
    b"Call me Ishmael. Some years ago--never mind how long precisely-": "02a2e85470d6fd96",
}


@pytest.mark.parametrize("data", VECTORS)
def test_the_published_values_come_out(data):
    assert xxh64(data) == VECTORS[data]
    assert running([data]) == VECTORS[data]


def running(parts):
    hasher = new()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def test_the_reference_generator_gives_the_reference_values():
    # the sanity buffer of the reference implementation, byte by byte from its 64-bit generator
    prime32, prime64 = 2654435761, 11400714785074694797
    state, data = prime32, bytearray()
    for _ in range(222):
        data.append(state >> 56)
        state = state * prime64 & 0xFFFFFFFFFFFFFFFF
    assert xxh64(bytes(data[:1])) == "e934a84adb052768"
    assert xxh64(bytes(data[:14])) == "8282dcc4994e35c8"
    assert xxh64(bytes(data[:222])) == "b641ae8cb691c174"


@pytest.mark.parametrize("fast", [True, False])
@given(parts=st.lists(st.binary(max_size=100), max_size=20))
def test_the_partition_of_the_input_does_not_matter(fast, parts):
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(xxhash, "is_fast", lambda: False)
        assert running(parts) == xxh64(b"".join(parts))


def test_it_agrees_with_the_package():
    package = pytest.importorskip("xxhash", reason="pip install 'webdataset[ais]'")
    source = random.Random(1)
    for size in [*range(100), 1000, 4097, 100_000]:
        data = source.randbytes(size)
        assert xxh64(data) == package.xxh64(data).hexdigest()


def test_small_objects_are_always_checked():
    assert is_affordable(1 << 20)
