"""Foreign data must not run code, reach files, fill memory or pass for something else.

The attacks on pickles are in tests/codecs/test_attacks.py; here are those on the whole way from a shard to a sample.
"""

from __future__ import annotations

import gzip
import io
import logging
import os
import pickle
import resource
import subprocess
import sys
import tarfile
import threading
import time
import warnings
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

import webdataset as wds
import wids
from tests_support import tar_bytes
from webdataset.errors import DecodingError, LimitError, SecurityError, ShardError, UnsafePickleError, WebDatasetError
from webdataset.tools.make.classes import read_classes


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


@pytest.fixture
def canary(tmp_path):
    """A file that must not be there at the end of the test."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


@pytest.fixture
def serve():
    """Serve answers by path on loopback: `serve({"/a.tar": (200, {}, b"...")})` returns the address."""
    servers = []

    def start(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, headers, body = answers[self.path]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                """Keep quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def read(url, *stages, **kw):
    dataset = wds.WebDataset(url, **kw)
    return list(dataset.compose(*stages))


def evil_fields(canary):
    evil = Evil(canary)
    legacy = io.BytesIO()
    torch.save({"x": evil}, legacy, _use_new_zipfile_serialization=False)
    modern = io.BytesIO()
    torch.save({"x": evil}, modern)
    objects = io.BytesIO()
    np.save(objects, np.array([evil], dtype=object), allow_pickle=True)
    packed = io.BytesIO()
    np.savez(packed, x=np.array([evil], dtype=object))
    plain = pickle.dumps(evil)
    return {
        "pyd": plain,
        "pkl": plain,
        "pickle": plain,
        "x.pyd": plain,
        "pyd.gz": gzip.compress(plain),
        "pth": modern.getvalue(),
        "old.pth": legacy.getvalue(),
        "npy": objects.getvalue(),
        "npz": packed.getvalue(),
    }


FIELDS = ["pyd", "pkl", "pickle", "x.pyd", "pyd.gz", "pth", "old.pth", "npy", "npz"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_would_run_code_is_refused(make_shard, canary, field):
    shard = make_shard(files=[(f"a.{field}", evil_fields(canary)[field])])
    with pytest.raises(DecodingError) as raised:
        read(shard, wds.decode())
    assert (raised.value.key, raised.value.field) == ("a", field)


def test_xdecode_refuses_pickles_too(make_shard, canary):
    shard = make_shard(files=[("a.pyd", pickle.dumps(Evil(canary)))])
    with pytest.raises((DecodingError, UnsafePickleError)):
        read(shard, wds.xdecode())


def test_a_samples_cache_poisoned_with_a_pickle_runs_nothing(make_shard, canary, tmp_path):
    import sqlite3

    path = str(tmp_path / "cache.db")
    dataset = wds.WebDataset(make_shard(samples=2)).dbcache(path, 2)
    list(dataset)
    for name in os.listdir(tmp_path):
        if name.startswith("cache.db"):
            with sqlite3.connect(tmp_path / name) as db:
                db.execute("update cache set data = ?", (pickle.dumps(Evil(canary)),))
            db.close()
    with pytest.raises(WebDatasetError):
        list(dataset)


# -- secure mode -----------------------------------------------------------------------------------


@pytest.fixture
def secure(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")


def test_secure_mode_refuses_pipes(secure, canary):
    with pytest.raises(SecurityError):
        read(f"pipe:touch {canary}")


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "/proc/self/root{}"])
def test_secure_mode_refuses_local_files_whatever_they_are_called(make_shard, monkeypatch, form):
    shard = make_shard()
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SecurityError):
        read(form.format(shard))
    with pytest.raises(SecurityError) as raised:
        wds.gopen(form.format(shard))
    assert "WDS_SECURE_ROOTS" in raised.value.hint


def test_pipes_can_be_refused_alone(monkeypatch, canary):
    monkeypatch.setenv("WDS_ALLOW_PIPE", "0")
    with pytest.raises(SecurityError):
        read(f"pipe:touch {canary}")


# -- urls that come out of data --------------------------------------------------------------------


@pytest.mark.parametrize("target", ["pipe:touch CANARY", "file:///etc/passwd", "ftp://h/a", "gopher://h/"])
def test_a_redirect_reaches_only_web_servers(serve, canary, target):
    address = serve({"/a.tar": (302, {"Location": target.replace("CANARY", str(canary))}, b"")})
    with pytest.raises(SecurityError):
        read(f"{address}/a.tar")


