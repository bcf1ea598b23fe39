from __future__ import annotations

import os
import shlex
import threading

import pytest

import webdataset as wds
from servers.sshd import CuttingProxy
from tests_support import numbered, tar_bytes
from webdataset.base.reports import Report
from webdataset.errors import CommandError, MissingShardError, SecurityError, StorageError, UnavailableError
from webdataset.storage.shell.ssh import SshStream, SshUpload, open_ssh, ssh_address

DATA = os.urandom(3_000_000)
QUICK = {"first_pause": 0.001}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(DATA)
    return path


# -- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("ssh://h/a.tar", "/a.tar"),
        ("sftp://h//a.tar", "//a.tar"),
        ("scp://h/~/a/b.tar", "a/b.tar"),
        ("ssh://h/a%20b%25.tar", "/a b%.tar"),
        ("ssh://h/a?b#c.tar", "/a?b#c.tar"),
    ],
)
def test_the_path_is_what_stands_after_the_host(url, path):
    assert ssh_address(url).path == path


@pytest.mark.parametrize("url", ["ssh://-oProxyCommand=id/a", "ssh://-x@host/a", "ssh://h%20o/a", "ssh://a%0Ab@host/a"])
def test_a_name_that_ssh_could_take_for_an_option_is_refused(url):
    with pytest.raises(SecurityError):
        ssh_address(url)


@pytest.mark.parametrize("url", ["ssh:/a", "ssh://host", "ssh://host/", "ssh:///a", "ssh://host:x/a"])
def test_a_url_without_host_or_path_is_an_error(url):
    with pytest.raises(StorageError):
        ssh_address(url)


def test_a_password_in_an_ssh_url_is_an_error_that_does_not_show_it():
    with pytest.raises(StorageError, match="ssh-agent") as caught:
        ssh_address("ssh://me:topsecret@host/a")
    assert "topsecret" not in str(caught.value)


def test_secure_mode_runs_no_ssh(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SecurityError):
        open_ssh("ssh://127.0.0.1/a.tar")


def test_a_missing_program_is_an_error_with_the_cure(monkeypatch):
    monkeypatch.setenv("WDS_SSH", "no-such-ssh")
    with pytest.raises(CommandError, match="openssh-client"):
        open_ssh("ssh://127.0.0.1/a.tar")


# -- reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ssh", "sftp", "scp"])
def test_a_file_arrives_whole(ssh, file, scheme):
    with wds.gopen(ssh.url(file, scheme=scheme)) as stream:
        assert stream.read() == DATA
        assert stream.read(1) == b""


def test_reads_of_any_size_give_the_same_bytes(ssh, tmp_path):
    (tmp_path / "a").write_bytes(DATA[:70_000])
    for size in (333, 65536, 70_000, 100_000):
        with open_ssh(ssh.url(tmp_path / "a")) as stream:
            parts = list(iter(lambda: stream.read(size), b""))  # noqa: B023
            assert b"".join(parts) == DATA[:70_000]
            assert all(len(part) == size for part in parts[:-1])


