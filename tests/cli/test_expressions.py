"""The code of the user: expressions, statements, files and functions."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


def test_assigning_to_a_fields_name_changes_the_field(wl: Any, shard: str, members: Any) -> None:
    assert members(wl("map", "-e", "cls = cls * 10", shard).out)["003.cls", b"30"] == 1


@pytest.mark.parametrize("code", ["_.pop('jpg')", "_.update(cls=7)", "print(cls, file=None)", "del _['jpg']"])
def test_calls_for_their_effect_do_not_drop_the_sample(wl: Any, shard: str, code: str, names: Any) -> None:
    assert "003.txt" in names(
        wl("map", "-o", "-", "-e", code.replace("file=None", "end='', file=os.sys.stderr"), shard).out
    )


def test_a_file_and_a_function_of_a_module(
    wl: Any, shard: str, tmp_path: Path, members: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "def transform(sample):\n    sample['cls'] += 5\n    return sample\n\ndef drop(sample):\n    return None\n"
    (tmp_path / "mycode.py").write_text(code)
    assert members(wl("map", "-l", tmp_path / "mycode.py", shard).out)["003.cls", b"8"] == 1
    assert members(wl("map", "-l", f"{tmp_path}/mycode.py:drop", shard).out) == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    assert members(wl("map", "-m", "mycode:transform", shard).out)["003.cls", b"8"] == 1
    assert "'nothing'" in wl("map", "-m", "mycode:nothing", shard).err


def test_precode_runs_once_and_its_names_stay(wl: Any, shard: str, members: Any) -> None:
    out = members(wl("map", "-C", "n = 100", "-e", "n += 1; _['cls'] = n", shard).out)
    assert out["009.cls", b"110"] == 1


def test_code_from_the_data_is_never_run(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'trap')!r}, 'w')".encode()
    shard = make_shard("trap.tar", files=[("a.txt", trap), ("a.json", b'"__import__"'), ("a.py", trap)])
    assert wl("map", "-S", "txt and json", "-e", "_", shard).code == 0
    assert not (tmp_path / "trap").exists()


def test_a_pickle_in_the_data_is_refused(wl: Any, make_shard: Any) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    ended = wl("map", "-e", "pyd", make_shard("p.tar", files=[("a.pyd", pickle.dumps(Evil()))]))
    assert ended.code == 1
    assert "system" in ended.err
