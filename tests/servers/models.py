"""The models of Kubernetes' and Argo's objects that npm has: they check types and values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from servers.programs import PLACES, leave_out, program

PACKAGES = "npm kubernetes-models @kubernetes-models/argo-workflows"
SCRIPT = """
import { readFileSync } from "node:fs";
const found = await import(process.argv[1]);
const Model = found[process.argv[2]] ?? found.default[process.argv[2]];
const check = one => { try { new Model(one).validate(); return "valid" } catch (error) { return error.message } };
console.log(JSON.stringify(JSON.parse(readFileSync(0)).map(check)));
"""


def model_verdicts(module: str, name: str, manifests: list[dict[str, Any]]) -> list[str]:
    """What a model says of each manifest: `valid`, or why not."""
    path = Path(sys.prefix) / "node" / "node_modules" / module
    if not PLACES["npm"] or not path.exists():
        leave_out(PACKAGES)
    words = [program("node", "apt npm"), "--input-type=module", "-e", SCRIPT, str(path), name]
    told = subprocess.run(words, input=json.dumps(manifests), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    found: list[str] = json.loads(told.stdout)
    return found
