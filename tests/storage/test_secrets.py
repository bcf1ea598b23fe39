"""Secrets stay secret: a whole program reads with each kind of them, and nothing it leaves behind shows one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests_support import numbered, tar_bytes

SECRET = "Zq9xHUSHHUSH77Kw"
SHARD = tar_bytes(numbered(3))

# What is good, missing, forbidden, cut, and a page; into a cache and without; everything that can be said is said.
PROGRAM = """
import logging, os, sys, traceback, warnings
import webdataset as wds
logging.basicConfig(level=logging.DEBUG)
warnings.simplefilter("always")
url, options = os.environ["THE_URL"], {"proxy": os.environ.get("THE_PROXY")}
for name in ("good", "missing", "forbidden", "cut", "page"):
    for cache in (None, os.environ["THE_CACHE"], "/dev/null/none"):
        for handler in (wds.reraise_exception, wds.warn_and_continue):
            try:
                options |= {"cache_dir": cache, "handler": handler, "shardshuffle": False, "empty_check": False}
                dataset = wds.WebDataset(url.replace("NAME", name), **options)
                print(name, len(list(dataset)), dataset.stats(), repr(dataset))
            except Exception as exn:
                traceback.print_exc()
                print(name, repr(exn), exn)
try:
    with wds.TarWriter(url.replace("NAME", "forbidden")) as sink:
        sink.write({"__key__": "a", "txt": "x"})
except Exception:
    traceback.print_exc()
"""

# kind -> what the program is told; {port} is the server's
KINDS = {
    "password in the url": {"THE_URL": "http://me:{secret}@127.0.0.1:{port}/NAME.tar"},
    "signature in the url": {"THE_URL": "http://127.0.0.1:{port}/NAME.tar?X-Amz-Date=1&X-Amz-Signature={secret}"},
    "token in the url": {"THE_URL": "http://127.0.0.1:{port}/NAME.tar?access_token={secret}"},
    "password of the proxy": {
        "THE_URL": "http://far.invalid/NAME.tar",
        "THE_PROXY": "http://me:{secret}@127.0.0.1:{port}",
    },
    "password of the system's proxy": {
        "THE_URL": "http://far.invalid/NAME.tar",
        "http_proxy": "http://me:{secret}@127.0.0.1:{port}",
    },
    "keys of S3": {
        "THE_URL": "s3://bucket/NAME.tar",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "ME",
        "AWS_SECRET_ACCESS_KEY": "{secret}",
        "AWS_SESSION_TOKEN": "{secret}",
    },
    "signature of Azure": {
        "THE_URL": "az://container/NAME.tar",
        "AZURE_STORAGE_ACCOUNT": "me",
        "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:{port}",
        "AZURE_STORAGE_SAS_TOKEN": "sv=2021-12-02&sig={secret}",
    },
    "key of Azure": {
        "THE_URL": "az://container/NAME.tar",
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey={secret};BlobEndpoint=http://127.0.0.1:{port}",
    },
    "token of the hub": {
        "THE_URL": "hf://datasets/owner/name/NAME.tar",
        "HF_ENDPOINT": "http://127.0.0.1:{port}",
        "HF_TOKEN": "{secret}",
    },
    "token of AIStore": {
        "THE_URL": "ais://bucket/NAME.tar",
        "AIS_ENDPOINT": "http://127.0.0.1:{port}",
        "AIS_AUTHN_TOKEN": "{secret}",
        "WDS_AIS_PATIENCE": "0",
    },
}


class Routes(dict):
    """What the name of a shard says happens, wherever it stands in the path; the list of processes is looked at."""

    def __init__(self, server):
        self.shown = []
        for name, url in {
            "good": server.whole("/good", SHARD),
            "forbidden": server.status("/forbidden", 403),
            "cut": server.cut("/cut", SHARD, [100] * 1000),
            "page": server.whole("/page", b"<html>please log in</html>" * 100),
        }.items():
            self[name] = server.routes["/" + name]
            assert url.endswith(name)

    def get(self, path):
        self.shown += [line for line in command_lines() if SECRET in line]
        return super().get(path.rpartition("/")[2].removesuffix(".tar"))


def command_lines():
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            yield (folder / "cmdline").read_text(errors="replace") if folder.name.isdecimal() else ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_nowhere_but_on_its_way_to_its_server(server, tmp_path, kind, nobody):
    routes = server.routes = Routes(server)
    cache = tmp_path / "cache"
    told = {name: text.format(secret=SECRET, port=server.port) for name, text in KINDS[kind].items()}
    environment = dict(os.environ) | told | {"THE_CACHE": str(cache), "GOPEN_VERBOSE": "1", "WDS_VERBOSE_CACHE": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    assert said.count("good 3 ") == 6
    assert "MissingShardError" in said
    assert "403" in said
    assert SECRET not in said
    assert routes.shown == []
    for path in cache.rglob("*"):
        assert SECRET not in str(path)
        assert SECRET.encode() not in path.read_bytes()
    assert any(cache.rglob("*good*.tar"))
