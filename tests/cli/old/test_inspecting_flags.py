"""Old programs that show samples: every flag does what it did."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image


@pytest.fixture
def shard(make_shard: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """a.tar here, with the samples 000000 to 000004."""
    monkeypatch.chdir(tmp_path)
    make_shard("a.tar", 5)
    return "a.tar"


def test_wl_cat_takes_a_size_and_shuffles(wl: Any, shard: str) -> None:
    ended = wl.old("wl-cat", "--size", 3, "--shuffle", 5, shard, "cls")
    assert ended.out in [b"0", b"1", b"2", b"3", b"4"]
    assert "--size " in ended.err
    assert len({wl.old("wl-cat", "--shuffle", 5, shard, "cls").out for _ in range(30)}) > 1


def test_tables_of_the_old_programs(wl: Any, shard: str) -> None:
    assert wl.old("tar2tsv", "-f", "txt;x cls", "-c", 1, shard).out == b"__key__\ttxt;x\tcls\n000000\ttxt0\t0\n"
    assert wl.old("tar2tsv", "-f", "cls", "--nokey", "--noheader", shard).out == b"0\n1\n2\n3\n4\n"
    assert json.loads(wl.old("tar2json", "-k", "cls txt", "-f", "json", shard).out)[4] == {
        "__key__": "000004", "cls": 4, "txt": "txt4",
    }  # fmt: skip
    assert wl.old("tar2json", "-a", "--nokey", shard).out.splitlines()[0] == b'{"cls": 0, "txt": "txt0"}'
    assert wl.old("tar2json", "-v", "-k", "cls", "-f", "yaml", shard).out.startswith(
        b'---\n"__key__": "000000"\n"cls": 0\n'
    )
    assert wl.old("wl-extract", "-f", "cls", "-s", 1, "-c", 1, "-S", "cls > 1", "-P", "cls *= 10", shard).out == b"30\n"
    assert wl.old("wl-extract", "-F", "json", "-d", "raw", "-c", 1, "-f", "cls", shard).out == b'{"cls": "0"}\n'


def test_tarfirst_says_the_name(wl: Any, shard: str) -> None:
    ended = wl.old("tarfirst", "-v", "-S", "cls == 3", "-f", "x;txt", shard)
    assert (ended.out, ended.err) == (b"txt3", "000003.txt\n")


@pytest.fixture
def pictures(make_shard: Callable[..., str]) -> str:
    stream = io.BytesIO()
    Image.new("L", (4, 2), 100).save(stream, "PNG")
    return make_shard("p.tar", files=[(f"{i}.{ext}", stream.getvalue()) for i in range(3) for ext in ("png", "tag")])


def test_tarshow_pauses_normalises_and_is_silent(wl: Any, pictures: str) -> None:
    assert wl.old("tarshow", "-c", 1, pictures).out.startswith(b"__key__             \t'0'\npng ")
    ended = wl.old("tarshow", "-f", "PNG", "-N", "-C", "gray", "-d", 0.01, "--silent", "--use-keyboard", pictures)
    assert ended.code == 0
    assert b"__key__" not in ended.out
    assert wl.old("tarshow", "-f", "PNG", "--verbatim-keys", pictures).code == 1
    assert wl.old("tarshow", "-C", "jet", pictures).code == 2


def test_wl_show_takes_each_nth_sample(wl: Any, shard: str) -> None:
    shown = wl.old("wl-show", "-e", 2, "-s", 1, "-f", "cls", "--shuffle", 0, shard).out.decode()
    assert re.findall(r"b'(\d)'", shown) == ["1", "3"]


def test_wl_dump_and_wl_test(wl: Any, shard: str) -> None:
    assert wl.old("wl-dump", "--shuffle", 5, "-s", 1, "-S", "cls >= 0", "-f", "txt", "-o", "d-{key}", shard).code == 0
    assert len([name for name in os.listdir(".") if name.startswith("d-")]) == 1
    line = "wl-test --nbatches 1 --batchsize 2 --fields cls --decode basic --shuffle 3 --processes 0"
    assert "samples/s" in wl.old(*line.split(), shard).out.decode()
