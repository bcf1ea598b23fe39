"""`python -m webdataset COMMAND` is `wl COMMAND`."""

import sys

from .cli import main

sys.exit(main())
