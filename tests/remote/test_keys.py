"""Keys: who is let in, and what is said to those who are not."""

from __future__ import annotations

import json
import os
import shutil
import stat

import pytest

import webdataset as wds
from remote_support import Fleet, dataset, flat, keys
from webdataset.remote.keys import make_keys, read_keys

pytestmark = pytest.mark.xdist_group("remote")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_keys(str(folder / "serve.key"), [str(folder / "train.key")])
    make_keys(str(folder / "other-serve.key"), [str(folder / "stranger.key")])
    return folder


@pytest.fixture(scope="module")
def guarded(files, shards):
    with Fleet(1, dataset, shards, keys=str(files / "serve.key")) as fleet:
        yield fleet.urls


def test_a_trainer_with_a_key_of_the_list_is_served(guarded, files) -> None:
    with wds.RemoteLoader(guarded, keys=files / "train.key", patience=60) as loader:
        assert len({*flat(keys(loader))}) == 129


def test_a_key_that_is_not_in_the_list_is_refused_at_once_with_the_address(guarded, files, tmp_path) -> None:
    shutil.copy(files / "serve.key", tmp_path)
    make_keys(str(tmp_path / "serve.key"), [str(tmp_path / "late.key")])  # which the producer has not read
    told = pytest.raises(wds.SecurityError, match="trainer")
    with wds.RemoteLoader(guarded, keys=tmp_path / "late.key", patience=1000) as loader, told as raised:
        len(loader)
    assert guarded[0] in str(raised.value)


@pytest.mark.parametrize("name", ["stranger.key", None])
def test_keys_of_something_else_or_none_are_told_after_the_patience(guarded, files, name) -> None:
    own = None if name is None else files / name
    told = pytest.raises(wds.UnavailableError, match="key")
    with wds.RemoteLoader(guarded, keys=own, patience=2) as loader, told as raised:
        len(loader)
    assert guarded[0] in str(raised.value)


def test_a_stranger_does_not_keep_others_from_being_served(guarded, files) -> None:
    import socket

    host, port = guarded[0].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"\xff" * 100)
        wrong = wds.RemoteLoader(guarded, keys=files / "stranger.key", patience=2)
        with wrong, wds.RemoteLoader(guarded, keys=files / "train.key", patience=60) as right:
            batches = iter(right)
            next(batches)
            with pytest.raises(wds.WebDatasetError):
                len(wrong)
            assert len(list(batches)) == 32


def test_keys_are_for_their_owner_only(files) -> None:
    for name in ("serve.key", "train.key"):
        assert stat.S_IMODE(os.stat(files / name).st_mode) == 0o600
    server, client = read_keys(str(files / "serve.key")), read_keys(str(files / "train.key"))
    assert client.server == server.public
    assert server.trainers == (("train", client.public),)
    assert server.secret not in (server.public, client.secret)
    assert server.secret.decode() not in repr(server)


def asks_with(path) -> None:
    """Make a loader that asks a producer on this machine with these keys."""
    wds.RemoteLoader("tcp://127.0.0.1:1", keys=path).close()


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_keys_that_others_can_read_are_warned_of(files, tmp_path, mode) -> None:
    shutil.copy(files / "train.key", tmp_path)
    (tmp_path / "train.key").chmod(mode)
    with pytest.warns(UserWarning, match="chmod 600"):
        asks_with(tmp_path / "train.key")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_keys_that_others_can_replace_are_refused(files, tmp_path, mode) -> None:
    shutil.copy(files / "train.key", tmp_path)
    (tmp_path / "train.key").chmod(mode)
    with pytest.raises(wds.SecurityError) as raised:
        asks_with(tmp_path / "train.key")
    assert (raised.value.url, "chmod 600" in raised.value.hint) == (str(tmp_path / "train.key"), True)


def test_without_a_guard_nobody_is_let_in(files) -> None:
    import zmq
    from zmq.utils.monitor import parse_monitor_message

    server, client = read_keys(str(files / "serve.key")), read_keys(str(files / "train.key"))
    with zmq.Context() as context, context.socket(zmq.PUSH) as bound, context.socket(zmq.PULL) as trainer:
        server.serve(context, bound).stop()
        client.connect(trainer)
        heard = trainer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        trainer.connect(f"tcp://127.0.0.1:{bound.bind_to_random_port('tcp://127.0.0.1')}")
        event = parse_monitor_message(heard.recv_multipart())["event"]
        trainer.disable_monitor()
        heard.close()
        bound.close(linger=0)
    assert event == zmq.EVENT_DISCONNECTED


def test_more_trainers_are_added_to_a_producers_keys(tmp_path) -> None:
    producer, first, second = (str(tmp_path / name) for name in ("serve.key", "a.key", "sub/../b.key"))
    (tmp_path / "sub").mkdir()
    make_keys(producer, [first])
    before = read_keys(producer)
    make_keys(producer, [second])
    after = read_keys(producer)
    assert after.secret == before.secret
    assert [name for name, _ in after.trainers] == ["a", "b"]
    with pytest.raises(wds.StorageError, match="already") as raised:
        make_keys(producer, [first])
    assert raised.value.url == first


def test_the_wrong_file_is_told(files, tmp_path) -> None:
    with pytest.raises(wds.SecurityError, match="producer") as raised:
        wds.Connection("zpull://127.0.0.1:0", keys=files / "train.key")
    assert raised.value.url == str(files / "train.key")
    with pytest.raises(wds.StorageError) as missing:
        asks_with(tmp_path / "none.key")
    assert missing.value.url == str(tmp_path / "none.key")
    for text in ("", "{}", "[1]", json.dumps({"kind": "trainer", "public": "short", "secret": "x", "server": "y"})):
        (tmp_path / "bad.key").write_text(text)
        with pytest.raises(wds.SecurityError, match="no keys") as raised:
            asks_with(tmp_path / "bad.key")
        assert raised.value.url == str(tmp_path / "bad.key")


def test_other_machines_need_keys_or_a_word(shards, files) -> None:
    with pytest.raises(wds.SecurityError) as raised:
        wds.serve(dataset(shards), "tcp://0.0.0.0:0")
    assert raised.value.url == "tcp://0.0.0.0:0"
    assert "wl keygen" in raised.value.hint
    assert "--insecure" in raised.value.hint
    with Fleet(1, dataset, shards, address="tcp://0.0.0.0:0", keys=str(files / "serve.key")) as fleet:
        here = fleet.urls[0].replace("0.0.0.0", "127.0.0.1")
        with wds.RemoteLoader(here, keys=files / "train.key", patience=60) as loader:
            assert len(loader) == 33
    with Fleet(1, dataset, shards, address="tcp://0.0.0.0:0", insecure=True) as fleet:
        assert fleet.urls