def test_a_shard_list_from_a_server_cannot_name_commands(serve, canary, monkeypatch):
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    spec = f"datasets:\n- name: x\n  shards: ['pipe:touch {canary}']\n".encode()
    address = serve({"/spec.yaml": (200, {}, spec)})
    with pytest.raises(ValueError, match="pipe"):
        read(f"{address}/spec.yaml")


@pytest.mark.parametrize("name", ["a;touch CANARY", "$(touch CANARY)", "`touch CANARY`", "a'; touch CANARY; '"])
def test_a_url_is_never_part_of_a_shell_command(name, canary, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    # what ssh does with its last word: the shell of the other machine runs it
    (tools / "ssh").write_text('#!/bin/sh\nfor word; do :; done; exec sh -c "$word"\n')
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(OSError, match="ssh"):
        read([f"ssh://host/{name.replace('CANARY', str(canary))}"])


@pytest.mark.parametrize("url", ["ssh://-oProxyCommand=touch CANARY/a", "scp://-oProxyCommand=touch CANARY@host/a"])
def test_a_url_is_never_an_option_of_a_command(url, canary):
    with pytest.raises((OSError, ValueError)):
        read([url.replace("CANARY", str(canary))])


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__key__", "__url__", "__bad__", "__local_path__", "__worker__", "__anything"])
def test_a_member_cannot_pass_for_a_samples_own_entry(make_shard, name):
    shard = make_shard(files=[("a.txt", b"x"), (f"a.{name}", b"evil")])
    with pytest.warns(wds.ShardWarning, match="reserved"):
        (sample,) = read(shard)
    assert sample["__key__"] == "a"
    assert b"evil" not in sample.values()


def test_members_called_bad_do_not_drop_samples(make_shard):
    shard = make_shard(files=[("a.__bad__", b"1"), ("a.txt", b"x"), ("b.txt", b"y")])
    with pytest.warns(wds.ShardWarning, match="reserved"):
        assert [s["__key__"] for s in read(shard)] == ["a", "b"]


def test_links_and_devices_are_not_followed(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for kind, name in ((tarfile.SYMTYPE, "a.txt"), (tarfile.LNKTYPE, "b.txt"), (tarfile.CHRTYPE, "c.txt")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("d.txt"), io.BytesIO())
    assert [s["__key__"] for s in read(str(path))] == ["d"]


def test_names_that_would_garble_a_terminal_are_escaped_in_errors(make_shard):
    shard = make_shard(files=[("\x1b[2J\x07.cls", b"x")])
    with pytest.raises(DecodingError) as caught:
        read(shard, wds.decode())
    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)


def test_names_made_to_be_slow_to_split_are_not(make_shard):
    names = ["/".join(["a" * 20] * 4) + "." * 10, "." * 99, "__" + "_" * 90, "a" * 90 + "./b.c"]
    shard = make_shard(files=[(name, b"") for name in names * 200])
    before = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = read(shard, empty_check=False, handler=wds.ignore_and_continue)
    assert time.thread_time() - before < 5  # a few milliseconds, unless the length of a name counts more than once
    assert {sample["__key__"] for sample in samples} == {"/".join(["a" * 20] * 4), "a" * 90 + "./b"}


# -- sizes -----------------------------------------------------------------------------------------


def header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def within(megabytes: int, program: str, *args: str) -> subprocess.CompletedProcess:
    """Run a program that cannot have more memory than that."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    return subprocess.run([sys.executable, "-c", program, *args], preexec_fn=limit, capture_output=True, text=True)


READ = """
import sys, webdataset as wds
try:
    print(len(list(wds.WebDataset(sys.argv[1]).decode())))
except Exception as exn:
    print(type(exn).__name__, exn)
"""


def test_a_size_that_lies_takes_no_memory(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(header("a.txt", 7 << 30) + b"short")
    out = within(1024, READ, str(path))
    assert out.stdout.startswith("ShardError") or out.stdout.startswith("LimitError"), out


def test_a_member_beyond_the_limit_is_refused_with_the_cure(tmp_path, monkeypatch):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([("a.txt", b"x" * 2000)]))
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "1000")
    with pytest.raises(LimitError, match="WDS_MAX_MEMBER_BYTES"):
        read(str(path))


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_header_of_gigabytes_is_refused(tmp_path, kind):
    path = tmp_path / "a.tar"
    member = tarfile.TarInfo("a.txt")
    member.type, member.size = kind, 5 << 30
    with open(path, "wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(3 << 30)
    out = within(1024, READ, str(path))
    assert out.stdout.startswith("LimitError"), out


def test_a_shard_that_expands_without_end_takes_no_memory(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(header("a.txt", 6 << 30))
        for _ in range(300):
            file.write(bytes(1 << 20))
    out = within(1400, READ, str(path))
    assert out.stdout.startswith(("LimitError", "ShardError")), out


def test_a_field_that_expands_without_end_is_refused(make_shard, monkeypatch):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    shard = make_shard(files=[("a.txt.gz", bomb)])
    with pytest.raises(DecodingError, match="WDS_MAX_RATIO"):
        read(shard, wds.decode())


def test_a_chain_of_extended_headers_comes_to_an_end(tmp_path):
    member = tarfile.TarInfo("x" * 200)
    long_name = member.tobuf(tarfile.GNU_FORMAT)[:1024]
    path = tmp_path / "a.tar"
    path.write_bytes(long_name * 100 + tar_bytes([("a.txt", b"")]))
    with pytest.raises(ShardError):
        read(str(path))


@pytest.mark.parametrize(
    "field", ["json", "npy", "npz", "ten", "mp", "cbor", "png", "jpg", "cls", "pyd", "pth", "txt.gz"]
)
def test_garbage_under_any_extension_is_one_error_that_names_it(make_shard, field):
    shard = make_shard(files=[(f"a.{field}", b"\xff\x00garbage\x80" * 9)])
    with pytest.raises(DecodingError) as raised:
        read(shard, wds.decode("rgb"))
    assert (raised.value.url, raised.value.key, raised.value.field) == (shard, "a", field)


def test_json_deeper_than_the_stack_is_an_error(make_shard):
    shard = make_shard(files=[("a.json", b"[" * 200_000)])
    with pytest.raises(DecodingError):
        read(shard, wds.decode())


def test_an_array_that_claims_terabytes_is_an_error(make_shard):
    claim = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117) + b"\n"
    shard = make_shard(files=[("a.npy", b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim)])
    with pytest.raises(DecodingError):
        read(shard, wds.decode())


def test_braces_that_stand_for_billions_are_refused():
    with pytest.raises(ValueError, match="9999999999"):
        wds.WebDataset("a-{0..9999999999}.tar")


# -- secrets ---------------------------------------------------------------------------------------


def test_secrets_reach_no_error_warning_or_log(serve, caplog, monkeypatch):
    address = serve({"/a.tar?token=hunter2": (404, {}, b"")})
    monkeypatch.setenv("GOPEN_VERBOSE", "1")
    url = f"{address}/a.tar?token=hunter2".replace("//", "//me:hunter2@")
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = wds.WebDataset(url, handler=wds.warn_and_continue, empty_check=False)
        assert list(dataset) == []
        with pytest.raises(wds.errors.StorageError) as error:
            read(url)
    assert error.value.status == 404
    told = [str(error.value), repr(error.value), caplog.text, str(dataset.stats()), *(str(w.message) for w in caught)]
    assert len(caught) == 1
    assert not any("hunter2" in text for text in told)
    assert "127.0.0.1" in str(error.value)


def test_secrets_in_commands_reach_no_error(make_shard):
    with pytest.raises(wds.errors.CommandError) as error:
        read("pipe:echo 'Authorization: Bearer hunter2' > /dev/null; false")
    assert error.value.status == 1
    assert "hunter2" not in str(error.value)


# -- lists and indices without end -----------------------------------------------------------------


class Endless(io.RawIOBase):
    """More blanks than any list has, which cost nothing until they are kept."""

    def __init__(self, size):
        self.left = size

    def readable(self):
        return True

    def read(self, size=-1):
        data = b" " * (min(size, self.left) if size >= 0 else self.left)
        self.left -= len(data)
        return data


@pytest.mark.parametrize(
    "reading",
    [
        lambda url: wds.Catalogue.load(url),
        lambda url: wds.WebDataset(url, exact=True),
        lambda url: wids.ShardListDataset(url),
        lambda url: read_classes(url),
    ],
)
def test_a_list_without_end_is_read_up_to_a_limit(monkeypatch, reading):
    monkeypatch.setitem(wds.gopen.gopen_schemes, "endless", lambda url, mode, bufsize: Endless(400 << 20))
    with pytest.raises(LimitError, match="bytes"):
        reading("endless:list.json")
