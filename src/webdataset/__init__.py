"""WebLoader streams training data out of plain tar shards.

import webdataset as wds

dataset = wds.WebDataset("train-{000000..000099}.tar").shuffle(1000).decode("rgb").to_tuple("jpg;png", "cls")
"""

from .base.names import import_lazily

__version__ = "2.0.0.dev0"

import_lazily(__name__, __file__ + "i")
