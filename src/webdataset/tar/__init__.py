"""The tar format: members out of a stream (`reader`) and into one (`writer`)."""

from .limits import Limits
from .reader import MemberTuple, read_members
from .scan import Entry, scan_members

__all__ = ["Entry", "Limits", "MemberTuple", "read_members", "scan_members"]
