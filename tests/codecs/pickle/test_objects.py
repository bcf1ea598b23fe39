"""What a pickle may build: a closed list, and what the program registered."""

from __future__ import annotations

import fractions
import pickle
import re
import sys
from collections import Counter

import pytest

from webdataset.codecs import pickles
from webdataset.codecs.pickle.objects import registered
from webdataset.errors import UnsafePickleError


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that an attack that succeeds creates; nothing may ever create it."""
    path = tmp_path / "canary"
    monkeypatch.chdir(tmp_path)
    yield path
    assert not path.exists()


def raw_call(module: str, name: str, *args: str) -> bytes:
    """A call in protocol 0, of things that this process could not pickle itself."""
    return f"c{module}\n{name}\n(".encode() + b"".join(f"S{arg!r}\n".encode() for arg in args) + b"tR."


NAMED = [
    ("os", "system"),
    ("posix", "system"),
    ("nt", "system"),
    ("__builtin__", "eval"),
    ("builtins", "exec"),
    ("builtins", "breakpoint"),
    ("numpy.testing._private.utils", "runstring"),
    ("numpy", "os.system"),
    ("numpy", "load"),
    ("numpy", "lib.npyio.DataSource"),
    ("numpy.f2py", "compile"),
    ("numpy.core.multiarray", "fromfile"),
    ("torch", "load"),
    ("torch", "os.system"),
    ("torch", "hub.load"),
    ("torch.hub", "load"),
    ("torch.jit.unsupported_tensor_ops", "execWrapper"),
    ("torch.utils._config_module", "load_config"),
    ("torch._utils", "_rebuild_wrapper_subclass"),
    ("collections", "_sys.modules"),
    ("collections", "namedtuple"),
    ("collections", "OrderedDict.__reduce__"),
    ("datetime", "sys.exit"),
    ("uuid", "os.system"),
    ("uuid", "_get_command_stdout"),
    ("copyreg", "_reduce_ex"),
    ("copyreg", "add_extension"),
    ("pydoc", "pipepager"),
    ("runpy", "run_path"),
    ("timeit", "timeit"),
    ("cProfile", "run"),
    ("code", "interact"),
    ("ctypes", "CDLL"),
    ("webbrowser", "open"),
    ("importlib", "import_module"),
    ("shutil", "rmtree"),
    ("socket", "socket"),
    ("webdataset.codecs.pickles", "loads_trusted"),
    ("webdataset.codecs.pickles", "register_safe_global"),
    ("webdataset.gopen", "gopen"),
    ("builtins", "object.__subclasses__"),
    ("types", "FunctionType"),
    ("types", "CodeType"),
    ("marshal", "loads"),
    ("asyncio.unix_events", "_UnixSubprocessTransport._start"),
]


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_a_name_outside_the_list_is_refused_before_anything_is_imported(canary, module, name):
    imported = set(sys.modules)
    stacked = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    stacked += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    for data in (raw_call(module, name, f"touch {canary}"), f"(i{module}\n{name}\n.".encode(), stacked):
        with pytest.raises(UnsafePickleError, match=re.escape(name)):
            pickles.loads(data)
    assert [name for name in set(sys.modules) - imported if not name.startswith("webdataset.")] == []


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\nlist\n)R.",
        b"cbuiltins\nint\n(S'7'\ntR.",
        b"cbuiltins\nobject\n)R.",
        b"cbuiltins\nobject\n)\x81.",
        b"cnumpy\nndarray\n(I5\ntR.",
        b"cnumpy\nfloat32\n(I5\ntR.",
        b"(I1\nI2\no.",
        b"I1\n)R.",
        b"]}R.",
    ],
)
def test_only_what_is_on_the_list_can_be_called(data):
    with pytest.raises(UnsafePickleError, match="calls"):
        pickles.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"ccollections\nCounter\n}S'update'\nNsb.",
        b"ccollections\nOrderedDict\nN}S'__init__'\nNs\x86b.",
        b"ccollections\nOrderedDict\n)R}S'__class__'\nNsb.",
        b"ccollections\nOrderedDict\n)RN}S'__class__'\nNs\x86b.",
        b"cuuid\nUUID\n}S'__init__'\nNsb.",
        b"cnumpy._core.multiarray\n_reconstruct\n}S'x'\nNsb.",
        b"}}S'x'\nNsb.",
        b"]}S'x'\nNsb.",
        b"cbuiltins\nset\n]\x85R}S'x'\nNsb.",
        b"I1\nNb.",
    ],
)
def test_no_object_or_class_gets_attributes(data):
    with pytest.raises(UnsafePickleError, match="state"):
        pickles.loads(data)
    assert Counter("aa").update is not None


@pytest.fixture
def registry():
    before = dict(registered)
    yield registered
    registered.clear()
    registered.update(before)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)


class Items(list):
    pass


@pytest.mark.parametrize("protocol", range(6))
def test_a_registered_class_is_built(registry, protocol):
    with pytest.raises(UnsafePickleError, match="Point"):
        pickles.loads(pickle.dumps(Point(3), protocol=protocol))
    assert pickles.register_safe_global(Point) is Point
    assert pickles.loads(pickle.dumps([Point(3)], protocol=protocol))[0].x == 3


def test_registered_classes_of_other_makes(registry):
    for cls in (fractions.Fraction, Slotted, Items):
        pickles.register_safe_global(cls)
    slotted = Slotted()
    slotted.x = 5
    assert pickles.loads(pickle.dumps(fractions.Fraction(1, 3))) == fractions.Fraction(1, 3)
    assert pickles.loads(pickle.dumps(slotted)).x == 5
    assert pickles.loads(pickle.dumps(Items([1, 2]))) == [1, 2]
