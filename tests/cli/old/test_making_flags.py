"""Old programs that make archives: every flag does what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shard(make_shard: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """a.tar here, with the samples 000000 to 000004."""
    monkeypatch.chdir(tmp_path)
    make_shard("a.tar", 5)
    return "a.tar"


def keys(archive: Any, names: Any) -> list[str]:
    """The keys of an archive, in order."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names(archive)))


def test_tarcat_takes_one_pattern_with_b_and_names_without_data(wl: Any, shard: str, members: Any) -> None:
    assert wl.old("tarcat", "-b", shard, shard).code == 2
    assert wl.old("tarpcat", "-b").code == 2
    assert members(wl.old("tarcat", "--nodata", "-c", 1, shard).out) == {("000000.cls", b""): 1, ("000000.txt", b""): 1}
    shuffled = wl.old("tarcat", "--shuffle", 100, shard)
    assert members(shuffled.out) == members(shard)


def test_tarsplit_writes_into_commands(wl: Any, shard: str, names: Any) -> None:
    assert wl.old("tarsplit", "-n", 2, "-o", "|gzip > part-{shard:02d}.gz", shard).code == 0
    assert names("part-02.gz") == ["000004.cls", "000004.txt"]
    assert wl.old("tarsplit", "-n", 3, "-O", "cat > copy-{}", "-o", "name", shard).code == 0
    assert names("copy-name-000001.tar") == ["000003.cls", "000003.txt", "000004.cls", "000004.txt"]
    assert wl.old("tarsplit", "-n", 3, "-z", "-O", "cat >", "-o", "with space", shard).code == 0
    assert names("with space-000000.tgz") == names("a.tar")[:6]
    assert wl.old("tarsplit", "-o", "|cat > x", "-O", "cat", shard).code == 2
    assert wl.old("tarsplit", "-o", "|cat > x-%d", "-C", "true", shard).code == 2
    assert wl.old("tarsplit", "-o", "|exit 3; echo %d", shard).code == 1


def test_tarsplit_numbers_and_commands(wl: Any, shard: str) -> None:
    ended = wl.old("tarsplit", "--num-samples", 2, "--start", 7, "--maxshards", 2, "-v", "-o", "p", shard)
    assert ended.code == 0
    assert sorted(name for name in os.listdir(".") if name.startswith("p-")) == ["p-000007.tar", "p-000008.tar"]
    wl.old("tarsplit", "-s", 1000, "-C", "echo {base} {ext} {dirname} >> said", "-o", "q", shard)
    assert not [name for name in os.listdir(".") if name.startswith("q-")]
    assert Path("said").read_text().startswith("q-000000 .tar ")
    wl.old("tarsplit", "-n", 5, "-C", "true", "--nodelete", "-o", "r", shard)
    assert Path("r-000000.tar").exists()


def test_lines_and_plans(wl: Any, shard: str, members: Any) -> None:
    Path("lines").write_text("a|1\nb|2\n")
    made = wl.old("lines2tar", "-k", "txt cls", "-s", "|", "-v", "--keyformat", "k{:03d}", "lines")
    assert members(made.out)["k001.cls", b"2"] == 1
    Path("sub").mkdir()
    Path("sub/file").write_bytes(b"content")
    Path("plan").write_text("@bin;cls\nfile;3\n")
    made = wl.old("tarcreate", "-f", ";", "-k", "r{record:02d}", "-C", "sub", "plan", "-o", "plan.tar")
    assert made.code == 0
    assert members("plan.tar") == {("r00.bin", b"content"): 1, ("r00.cls", b"3"): 1}


def test_tarp_keeps_the_names_of_fields(wl: Any, shard: str, names: Any) -> None:
    assert names(wl.old("tarp", "cat", "-f", "label:cls,class", "--slice", "0:1", shard).out) == ["000000.label"]
    assert names(wl.old("tarp", "sort", "-f", "txt", "-s", "cls", "--slice", "0:1", shard).out) == ["000000.txt"]
    several = "for i in 1 5; do cp sample.cls sample-00000$i.cls; done"
    out = wl.old("tarp", "proc", "-f", "cls", "-m", several, "--slice", "0:1", shard).out
    assert names(out) == ["000000/000001.cls", "000000/000005.cls"]
    ended = wl.old(
        "tarp", "split", "-c", 2, "-s", 1e6, "-p", "echo %s >> posted", "--slice", "0:4", "-o", "s-%d.tar", shard
    )
    assert ended.code == 0
    assert Path("posted").read_text() == "s-0.tar\ns-1.tar\n"


def test_tarmix_mixes_what_a_file_names(wl: Any, shard: str, make_shard: Any, names: Any) -> None:
    make_shard("b.tar", 7, start=100)
    Path("mix.yaml").write_text(
        "sources:\n- shards: a.tar\n  weight: 3\n- shards: ['b.tar', gone.tar]\n  allow_missing: on\n"
    )
    ended = wl.old("tarmix", "mix.yaml", "-o", "out.tar", "--shuffle", 10, "-v")
    assert ended.code == 0
    assert sorted(names("out.tar")) == sorted(names("a.tar") + names("b.tar"))
    assert "12 samples" in ended.err
    assert len(keys(wl.old("tarmix", "mix.yaml", "--skip", 1, "-c", 4, "--seed", 1).out, names)) == 3
    assert wl.old("tarmix").code == 2
    Path("mix.yaml").write_text("sources: [")
    broken = wl.old("tarmix", "mix.yaml")
    assert (broken.code, "YAML" in broken.err) == (1, True)