def test_an_empty_file_is_empty(ssh, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with open_ssh(ssh.url(tmp_path / "a")) as stream:
        assert stream.read() == b""


@pytest.mark.parametrize(
    "name", ["it's $(touch x).tar", "-rf", "a b;c&d|e.tar", 'q"\\`.tar', "ä.tar", "a\nb.tar", "%41"]
)
def test_a_name_means_nothing_to_the_shell(ssh, tmp_path, name):
    from urllib.parse import quote

    (tmp_path / name).write_bytes(b"hello")
    with open_ssh(ssh.url(f"{tmp_path}/{quote(name)}")) as stream:
        assert stream.read() == b"hello"
    with open_ssh(ssh.url(f"{tmp_path}/{quote(name)}2"), "wb") as sink:
        sink.write(b"there")
    assert sorted(os.listdir(tmp_path)) == sorted([name, name + "2"])


def test_a_dataset_is_read_over_ssh(ssh, tmp_path):
    for number in range(2):
        (tmp_path / f"a-{number}.tar").write_bytes(tar_bytes(numbered(5, 5 * number)))
    samples = list(wds.WebDataset(ssh.url(tmp_path) + "/a-{0..1}.tar", shardshuffle=False))
    assert len(samples) == 10


@pytest.mark.usefixtures("own_cache")
def test_an_exact_dataset_reads_copies_of_its_shards(ssh, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes(numbered(20)))
    dataset = wds.WebDataset(ssh.url(tmp_path) + "/a.tar", exact=True).to_tuple("__key__")
    assert len(dataset) == 20
    assert sorted(key for (key,) in dataset) == [f"{i:06d}" for i in range(20)]


def test_a_missing_file_is_a_missing_shard(ssh, tmp_path):
    url = ssh.url(tmp_path / "none.tar")
    with pytest.raises(MissingShardError) as raised:
        open_ssh(url, **QUICK)
    assert (raised.value.url, "name" in raised.value.hint) == (url, True)


def test_a_folder_is_an_error(ssh, tmp_path):
    with pytest.raises(StorageError, match="regular"):
        open_ssh(ssh.url(tmp_path), **QUICK)


def test_a_file_that_may_not_be_read_is_an_error(ssh, tmp_path):
    # root reads anything but a folder's inside that is none
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError):
        open_ssh(ssh.url(tmp_path / "a" / "b"), **QUICK)


def test_an_unknown_host_key_is_refused_with_the_cure(ssh, file, monkeypatch, tmp_path):
    monkeypatch.setenv("WDS_SSH", f"{ssh.command} -o HostKeyAlias=other")
    with pytest.raises(StorageError) as raised:
        open_ssh(ssh.url(file), **QUICK)
    assert "known_hosts" in raised.value.hint


def test_a_wrong_key_is_refused_with_the_cure(ssh, file, monkeypatch):
    monkeypatch.setenv("WDS_SSH", f"{ssh.command} -o PubkeyAuthentication=no")
    with pytest.raises(StorageError) as raised:
        open_ssh(ssh.url(file), **QUICK)
    assert "agent" in raised.value.hint


def test_a_refused_connection_is_tried_again_then_an_error(ssh, file, closed_port):
    with pytest.raises(UnavailableError, match="refused"):
        open_ssh(ssh.url(file, port=closed_port), retries=2, **QUICK)


def test_a_broken_connection_is_taken_up_at_the_exact_byte(ssh, file, cutting_proxy):
    cutting_proxy.append(CuttingProxy(ssh.port, [1000, 500_000, 900_000]))
    report = Report()
    with report.in_force(), open_ssh(ssh.url(file, port=cutting_proxy[0].port), **QUICK) as stream:
        assert stream.read() == DATA
        assert stream.retried == 3
    assert cutting_proxy[0].connections == 4
    assert report.as_dict()["shards_retried"] == 1


def test_progress_renews_the_retries(ssh, file, cutting_proxy):
    cutting_proxy.append(CuttingProxy(ssh.port, [300_000] * 9))
    with open_ssh(ssh.url(file, port=cutting_proxy[0].port), retries=1, **QUICK) as stream:
        assert stream.read() == DATA


def test_a_file_that_changed_in_between_is_an_error(ssh, file, cutting_proxy):
    cutting_proxy.append(CuttingProxy(ssh.port, [500_000]))
    with open_ssh(ssh.url(file, port=cutting_proxy[0].port), **QUICK) as stream:
        stream.read(1000)
        file.rename(f"{file}.old")
        file.write_bytes(os.urandom(len(DATA)))
        with pytest.raises(StorageError, match="changed"):
            stream.read()


def test_a_connection_that_always_breaks_ends_in_an_error(ssh, file, cutting_proxy):
    cutting_proxy.append(CuttingProxy(ssh.port, [100] * 20))
    with pytest.raises(StorageError):
        open_ssh(ssh.url(file, port=cutting_proxy[0].port), retries=2, **QUICK)
    assert cutting_proxy[0].connections == 3


