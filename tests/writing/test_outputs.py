"""Where archives go: files, streams, commands, compressed or not."""

import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from webdataset.writer import TarWriter


def members_of(archive: bytes | Path) -> dict[str, bytes]:
    data = archive.read_bytes() if isinstance(archive, Path) else archive
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def sample(i: int) -> dict:
    return {"__key__": f"{i:06d}", "txt": f"text {i}", "cls": i}


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("kind", [str, Path, lambda path: f"file:{path}", lambda path: f"pipe:cat > '{path}'"])
def test_a_path_or_url_is_opened(tmp_path, kind):
    with TarWriter(kind(tmp_path / "a.tar")) as sink:
        sink.write(sample(1))
    assert members_of(tmp_path / "a.tar") == {"000001.cls": b"1", "000001.txt": b"text 1"}
    assert names_in(tmp_path) == ["a.tar"]


def test_a_stream_is_left_open():
    stream = io.BytesIO(b"")
    TarWriter(stream).close()
    assert (stream.closed, stream.getvalue()) == (False, bytes(1024))


def test_a_stream_that_takes_little_at_a_time_gets_everything():
    class Slow(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def write(self, data):
            self.data += bytes(data[:1000])
            return len(data[:1000])

    stream = Slow()
    with TarWriter(stream) as sink:
        sink.write({"__key__": "a", "bin": b"x" * 5000})
    assert members_of(stream.data) == {"a.bin": b"x" * 5000}


def test_the_standard_output_can_be_written_to(tmp_path):
    code = "from webdataset.writer import *\nwith TarWriter('-') as sink: sink.write({'__key__': 'a', 'txt': 'x'})"
    done = subprocess.run([os.sys.executable, "-c", code], capture_output=True, check=True)
    assert members_of(done.stdout) == {"a.txt": b"x"}


def test_a_device_is_written_in_place():
    with TarWriter("/dev/null") as sink:
        sink.write(sample(1))
    assert not Path("/dev/null").is_file()


def test_a_named_pipe_is_written_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with TarWriter(tmp_path / "pipe") as sink:
        sink.write(sample(1))
    reader.join(60)
    assert list(members_of(got[0])) == ["000001.cls", "000001.txt"]
    assert names_in(tmp_path) == ["pipe"]


@pytest.mark.parametrize("fileobj", [3, None, io.StringIO()])
def test_what_cannot_be_written_to_is_refused(fileobj):
    with pytest.raises(TypeError, match="binary"):
        TarWriter(fileobj)


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("a.tar", b"000001"),
        ("a.tgz", b"\x1f\x8b\x08"),
        ("a.tar.gz", b"\x1f\x8b\x08"),
        ("a.tar.bz2", b"BZh"),
        ("a.tar.xz", b"\xfd7zXZ"),
        ("a.tar.zst", b"\x28\xb5\x2f\xfd"),
        ("a.tar.lz4", b"\x04\x22\x4d\x18"),
    ],
)
def test_the_suffix_says_how_to_compress(tmp_path, name, magic):
    from webdataset.codecs.compression import decompressed

    with TarWriter(tmp_path / name) as sink:
        sink.write(sample(1))
    with (tmp_path / name).open("rb") as file:
        assert file.read(len(magic)) == magic
        file.seek(0)
        assert members_of(decompressed(file).read()) == {"000001.cls": b"1", "000001.txt": b"text 1"}


@pytest.mark.parametrize(
    ("compress", "magic"), [(True, b"\x1f\x8b"), ("gz", b"\x1f\x8b"), ("zst", b"\x28\xb5"), (False, b"00")]
)
def test_the_compression_can_be_chosen(compress, magic):
    stream = io.BytesIO()
    with TarWriter(stream, compress=compress) as sink:
        sink.write(sample(1))
    assert stream.getvalue()[:2] == magic


def test_an_unknown_compression_is_refused(tmp_path):
    with pytest.raises(ValueError, match="compress"):
        TarWriter(tmp_path / "a.tar", compress="zip")
    assert names_in(tmp_path) == []


def test_a_command_that_compresses_itself_gets_plain_data(tmp_path):
    with TarWriter(f"pipe:cat > {tmp_path}/a.tar.zst") as sink:
        sink.write(sample(1))
    assert list(members_of(tmp_path / "a.tar.zst")) == ["000001.cls", "000001.txt"]
