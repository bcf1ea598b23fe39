"""The tar format: members out of a stream (`reader`) and into one (`writer`)."""

from webdataset.base.names import import_lazily

import_lazily(__name__, __file__ + "i")
