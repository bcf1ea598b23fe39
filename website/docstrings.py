"""Docstrings as Markdown: examples become blocks of code, arguments without a description are found."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """What mkdocstrings calls for each object that it shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples, up to the next empty line, in blocks of code.

    >>> print(fenced("A sum.\\n\\n>>> 1 + 1\\n2"))
    A sum.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLE.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", text)
