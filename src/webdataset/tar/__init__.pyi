from .limits import Limits as Limits
from .reader import MemberTuple as MemberTuple
from .reader import read_members as read_members
from .scan import Entry as Entry
from .scan import scan_members as scan_members
