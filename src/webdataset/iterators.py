"""The module `webdataset.filters` under the name it had in versions 0.1."""

from __future__ import annotations

import sys

from . import filters

sys.modules[__name__] = filters
