"""How far a pipeline has come: what lasts from pass to pass, and where the latest pass is."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any, Self

from .context import PassContext
from .counter import PassCounter

if TYPE_CHECKING:
    from .positions import Position


class PipelineProgress:
    """The progress of one pipeline; runners read and change it."""

    def __init__(self) -> None:
        self.passes = PassCounter()
        self.base_seed = drawn_seed()
        self.mailbox: str | None = None
        """The folder in which a worker process leaves its counts, and the error that ends it."""
        self.in_steps = False
        """Whether a loader of ours reads an exact pipeline in this process."""
        self.program: tuple[Any, Any] | None = None
        """For which stages, and whether in turn, the latest program is; and the program."""
        self.described: tuple[Any, Any] = (), None
        """For which stages the latest description is; and the description."""
        self.forget()

    def forget(self) -> None:
        """Begin as if there had been no pass."""
        self.context: PassContext | None = None
        self.start: Position | None = None
        """Where the next pass is to begin, if a state was loaded."""
        self.starts_of_workers: list[Any] | None = None
        """The same for each worker process of a loader."""
        self.position: Any = None
        """Where the latest pass over an exact pipeline is, or a function that says so; None before there was one."""
        self.counted: tuple[int, int, int] | None = None
        """Of the round that is under way, if there are any: complete passes, items given, and its number."""
        self.run: Any = None
        """The streamed pass that is under way, or why its position cannot be saved, or that it has ended."""
        self.pass_number = 0
        self.count: Any = None
        """Counts the items of a round of a streamed pipeline, if that is cut."""
        self.expanded: Any = None
        """The stage after a loader that has made several items of one."""

    def for_composition(self) -> Self:
        """The progress of a pipeline with other stages, which counts its own passes."""
        result = copy.copy(self)
        result.passes = PassCounter()
        result.base_seed = drawn_seed()
        result.forget()
        return result

    def __getstate__(self) -> dict[str, Any]:
        """For another process: a pass is under way in this one only."""
        position = self.position() if callable(self.position) else self.position
        return {**self.__dict__, "run": None, "program": None, "position": position}


def drawn_seed() -> int:
    """What the seeds of a pipeline's unseeded stages are made from."""
    return random.SystemRandom().getrandbits(63)
