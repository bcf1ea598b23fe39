"""Ceph's gateway: an S3 store that checks every signature, in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.moto import ACCESS, SECRET, S3Server
from servers.programs import START_SECONDS, NotStarted, program, running, served
from waiting import soon

PACKAGES = "apt ceph-mon ceph-osd radosgw"
CONFIG = """
[global]
fsid = {fsid}
mon_host = 127.0.0.1:{mon}
mon_data = {folder}/mon
osd_data = {folder}/osd
keyring = {folder}/keyring
run_dir = {folder}
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
admin_socket = {folder}/$name.asok
crash_dir = {folder}
pid_file =
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
osd_objectstore = memstore
memstore_device_bytes = 4294967296
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_data = {folder}/rgw
rgw_enable_usage_log = false
"""


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    for name in ("ceph-mon", "ceph-osd", "radosgw", "ceph-authtool"):
        program(name, PACKAGES)
    # the name of a socket has at most 107 bytes
    folders: list[Path] = []

    def started(mon: int, port: int) -> contextlib.AbstractContextManager[None]:
        folders.append(tmp_path_factory.mktemp("c"))
        return cluster(folders[-1], mon, port)

    with served(started, 2) as (_, port):
        yield S3Server(port, {"folder": folders[-1]})


@contextlib.contextmanager
def cluster(folder: Path, mon: int, port: int) -> Iterator[None]:
    """One monitor, one disk in memory, one gateway."""
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()
    (folder / "ceph.conf").write_text(CONFIG.format(fsid=uuid.uuid4(), mon=mon, port=port, folder=folder))
    _keys(folder)
    fsid = next(line.split()[-1] for line in (folder / "ceph.conf").read_text().splitlines() if "fsid" in line)
    _run(folder, "monmaptool", "--create", "--add", "a", f"127.0.0.1:{mon}", "--fsid", fsid, "monmap", "--clobber")
    _ceph(folder, "ceph-mon", "-i", "a", "--mkfs", "--monmap", "monmap", "--keyring", "keyring")
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(_words("ceph-mon", "-i", "a", "-f"), mon, folder))
        disk = str(uuid.uuid4())
        _ceph(folder, "ceph", "osd", "new", disk)
        key = _ceph(folder, "ceph", "auth", "get-or-create", "osd.0", "mon", "allow profile osd", "osd", "allow *")
        with open(folder / "keyring", "a") as keyring:
            keyring.write(key)
        _ceph(folder, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        stack.enter_context(_started(_words("ceph-osd", "-i", "0", "-f"), folder))
        stack.enter_context(running(_words("radosgw", "-n", "client.rgw", "-f"), port, folder))
        _user(folder)
        yield


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Another way into the same cluster, which may be killed: its port, and the process."""
    processes = []

    @contextlib.contextmanager
    def started(port: int) -> Iterator[None]:
        words = _words("radosgw", "-n", "client.rgw", "-f", "--rgw_frontends", f"beast endpoint=127.0.0.1:{port}")
        with running(words, port, folder) as process:
            processes.append(process)
            yield

    with served(started) as (port,):
        yield port, processes[-1]


def _keys(folder: Path) -> None:
    every = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"]
    _run(folder, "ceph-authtool", "--create-keyring", "keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run(folder, "ceph-authtool", "keyring", "--gen-key", "-n", "client.admin", *every, "--cap", "mgr", "allow *")
    _run(folder, "ceph-authtool", "keyring", "--gen-key", "-n", "client.rgw", *every)


def _user(folder: Path) -> None:
    words = ["radosgw-admin", "-n", "client.rgw", "user", "create", "--uid=test", "--display-name=test"]
    _ceph(folder, *words, f"--access-key={ACCESS}", f"--secret={SECRET}")


def _words(name: str, *arguments: str) -> list[str]:
    return [program(name, PACKAGES), "-c", "ceph.conf", *arguments]


def _ceph(folder: Path, name: str, *arguments: str) -> str:
    return _run(folder, name, "-c", "ceph.conf", *arguments)


def _run(folder: Path, name: str, *arguments: str) -> str:
    words = [program(name, PACKAGES), *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def _started(words: list[str], folder: Path) -> Iterator[None]:
    """A disk, which listens on ports of its own choice."""
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(words, cwd=folder, stdout=nothing, stderr=nothing, start_new_session=True)
    try:
        if not soon(lambda: "1 up" in _ceph(folder, "ceph", "osd", "stat"), START_SECONDS):
            raise NotStarted("the disk of the cluster does not come up")
        yield
    finally:
        process.kill()  # its data is in memory, and it takes long to say goodbye
        process.wait()
