"""A Kubernetes server through kubectl, and machines that have neither it nor the package."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import runs_support
import webdataset as wds
from runs_support import make_inputs
from servers.clusters import needs_package
from webdataset.errors import MissingPackageError
from webdataset.runs.engines import kube
from webdataset.runs.engines.base import EngineError

KUBECTL = """#!{python}
import sys, urllib.error, urllib.request, json
words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
config = json.load(open(next(word for word in words if word.startswith("--kubeconfig=")).partition("=")[2]))
verb = next(word for word in words if not word.startswith("-"))
if verb == "config":
    print("tests", end="")
    sys.exit()
path = next(word for word in words if word.startswith("--raw=")).partition("=")[2]
method = {{"create": "POST", "get": "GET", "delete": "DELETE"}}[verb]
body = sys.stdin.buffer.read() if verb == "create" else None
request = urllib.request.Request(config["clusters"][0]["cluster"]["server"] + path, body, method=method)
try:
    sys.stdout.write(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    status = json.load(error)
    sys.exit("Error from server (%s): %s" % (status["reason"], status["message"]))
"""


def test_kubectl_will_do(kubernetes_double: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `--raw` is one request with the user's credentials, which a few lines stand for here."""
    script = tmp_path / "bin" / "kubectl"
    script.parent.mkdir()
    script.write_text(KUBECTL.format(python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    pairs = make_inputs(tmp_path, 1)
    own = {"command": [sys.executable, "-m", "webdataset"], "claim": "data", "poll": 0.2, "client": "kubectl"}
    own |= {"kubeconfig": kubernetes_double.kubeconfig}
    here = {"PYTHONPATH": os.path.dirname(runs_support.__file__)}
    options = {"image": "none", "environment": here, "k8s": own}
    assert [done.ok for done in wds.jobs(runs_support.doubled, pairs, on="k8s", **options)] == [True]
    client = kube.kube_client(own)
    (name,) = kubernetes_double.jobs
    assert [pod.startswith(name) for pod, _ in client.logs(name, "task")] == [True]
    client.delete(name)
    client.delete(name)
    with pytest.raises(kube.MissingError):
        client.read(name)


def test_neither_the_package_nor_kubectl_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingPackageError, match="kubectl") as raised:
        kube.kube_client({})
    assert "webdataset[k8s]" in raised.value.hint


def test_no_cluster_is_configured(tmp_path: Path) -> None:
    needs_package("kubernetes", "kubernetes")
    missing = str(tmp_path / "nothing")
    with pytest.raises(EngineError, match=missing):
        kube.kube_client({"client": "kubernetes", "kubeconfig": missing})
