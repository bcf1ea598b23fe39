"""wl completion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from webdataset.cli import COMMANDS


def test_the_completion_scripts_are_whole(wl: Any, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = wl("completion", shell).out.decode()
        assert all(name in script for name in COMMANDS)
        if shutil.which(shell):
            (tmp_path / shell).write_text(script)
            subprocess.run([shell, "-n", str(tmp_path / shell)], check=True)
    assert wl("completion", "tcsh").code == 2


def test_bash_completes_commands_and_options(wl: Any, tmp_path: Path) -> None:
    (tmp_path / "wl.bash").write_bytes(wl("completion", "bash").out)
    ask = "COMP_WORDS=({words}); COMP_CWORD={n}; _wl; echo ${{COMPREPLY[*]}}"
    for words, n, expected in (("wl sh", 1, "shuffle show"), ("wl sort --re", 2, "--reverse --rekey")):
        line = f"source {tmp_path}/wl.bash; " + ask.format(words=words, n=n)
        told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout
        assert told.strip() == expected
