"""A real Slurm of one node: munged, slurmctld and slurmd, without systemd, cgroups or a database."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.programs import START_SECONDS, NotStarted, end, program, served
from waiting import soon

CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,bf_interval=1
MpiDefault=none
ReturnToService=2
MaxArraySize=101
MinJobAge=300
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000 State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Slurm:
    """`configuration` is what SLURM_CONF has to name."""

    configuration: str


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    programs = {name: program(name, "apt slurm-wlm munge") for name in ("munged", "slurmctld", "slurmd", "sinfo")}
    # the path of a socket has at most 108 characters, which those of pytest's folders may exceed
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with served(lambda *ports: _running(folder, programs, *ports), 2):
            yield Slurm(f"{folder}/slurm.conf")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(folder: Path, programs: dict[str, str], controller: int, node: int) -> Iterator[None]:
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    for name in ("state", "spool"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.unlink(missing_ok=True)
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    facts = {"folder": folder, "host": host, "user": user, "cores": os.cpu_count() or 1}
    (folder / "slurm.conf").write_text(CONFIG.format(controller=controller, node=node, **facts))
    names = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
    names |= {"log-file": "munged.log", "seed-file": "munge.seed"}
    munged = [f"--{option}={folder}/{name}" for option, name in names.items()]
    environment = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_daemon([programs["munged"], "--foreground", "--force", *munged], folder, environment))
        assert soon((folder / "munge.sock").exists)
        stack.enter_context(_daemon([programs["slurmctld"], "-D", "-c"], folder, environment))
        node_process = stack.enter_context(_daemon([programs["slurmd"], "-D"], folder, environment))

        def is_idle() -> bool:
            asked = [programs["sinfo"], "--noheader", "--format=%T"]
            told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
            return told.stdout.strip() == "idle" or node_process.poll() is not None

        if not soon(is_idle, START_SECONDS) or node_process.poll() is not None:
            log = (folder / "log.txt").read_text(errors="replace")
            raise NotStarted(f"Slurm's node is not idle: {log[-2000:]}")
        yield


@contextlib.contextmanager
def _daemon(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "log.txt", "ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        end(process)