def test_stopping_early_ends_the_command_at_once(ssh, tmp_path):
    (tmp_path / "big").write_bytes(bytes(20_000_000))
    stream = open_ssh(ssh.url(tmp_path / "big"))
    stream.read(10)
    child = stream._child.proc
    stream.close()
    assert child.returncode is not None


def test_streams_in_threads_do_not_disturb_each_other(ssh, file):
    results = []

    def read():
        with SshStream(ssh.url(file)) as stream:
            results.append(stream.read() == DATA)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


# -- writing -------------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_complete(ssh, tmp_path):
    sink = wds.gopen(ssh.url(tmp_path / "a.tar"), "wb")
    sink.write(DATA)
    assert not (tmp_path / "a.tar").exists()
    sink.close()
    assert (tmp_path / "a.tar").read_bytes() == DATA
    assert os.listdir(tmp_path) == ["a.tar"]
    sink.close()


def test_an_aborted_file_leaves_nothing(ssh, tmp_path):
    sink = SshUpload(ssh.url(tmp_path / "a.tar"))
    sink.write(DATA)
    sink.abort()
    assert os.listdir(tmp_path) == []


def test_an_error_in_the_block_leaves_nothing(ssh, tmp_path):
    with pytest.raises(TypeError), SshUpload(ssh.url(tmp_path / "a.tar")) as sink:
        sink.write("text instead of bytes")
    assert os.listdir(tmp_path) == []


def test_a_connection_that_breaks_while_writing_publishes_nothing(ssh, tmp_path, cutting_proxy):
    # towards the client only handshake and acknowledgements pass; the cut comes in the middle of the data
    cutting_proxy.append(CuttingProxy(ssh.port, [4000, 0, 0, 0]))
    (tmp_path / "a.tar").write_bytes(b"old")
    sink = SshUpload(ssh.url(tmp_path / "a.tar", port=cutting_proxy[0].port))
    with pytest.raises(StorageError, match="write"):
        _write_much(sink)
    sink.abort()
    assert (tmp_path / "a.tar").read_bytes() == b"old"


def _write_much(sink):
    for _ in range(200):
        sink.write(bytes(1_000_000))
    sink.close()


def test_a_lost_byte_is_noticed_before_the_name_is_given(ssh, tmp_path):
    sink = SshUpload(ssh.url(tmp_path / "a.tar"))
    sink.write(b"12345")
    sink._size += 1
    with pytest.raises(StorageError, match="write"):
        sink.close()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_an_error(ssh, tmp_path):
    with pytest.raises(StorageError, match="write"), SshUpload(ssh.url(tmp_path / "none" / "a.tar")) as sink:
        sink.write(b"x")


def test_a_folder_is_not_written_into(ssh, tmp_path):
    (tmp_path / "a.tar").mkdir()
    with pytest.raises(StorageError, match="directory"), SshUpload(ssh.url(tmp_path / "a.tar")) as sink:
        sink.write(b"x")
    assert os.listdir(tmp_path / "a.tar") == []


def test_a_shard_is_written_over_ssh_and_read_back(ssh, tmp_path):
    url = ssh.url(tmp_path / "a.tar")
    with wds.TarWriter(url) as sink:
        for number in range(20):
            sink.write({"__key__": f"{number:04d}", "txt": f"text {number}"})
    assert [sample["txt"] for sample in wds.WebDataset(url, shardshuffle=False).decode()] == [
        f"text {n}" for n in range(20)
    ]
    assert os.listdir(tmp_path) == ["a.tar"]


def test_the_command_line_shows_no_more_than_the_url(ssh, file):
    with open_ssh(ssh.url(file)) as stream:
        words = stream._child.command
        assert words[: len(shlex.split(ssh.command))] == shlex.split(ssh.command)
        assert words[-3:-1] == ["--", "127.0.0.1"]
