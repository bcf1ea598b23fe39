"""Questions that have a table of their own: a module each, with TITLE, WORDS, NEEDS (programs), and `rows(part, old)`.

`part` is that of the data, `old` the Python of an environment with webdataset 1.0.2, if there is one. compare.py runs
these with the others, in a process of their own: `python sections.py NAME PART OLD`.
"""

from __future__ import annotations

import datetime
import importlib
import json
import shutil
import subprocess
import sys
from typing import Any

NAMES = ("exact", "network", "objects", "cache", "commands", "loader")
SECONDS = 600

Row = tuple[str, str, str, bool]
"""What was measured, what came out, what should have (if anything in particular), and whether it did."""


def measure(name: str, results: Any, part: float, old: str) -> None:
    """Fill in the rows of one section, if they are not known yet."""
    known = results.found["sections"].setdefault(name, {"date": "", "title": "", "words": "", "rows": []})
    if known["rows"]:
        return
    module = importlib.import_module(name)
    known |= {"title": module.TITLE, "words": module.WORDS, "trouble": ""}
    known["date"] = str(datetime.datetime.now(datetime.UTC).date())
    missing = [program for program in module.NEEDS if shutil.which(program) is None]
    if missing:
        known["trouble"] = f"needs {', '.join(missing)}: tests/servers/install.sh"
    else:
        words = [sys.executable, __file__, name, str(part), old]
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, timeout=SECONDS, check=True)
            known["rows"] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            known["trouble"] = f"failed: {error}"
    results.save()


def rounds(part: float, usual: int) -> int:
    """Fewer for a first look."""
    return usual if part == 1 else min(usual, 2) if part >= 0.1 else 1


def main() -> None:
    name, part, old = sys.argv[1:]
    print("\n" + json.dumps(importlib.import_module(name).rows(float(part), old)))


if __name__ == "__main__":
    main()
