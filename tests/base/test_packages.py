"""Optional packages that are missing, in a folder where something else has their names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import webdataset

USES = {
    "PIL": ("image", "decoded('jpg', 'pil')"),
    "av": ("video", "decoded('mp4', wds.video(frames=2))"),
    "torch": ("torch", "written('pth')"),
    "cbor2": ("formats", "written('cbor')"),
    "msgpack": ("formats", "decoded('mp')"),
    "safetensors": ("formats", "written('safetensors')"),
    "yaml": ("formats", "wds.MultiShardSample('shards.yaml')"),
    "lmdb": ("cache", "list(wds.LMDBCached('kept').run([{'txt': 'a'}]))"),
    "lz4": ("compression", "list(wds.WebDataset('a.tar.lz4', shardshuffle=False))"),
    "zmq": ("net", "next(iter(wds.RemoteLoader('ipc:///nowhere/socket')))"),
    "huggingface_hub": ("hf", "wds.gopen('hf://datasets/o/n/a.tar', 'wb').close()"),
    "pyarrow": ("parquet", "list(parquet_rows('a.parquet'))"),
    "matplotlib": ("plot", "drawing_package()"),
    "ray": ("ray", "wds.read_ray('a.tar')"),
}
PROGRAM = """
import json, sys
import numpy as np
import webdataset as wds
from webdataset.tools.inspect.histograms import drawing_package
from webdataset.tools.make.importing import parquet_rows

def decoded(field, *how):
    return list(wds.decode(*how)([{"__key__": "a", field: b"x"}]))

def written(field):
    with wds.TarWriter("out.tar") as sink:
        sink.write({"__key__": "a", field: {"x": np.zeros(1)}})

told = {}
for name, use in json.loads(sys.argv[1]).items():
    try:
        eval(use)
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a Python that has numpy alone says of each package, in a folder with a folder of every name."""
    library, here = tmp_path_factory.mktemp("library"), tmp_path_factory.mktemp("here")
    of_numpy = Path(np.__file__).parent
    for path in (Path(webdataset.__file__).parent, of_numpy, of_numpy.with_name("numpy.libs")):
        (library / path.name).symlink_to(path)
    for name in USES:
        (here / name).mkdir()
    (here / "av" / "clip.mp4").write_bytes(b"x")
    (here / "a.tar.lz4").write_bytes(b"\x04\x22\x4d\x18")
    (here / "a.parquet").write_bytes(b"PAR1")
    uses = json.dumps({name: use for name, (_, use) in USES.items()})
    environment = {**os.environ, "PYTHONPATH": str(library), "ALLOW_OBSOLETE": "1"}
    words = [sys.executable, "-S", "-c", PROGRAM, uses]
    ended = subprocess.run(words, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("name", USES)
def test_a_folder_with_the_name_of_a_package_is_not_taken_for_it(told: dict[str, str], name: str) -> None:

    assert f"webdataset[{USES[name][0]}]" in told[name]
