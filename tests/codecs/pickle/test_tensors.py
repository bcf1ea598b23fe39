"""torch's part of pickles: tensors, parameters, sizes."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import pytest
import torch

from webdataset.codecs import pickles
from webdataset.errors import UnsafePickleError


@pytest.mark.parametrize("protocol", range(2, 6))
def test_tensors_come_back(protocol):
    base = torch.arange(12.0)
    values = [base, base[3:5], base.reshape(3, 4).t(), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0)]
    values += [torch.tensor(5), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))]
    for value in values:
        back = pickles.loads(pickle.dumps(value, protocol=protocol))
        assert (type(back), back.dtype, back.stride()) == (type(value), value.dtype, value.stride())
        assert back.requires_grad == value.requires_grad
        assert torch.equal(back, value)


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


def tensor_of(*args: Any) -> Any:
    storage = torch.zeros(4).storage()
    return Call(torch._utils._rebuild_tensor_v2, storage, *args)


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize(
    "args",
    [
        (0, (1000,), (1,), False, OrderedDict()),
        (1 << 40, (1,), (1,), False, OrderedDict()),
        (-1, (1,), (1,), False, OrderedDict()),
        (0, (-1,), (1,), False, OrderedDict()),
        (0, (2,), (-1,), False, OrderedDict()),
        (0, (2,), (1 << 62,), False, OrderedDict()),
        (0, (2,), (1, 1), False, OrderedDict()),
        (0, (2,), (1,), False, OrderedDict(a=1)),
    ],
)
def test_tensors_that_reach_outside_their_bytes_are_refused(args):
    with pytest.raises((UnsafePickleError, RuntimeError)):
        pickles.loads(pickle.dumps(tensor_of(*args)))
