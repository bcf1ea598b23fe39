"""Lets a program run with any `python3`: without its packages it goes on under the Python of ./setup-venv.

Written so that an old python3 can still read it.
"""

import os
import sys
from importlib.util import find_spec

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
VENV = os.path.join(ROOT, ".venv")


def needs(*packages):
    """Go on if the packages are installed here, else under .venv if there is one; else end with a line that says so."""
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return
    python = os.path.join(VENV, "bin", "python")
    if os.path.exists(python) and os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        os.execv(python, [python] + sys.argv)
    program = os.path.basename(sys.argv[0])
    sys.exit("{} needs {}: ./setup-venv installs what is missing".format(program, " and ".join(missing)))
