"""The module `webdataset.dataset` under its older name: the same object, because programs replace functions in it."""

from __future__ import annotations

import sys

from . import dataset

sys.modules[__name__] = dataset
