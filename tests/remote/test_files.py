"""The files that start producers on clusters are what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import yaml

from webdataset.cli.running import parser_of
from webdataset.remote.addresses import addresses, places

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "remote"


def test_the_service_of_the_stateful_set_has_the_name_that_trainers_are_given() -> None:
    text = (FOLDER / "producers.yaml").read_text()
    service, stateful = yaml.safe_load_all(text)
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == stateful["spec"]["template"]["metadata"]["labels"]
    [url] = re.findall(r'RemoteLoader\("([^"]+)"', text)
    [port] = service["spec"]["ports"]
    assert service["spec"]["clusterIP"] == "None"  # the name has the addresses of all producers
    assert places(url) == [f"dns://{service['metadata']['name']}:{port['port']}"]


def test_the_commands_are_ones_that_wl_understands() -> None:
    *_, stateful = yaml.safe_load_all((FOLDER / "producers.yaml").read_text())
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["wl", "serve"]
    parsed = parser_of("serve").parse_args(container["command"][2:])
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(parsed.keys).parent), str(Path(parsed.program).parent)} <= mounted
    [line] = re.findall(r"^srun .* wl serve (.*)$", (FOLDER / "producers.sbatch").read_text(), re.MULTILINE)
    words = shlex.split(line.replace('"$processes"', "4").replace("$port", "7880"))
    assert parser_of("serve").parse_args(words).processes == 4


def test_the_batch_script_is_a_script_and_writes_the_addresses(tmp_path) -> None:
    for name, script in {"scontrol": "echo cpu-1; echo cpu-2", "srun": 'echo "$@" > srun.txt'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "cpu-[1-2]", "SLURM_CPUS_PER_TASK": "2"}
    subprocess.run(["bash", FOLDER / "producers.sbatch"], cwd=tmp_path, env=environment, check=True)
    found = (tmp_path / "producers.txt").read_text().split()
    assert found == addresses("tcp://cpu-{1,2}:788{0,1}")
    assert "--processes 2" in (tmp_path / "srun.txt").read_text()
