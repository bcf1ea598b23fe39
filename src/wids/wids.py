"""The same names, where programs of the old package look for them."""

from __future__ import annotations

from . import *  # noqa: F403 - all of them
from . import __all__  # noqa: F401 - these names and no others
