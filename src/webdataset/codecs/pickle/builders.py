"""Builders: functions that check their arguments and make the objects of a pickle; and stand-ins for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webdataset.errors import UnsafePickleError

if TYPE_CHECKING:
    from .machine import Machine

Builder = Callable[["Machine", tuple[Any, ...]], Any]

SWITCHES = (
    "allow it with register_safe_global(cls), or, if you trust the data to run code, decode(allow_pickle=True) "
    "or WDS_ALLOW_PICKLE=1"
)


class Name:
    """Stands for a function on the list: it is never called, only compared, and cannot be changed."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Draft:
    """An object that is complete only with its state; nothing can refer to it before."""

    __slots__ = ("memo",)

    def __init__(self) -> None:
        self.memo: list[int] = []

    def finished(self, machine: Machine, state: object) -> object:
        raise NotImplementedError


def check(good: bool, what: str, fault: str) -> None:
    """Refuse a pickle that builds something with wrong arguments."""
    if not good:
        raise UnsafePickleError(f"the pickle builds {what} {fault}", hint=SWITCHES)
