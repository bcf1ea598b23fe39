"""The tar format: members out of a stream (`reader`) and into one (`writer`)."""

from typing import TYPE_CHECKING

from webdataset.names import import_lazily

if TYPE_CHECKING:
    from .limits import Limits
    from .reader import MemberTuple, read_members
    from .scan import Entry, scan_members

__all__ = ["Entry", "Limits", "MemberTuple", "read_members", "scan_members"]

import_lazily(__name__, {"limits": "Limits", "reader": "MemberTuple read_members", "scan": "Entry scan_members"})
