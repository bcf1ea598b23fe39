"""Errors name their place, keep secrets, and survive the way from a worker."""

from __future__ import annotations

import pickle
import tarfile

import pytest

import webdataset as wds
from webdataset import errors, gopen
from webdataset.base.redact import redacted
from webdataset.errors import DecodingError, ShardError, StorageError, WebDatasetError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WebDatasetError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_pickles_with_its_place(kind):
    error = kind("it broke").at(url="http://h/a.tar", offset=512, member="a.jpg", key="a", field="jpg", shard=3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.url, copy.shard, copy.offset) == ("http://h/a.tar", 3, 512)
    assert (copy.member, copy.key, copy.field) == ("a.jpg", "a", "jpg")
    assert str(copy) == str(error)
    assert all(shown in str(copy) for shown in ("it broke", "http://h/a.tar", "512", "a.jpg"))


def test_a_hint_is_shown_and_pickles():
    copy = pickle.loads(pickle.dumps(ShardError("it broke", hint="mend it")))
    assert copy.hint == "mend it"
    assert "mend it" in str(copy)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, StorageError)])
def test_an_error_of_storage_pickles_with_its_status_and_whether_to_try_again(kind):
    copy = pickle.loads(pickle.dumps(kind("it broke", status=503, retryable=True)))
    assert (copy.status, copy.retryable) == (503, True)
    copy = pickle.loads(pickle.dumps(kind("it broke")))
    assert (copy.status, copy.retryable) == (None, kind is errors.UnavailableError)


@pytest.mark.parametrize(
    ("kind", "older"),
    [
        (ShardError, tarfile.ReadError),
        (StorageError, OSError),
        (errors.MissingShardError, FileNotFoundError),
        (errors.ExistingShardsError, FileExistsError),
        (errors.SampleError, ValueError),
        (errors.EncodingError, ValueError),
        (errors.SecurityError, ValueError),
        (errors.UnsafePickleError, pickle.UnpicklingError),
        (errors.EmptyDatasetError, ValueError),
        (errors.MissingPackageError, ImportError),
    ],
)
def test_handlers_of_older_programs_catch_our_errors(kind, older):
    assert issubclass(kind, older)


def test_a_message_is_one_line_that_cannot_garble_a_terminal():
    error = ShardError("bad\nheader", member="\x1b[2Jevil\n" + "x" * 500)
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert len(str(error)) < 300


def test_places_that_are_known_are_not_overwritten():
    assert ShardError("x", offset=1).at(offset=2, url="u").offset == 1


def test_a_decoding_error_has_its_old_attributes():
    error = DecodingError("not a png", key="k", k="png", sample={"png": b""}, url="u")
    assert (error.url, error.key, error.k, error.sample) == ("u", "k", "png", {"png": b""})


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"http://user:{SECRET}@host/a.tar",
        f"https://{SECRET}@host/a.tar",
        f"https://user:p@{SECRET}@host/a.tar",
        f"https://h/a?X-Amz-Signature={SECRET}",
        f"https://h/a?x=1&X-Amz-Security-Token={SECRET}&y=2",
        f"https://h/a?X-Amz-Credential={SECRET}",
        f"https://h/a?sig={SECRET}&se=2030",
        f"https://h/a?access_token={SECRET}",
        f"https://h/a?api_key={SECRET}",
        f"https://h/a?GoogleAccessId=me&Signature={SECRET}",
        f"pipe:curl -H 'Authorization: Bearer {SECRET}' http://h/a",
        f"pipe:curl -H 'Authorization: Basic {SECRET}' http://h/a",
        f"pipe:curl -H 'X-Auth-Token: {SECRET}' http://h/a",
        f"pipe:curl -u me:{SECRET} http://h/a",
        f"pipe:curl --user me:{SECRET} http://h/a",
        f"pipe:tool --password={SECRET} x",
        f"pipe:tool --secret-key {SECRET} x",
        f"pipe:AWS_SECRET_ACCESS_KEY={SECRET} aws s3 cp s3://b/a -",
        f"pipe:HF_TOKEN={SECRET} curl http://h",
    ],
)
def test_secrets_in_urls_and_commands_are_masked(text, monkeypatch):
    assert SECRET not in redacted(text)
    assert SECRET not in str(StorageError(text, url=text))
    assert SECRET not in repr(StorageError(text, url=text))
    monkeypatch.setenv("WDS_SHOW_SECRETS", "1")
    assert SECRET in redacted(text)


def test_text_without_secrets_stays_as_it_is():
    for text in ("http://host:80/a@b.tar?part=1", "pipe:cat a.tar | gunzip", "/data/a.tar", "s3://bucket/key/a.tar"):
        assert redacted(text) == text


@pytest.mark.parametrize(
    ("data", "format"), [(b"PK\x03\x04" + bytes(600), "a zip archive"), (b"<html>" * 99, "HTML"), (b"x" * 600, "text")]
)
def test_what_is_no_tar_archive_says_what_it_looks_like(tmp_path, data, format):
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(errors.NotATarError) as raised:
        next(iter(wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)))
    assert pickle.loads(pickle.dumps(raised.value)).format == format


def test_an_object_that_can_only_be_read_whole_says_how_to_read_it_all_the_same():
    with pytest.raises(errors.NoRangesError) as raised:
        gopen.open_ranges("pipe:true")
    assert "cache_dir" in raised.value.hint
