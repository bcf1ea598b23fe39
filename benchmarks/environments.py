"""An environment for each peer, in benchmarks/.peers, made when it is first wanted."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
OURS = ("webloader", "threads")
"""This package, which is measured in the environment that runs the harness."""
ENVIRONMENTS = os.path.join(HERE, ".peers")
INSTALL_SECONDS = 900
TORCHVISION = {"2.13": "0.28.0"}


def python_of(peer: str) -> str:
    return sys.executable if peer in OURS else os.path.join(ENVIRONMENTS, peer, "bin", "python")


def old_python(peers: list[str]) -> str:
    """The Python of webdataset 1.0.2, if it is one of the peers and can be installed."""
    if "wds" not in peers or install("wds", importlib.import_module("peers.wds")):
        return ""
    return python_of("wds")


def install(peer: str, module: Any) -> str:
    """Make the environment of a peer, if it is not there; what went wrong, if anything did."""
    if peer in OURS:
        return ""
    os.makedirs(ENVIRONMENTS, exist_ok=True)
    folder = os.path.join(ENVIRONMENTS, peer)
    stamp, failed = (os.path.join(ENVIRONMENTS, f"{peer}.{end}") for end in ("installed", "failed"))
    wanted = " ".join([*module.PACKAGES, module.NEEDS])
    if _content(stamp) == wanted:
        return ""
    if _content(failed) == wanted:
        return f"not installed; {os.path.relpath(ENVIRONMENTS, ROOT)}/{peer}.log says why"
    say(f"installing {peer} into an environment of its own")
    trouble = "" if module.NEEDS != "torch" else shared_torch()
    if not trouble:
        _make(folder, shares_torch=module.NEEDS == "torch")
        trouble = _pip(peer, folder, module.PACKAGES)
        hint = getattr(module, "HINT", "")
        trouble = f"{trouble}; {hint}" if trouble and hint else trouble
    with open(failed if trouble else stamp, "w") as file:
        file.write(wanted)
    return trouble


def shared_torch() -> str:
    """Install torch and torchvision once, for all peers that need them: they take most of the room."""
    folder, stamp = os.path.join(ENVIRONMENTS, "torch"), os.path.join(ENVIRONMENTS, "torch.installed")
    if os.path.exists(stamp):
        return ""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "needs PyTorch, which is not installed here"
    vision = TORCHVISION.get(".".join(torch.split(".")[:2]))
    _make(folder, shares_torch=False)
    trouble = _pip(
        "torch", folder, [f"torch=={torch}", "numpy", "pillow", *([f"torchvision=={vision}"] if vision else [])]
    )
    if not trouble:
        with open(stamp, "w"):
            pass
    return trouble


def _make(folder: str, *, shares_torch: bool) -> None:
    venv.create(folder, clear=True)  # without pip: ours installs into it
    if shares_torch:
        shared = _packages(os.path.join(ENVIRONMENTS, "torch"))
        with open(os.path.join(_packages(folder), "torch.pth"), "w") as file:
            file.write(shared + "\n")


def _packages(folder: str) -> str:
    return os.path.join(folder, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _pip(peer: str, folder: str, packages: list[str]) -> str:
    constraints = os.path.join(ENVIRONMENTS, "constraints.txt")
    with open(constraints, "w") as file:  # nobody pulls in another build of torch, which would need several GB
        file.write("\n".join(_installed(os.path.join(ENVIRONMENTS, "torch"), ("torch", "torchvision"))))
    words = [sys.executable, "-m", "pip", "--python", os.path.join(folder, "bin", "python")]
    words += ["install", "--no-input", "--disable-pip-version-check"]
    log = os.path.join(ENVIRONMENTS, f"{peer}.log")
    with open(log, "w") as file:
        try:
            done = subprocess.run(
                [*words, "--constraint", constraints, *packages],
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not installed: pip took more than {INSTALL_SECONDS} s"
    if done.returncode == 0:
        return ""
    errors = [line.strip() for line in (_content(log) or "").splitlines() if "error" in line.lower()]
    return f"not installed: {errors[-1][:160] if errors else 'pip failed'}"


def _installed(folder: str, names: tuple[str, ...]) -> Iterator[str]:
    for found in importlib.metadata.distributions(path=[_packages(folder)]):
        if found.metadata["Name"] in names:
            yield f"{found.metadata['Name']}=={found.version}"


def _content(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)
