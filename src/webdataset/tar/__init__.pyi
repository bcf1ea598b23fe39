from .limits import Limits as Limits
from .reader import MemberTuple as MemberTuple
from .reader import read_members as read_members
from .scan import MemberEntry as MemberEntry
from .scan import scan_members as scan_members
