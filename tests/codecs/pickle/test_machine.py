"""The pickle machine: bounded in memory and time."""

from __future__ import annotations

import pickle
import resource
import struct

import pytest

from webdataset.codecs import pickles
from webdataset.errors import UnsafePickleError


def nested_tuple(depth: int, *, copies: bytes) -> bytes:
    return b"\x80\x02)" + copies * depth


BOMBS = {
    "bytes8 claim": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "bytearray8 claim": b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "unicode8 claim": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "bytes4 claim": b"\x80\x03B\xff\xff\xff\x7f.",
    "long4 claim": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "huge decimal": b"L" + b"9" * 1_000_000 + b"L\n.",
    "bytearray of a number": b"cbuiltins\nbytearray\n(I1000000000000\ntR.",
    "bytes of a number": b"cbuiltins\nbytes\n(I1000000000000\ntR.",
    "set of a range": b"cbuiltins\nset\n(cbuiltins\nrange\n(I1000000000000\ntRtR.",
    "deque of a range": b"ccollections\ndeque\n(cbuiltins\nrange\n(I1000000000000\ntRtR.",
    "exponential key": b"}" + nested_tuple(80, copies=b"2\x86") + b"Ns.",
    "exponential key in a set": b"\x80\x04\x8f(" + nested_tuple(80, copies=b"2\x86") + b"\x90.",
    "exponential key in a frozenset": b"\x80\x04(" + nested_tuple(80, copies=b"2\x86") + b"\x91.",
    "exponential key by set()": b"cbuiltins\nset\n]" + nested_tuple(80, copies=b"2\x86") + b"a\x85R.",
    "deep key": b"}" + nested_tuple(1_000_000, copies=b"\x85") + b"Ns.",
    "many copies of a set": b"]q\0(" + b"N" * 10_000 + b"e0(cbuiltins\nset\nq\1" + b"h\1h\0\x85R0" * 100_000 + b"t.",
    "many copies of an array": (
        b"C" + b"\xff" + bytes(255) + b"q\0" + b"B" + struct.pack("<I", 100_000) + bytes(100_000) + b"q\0"
        b"cnumpy\ndtype\n(S'u1'\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbq\1cnumpy._core.numeric\n_frombuffer\nq\2("
        + b"h\2(h\0h\1(I100000\ntS'C'\ntR" * 10_000
        + b"t."
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_pickle_cannot_take_much_memory_or_time(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((pickle.UnpicklingError, ValueError)) as caught:
        pickles.loads(BOMBS[name])
    assert len(str(caught.value)) < 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_references_may_be_shared_without_end():
    value = pickles.loads(b"]" + b"q\0" + b"]h\0ah\0aq\0" * 100 + b".")
    assert len(value) == 2


def test_containers_may_be_nested_as_deep_as_programs_nest_them():
    assert len(pickles.loads(b"]" + b"\x85" * 999 + b".")) == 1


def test_a_message_never_shows_the_endless_value():
    shared = nested_tuple(80, copies=b"2\x86")
    with pytest.raises(UnsafePickleError) as caught:
        pickles.loads(shared + b")R.")
    assert len(str(caught.value)) < 500
