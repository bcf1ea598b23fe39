"""wl index: where each field of each sample is."""

from __future__ import annotations

from pathlib import Path

from webdataset import TarWriter
from webdataset.cli import main


def test_the_index_says_where_the_bytes_are(make_shard):
    shard = make_shard(samples=3)
    assert main(["index", "-q", shard]) == 0
    first, *lines = Path(shard).with_suffix(".idx").read_text().splitlines()
    assert (first, len(lines)) == ("v1.2 3", 3)
    content = Path(shard).read_bytes()
    words = lines[1].split()
    fields = {words[i]: content[int(words[i + 1]) :][: int(words[i + 2])] for i in range(0, len(words), 4)}
    assert fields == {"cls": b"1", "txt": b"txt1"}


def test_it_is_the_index_that_the_writer_writes(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=True) as sink:
        for i in range(5):
            sink.write({"__key__": f"k{i}", "cls": i, "seg.txt": "x" * i})
    written = (tmp_path / "a.idx").read_bytes()
    assert main(["index", "-q", str(tmp_path / "a.tar")]) == 0
    assert (tmp_path / "a.idx").read_bytes() == written


def test_an_index_of_another_shard_is_found(make_shard, capsys):
    shard = make_shard(samples=3)
    main(["index", "-q", shard])
    assert main(["index", "--check", shard]) == 0
    make_shard(samples=4)
    assert main(["index", "--check", shard]) == 1
    assert "wl index" in capsys.readouterr().out


def test_what_cannot_be_indexed_is_an_error_that_leaves_nothing(make_shard, tmp_path, capsys):
    shard = make_shard(files=[("a b.txt", b"x")])
    assert main(["index", shard]) == 1
    assert "name with spaces" in capsys.readouterr().err
    assert not Path(shard).with_suffix(".idx").exists()
    assert main(["index", str(tmp_path / "gone.tar")]) == 1
    assert "no such file" in capsys.readouterr().err
