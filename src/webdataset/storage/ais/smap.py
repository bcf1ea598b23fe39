"""The cluster map of AIStore: which targets a cluster has, which it has lost, and when that changed.

A target that died leaves the map half a minute later. Then its objects are 404 and left out of lists, as if they had
never been. The map does not remember the target, so each process keeps the targets that it has seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SETTLE_SECONDS = 5.0
"""How long a changed map is not trusted: for about two seconds a target that joined does not ask the others."""
MAINTENANCE = 1 << 2
DECOMMISSION = 1 << 3
MOVED = 1 << 4  # in maintenance, and what it held lies elsewhere now


@dataclass(frozen=True)
class ClusterMap:
    """The targets of a cluster with their flags, and the version of the map, which grows with each change."""

    version: str
    flags: Mapping[str, int]

    @classmethod
    def parsed(cls, smap: Any) -> ClusterMap | None:
        """None if it is no map.

        >>> ClusterMap.parsed({"version": "7", "tmap": {"t1": {"daemon_id": "t1", "flags": "4"}}})
        ClusterMap(version='7', flags={'t1': 4})
        """
        try:
            flags = {str(name): int(node.get("flags") or 0) for name, node in smap["tmap"].items()}
            return cls(str(smap.get("version")), flags)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


@dataclass
class Membership:
    """The targets of one cluster as this process has seen them.

    >>> seen = Membership()
    >>> for flags in {"t1": 0, "t2": 0}, {"t1": 0}, {"t1": 0, "t2": MAINTENANCE | MOVED}:
    ...     seen.observe(ClusterMap("1", flags), now=0.0)
    ...     print(seen.missing)
    []
    ['t2']
    []
    """

    targets: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    """The targets whose objects are out of reach."""
    version: str | None = None
    since: float = -math.inf
    """When this process saw the map change for the last time."""

    def observe(self, found: ClusterMap, now: float) -> None:
        """Take in the map as it is now."""
        flags = found.flags
        leaving = {name for name, bits in flags.items() if bits & (MAINTENANCE | DECOMMISSION)}
        moved = {name for name in leaving if flags[name] & MOVED}
        gone = self.targets - flags.keys()
        # one that is being decommissioned disappears from the map when it is empty
        decommissioned = {name for name in leaving if flags[name] & DECOMMISSION}
        self.targets = (self.targets | (flags.keys() - leaving)) - moved - decommissioned
        self.missing = sorted(gone | (leaving - moved))
        if self.version not in (None, found.version):
            self.since = now
        self.version = found.version

    def doubt(self, asked: float) -> str:
        """Why the cluster may not have had all objects within reach at that time; empty if it had."""
        if self.missing:
            return f"the cluster lacks targets that it had: {', '.join(self.missing)}"
        return "the cluster has just changed" if asked < self.since + SETTLE_SECONDS else ""


CLUSTERS: defaultdict[str, Membership] = defaultdict(Membership)
"""The clusters that have answered this process, by endpoint."""
