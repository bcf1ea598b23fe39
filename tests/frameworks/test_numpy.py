"""Without torch: numpy batches from worker threads, resumed in the middle of an epoch. JAX takes the same batches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from frameworks.accounts import EXAMPLES, check_accounts, make_shards, whole_and_resumed

WITHOUT_TORCH = f"""
import sys
sys.modules["torch"] = None
sys.path.insert(0, {str(EXAMPLES)!r})
import numpy_loop
numpy_loop.main()
"""


def test_a_loop_without_torch_sees_every_sample_once_and_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    make_shards(tmp_path)
    for run in whole_and_resumed(world=1):
        words = [word.replace("{rank}", "0") for word in run["arguments"]]
        subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TORCH, *words], cwd=tmp_path, check=True)
    check_accounts(tmp_path, world=1)
