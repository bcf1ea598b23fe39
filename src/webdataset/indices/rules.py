"""How the shards of a dataset are read, as far as their indices depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from webdataset.storage.options import StorageOptions
from webdataset.tariterators import SplitName, base_plus_ext


@dataclass(frozen=True)
class ReadingRules:
    """What a key is, how servers and stores are reached, and where a shard ends.

    >>> ReadingRules().is_usual, ReadingRules(concatenated=True).is_usual
    (True, False)
    """

    keys: SplitName = base_plus_ext
    options: StorageOptions = field(default_factory=partial(StorageOptions.of, None))
    concatenated: bool = False
    """Whether to read on behind an end marker, where another archive may follow."""

    @classmethod
    def of(
        cls, keys: SplitName, storage_options: Mapping[str, Any] | None = None, *, concatenated: bool = False
    ) -> ReadingRules:
        """The rules, with storage options as users write them."""
        return cls(keys, StorageOptions.of(storage_options), concatenated)

    @property
    def is_usual(self) -> bool:
        """Whether the shards have the samples that everybody reads who says nothing about it."""
        return self.keys is base_plus_ext and not self.concatenated

    @property
    def key_rule(self) -> str | None:
        """A name for the function that splits member names; None for the usual one."""
        keys = self.keys
        if keys is base_plus_ext:
            return None
        import hashlib

        code = getattr(keys, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(keys)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        return f"{getattr(keys, '__module__', '')}.{getattr(keys, '__qualname__', type(keys).__name__)}-{digest}"
