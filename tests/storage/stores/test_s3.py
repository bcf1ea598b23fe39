"""S3: signatures, credentials, regions, and the answers that a well behaved server does not give."""

from __future__ import annotations

import hashlib
import os

import pytest

from servers.doubles import Double, Reply, ranged
from webdataset.errors import MissingShardError, StorageError, UnavailableError
from webdataset.gopen import gopen
from webdataset.storage.stores import uploads
from webdataset.storage.stores.lookup import stored_object
from webdataset.storage.stores.markup import parsed
from webdataset.storage.stores.s3 import S3Client

pytestmark = pytest.mark.usefixtures("nobody")

MD5 = hashlib.md5(b"data").hexdigest()


@pytest.fixture
def s3(monkeypatch):
    """A server that answers what a test says, and keys for it."""
    doubles = []

    def start(answer):
        doubles.append(Double(answer))
        monkeypatch.setenv("AWS_ENDPOINT_URL", doubles[-1].url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ACCESS")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-secret")
        return doubles[-1]

    yield start
    for double in doubles:
        double.close()


def error(status, code, message="", region="", **headers):
    more = f"<Region>{region}</Region>" if region else ""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>"
    return Reply(status, body.encode(), headers)


def data(question):
    return ranged(question, b"data", f'"{MD5}"')


# -- signatures ------------------------------------------------------------------------------------


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "region", "address"),
    [("s3://bucket/a b.tar", "eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/a%20b.tar"),
     ("s3://my.bucket/a", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/my.bucket/a"),
     ("s3://bucket/a", "cn-north-1", "https://bucket.s3.cn-north-1.amazonaws.com.cn/a"),
     ("s3://bucket//a/../b", "us-east-1", "https://bucket.s3.us-east-1.amazonaws.com//a/../b"),
     ("s3://evil.com/#@x", "us-east-1", "https://s3.us-east-1.amazonaws.com/evil.com/%23%40x"),
     ("s3://a@evil.com:80/x", "us-east-1", "https://s3.us-east-1.amazonaws.com/a%40evil.com%3A80/x")],
)  # fmt: skip
def test_urls_become_addresses_of_amazon(url, region, address):
    assert S3Client(url, region=region).address() == address


# -- credentials -----------------------------------------------------------------------------------


def test_without_credentials_requests_are_not_signed(s3, monkeypatch):
    double = s3(data)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert gopen("s3://public/a.tar").read() == b"data"
    assert "authorization" not in double.questions[0].headers


def test_no_sign_request_hides_the_credentials_there_are(s3, monkeypatch):
    double = s3(data)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    assert gopen("s3://public/a.tar").read() == b"data"
    assert "authorization" not in double.questions[0].headers


# -- regions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elsewhere",
    [error(400, "AuthorizationHeaderMalformed", region="eu-central-1"),
     error(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-central-1"})],
    ids=["400", "301"],
)  # fmt: skip
def test_a_bucket_in_another_region_is_found_and_remembered(s3, elsewhere):
    def answer(question):
        return data(question) if "/eu-central-1/" in question.headers["authorization"] else elsewhere

    double = s3(answer)
    assert gopen("s3://bucket/a.tar").read() == b"data"
    before = len(double.questions)
    assert gopen("s3://bucket/b.tar").read() == b"data"
    assert len(double.questions) == before + 1


def test_a_region_that_changes_its_mind_is_an_error(s3):
    regions = iter(["a", "b", "c", "d", "e", "f"])
    s3(lambda question: error(400, "AuthorizationHeaderMalformed", region=next(regions)))
    with pytest.raises(StorageError):
        gopen("s3://bucket/a.tar")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "cure"),
    [(403, "ExpiredToken", "AWS_SESSION_TOKEN"), (403, "RequestTimeTooSkewed", "NTP"),
     (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"), (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
     (403, "InvalidObjectState", "Glacier"), (403, "AccessDenied", "credentials"), (400, "SomethingNew", "")],
)  # fmt: skip
def test_errors_of_the_store_are_one_line_with_the_cure(s3, status, code, cure):
    s3(lambda question: error(status, code, "why"))
    for job in (lambda: gopen("s3://bucket/a.tar"), lambda: list(stored_object("s3://bucket/").list())):
        with pytest.raises(StorageError, match=f"{code}: why") as caught:
            job()
        assert (caught.value.status, caught.value.retryable) == (status, False)
        assert cure in caught.value.hint
        assert "hush" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_that_is_no_store_is_an_error(s3):
    s3(lambda question: Reply(200, b"<html><body>Please log in<br></body></html>"))
    with pytest.raises(StorageError, match="S3"):
        list(stored_object("s3://bucket/").list())


def test_a_list_that_does_not_advance_is_an_error(s3):
    page = b"<R><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></R>"
    s3(lambda question: Reply(200, page))
    with pytest.raises(StorageError, match="advance"):
        list(stored_object("s3://bucket/").list())


@pytest.mark.parametrize(
    "body",
    [b'<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>', b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', b"<a>", b"", b"{}",
     '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>'.encode("utf-16")],
)  # fmt: skip
def test_xml_with_entities_and_no_xml_at_all_are_refused(body):
    with pytest.raises(ValueError, match=r"XML|document"):
        parsed(body)


# -- uploads ---------------------------------------------------------------------------------------


class Multipart:
    """Uploads in parts, and what can go wrong with them."""

    def __init__(self) -> None:
        self.parts = {}
        self.aborted = 0
        self.broken = set()
        self.last_word = lambda question: Reply(200, b"<CompleteMultipartUploadResult/>")

    def __call__(self, question):
        query = question.query
        if question.method == "POST":
            if "uploads" in query:
                return Reply(200, b"<R><UploadId>u1</UploadId></R>")
            return self.last_word(question)
        if question.method == "DELETE":
            self.aborted += 1
            return Reply(204)
        if question.method == "HEAD":
            digests = b"".join(hashlib.md5(self.parts[n]).digest() for n in sorted(self.parts))
            return Reply(200, b"", {"ETag": f'"{hashlib.md5(digests).hexdigest()}-{len(self.parts)}"'})
        number = int(query["partNumber"])
        assert question.headers["x-amz-content-sha256"] == hashlib.sha256(question.body).hexdigest()
        if number in self.broken:
            return error(403, "AccessDenied")
        self.parts[number] = question.body
        return Reply(200, b"", {"ETag": f'"{hashlib.md5(question.body).hexdigest()}"'})


def test_a_part_that_is_refused_ends_the_upload_and_forgets_its_parts(s3):
    store = Multipart()
    store.broken = {2}
    s3(store)
    stream = gopen("s3://bucket/a.tar", "wb")
    with pytest.raises(StorageError, match="AccessDenied"):
        stream.writelines(bytes(uploads.FIRST_PART_BYTES) for _ in range(100))
    assert store.aborted == 1
    assert stream.closed
    stream.close()
    assert len(store.parts) < 10


def test_an_error_inside_a_200_is_an_error(s3):
    store = Multipart()
    store.last_word = lambda question: Reply(200, error(200, "InvalidPart", "no such part").body)
    s3(store)
    stream = gopen("s3://bucket/a.tar", "wb")
    stream.write(bytes(uploads.FIRST_PART_BYTES + 1))
    with pytest.raises(StorageError, match="InvalidPart"):
        stream.close()
    assert store.aborted == 1


@pytest.mark.parametrize(("status", "code"), [(200, "InternalError"), (200, "SlowDown"), (400, "RequestTimeout")])
def test_trouble_that_passes_is_tried_again_whatever_its_status(s3, status, code):
    store, words = Multipart(), []

    def last_word(question):
        words.append(question)
        return error(status, code) if len(words) < 4 else Reply(200, b"<CompleteMultipartUploadResult/>")

    store.last_word = last_word
    s3(store)
    with gopen("s3://bucket/a.tar", "wb", first_pause=0.001) as stream:
        stream.write(bytes(uploads.FIRST_PART_BYTES + 1))
    assert (len(words), store.aborted) == (4, 0)


def test_trouble_that_does_not_pass_is_an_error_in_the_end(s3):
    store = Multipart()
    store.last_word = lambda question: Reply(200, error(200, "InternalError", "try again").body)
    s3(store)
    stream = gopen("s3://bucket/a.tar", "wb", retries=1, first_pause=0.001)
    stream.write(bytes(uploads.FIRST_PART_BYTES + 1))
    with pytest.raises(UnavailableError, match="InternalError"):
        stream.close()
    assert store.aborted == 1


def test_an_upload_whose_last_answer_was_lost_is_complete(s3):
    store = Multipart()
    store.last_word = lambda question: error(404, "NoSuchUpload")
    s3(store)
    with gopen("s3://bucket/a.tar", "wb") as stream:
        stream.write(os.urandom(uploads.FIRST_PART_BYTES + 1))
    assert store.aborted == 0


def test_an_upload_that_the_store_forgot_is_an_error(s3):
    store = Multipart()
    store.last_word = lambda question: error(404, "NoSuchUpload")
    s3(lambda question: error(404, "NoSuchKey") if question.method == "HEAD" else store(question))
    stream = gopen("s3://bucket/a.tar", "wb")
    stream.write(os.urandom(uploads.FIRST_PART_BYTES + 1))
    with pytest.raises(StorageError, match="NoSuchUpload"):
        stream.close()


def test_a_503_in_the_middle_is_tried_again(s3):
    store, seen = Multipart(), []

    def answer(question):
        seen.append(question)
        return error(503, "SlowDown") if len(seen) in (1, 3, 5) else store(question)

    s3(answer)
    with gopen("s3://bucket/a.tar", "wb", first_pause=0.01) as stream:
        stream.write(bytes(2 * uploads.FIRST_PART_BYTES + 1))
    assert sorted(map(len, store.parts.values())) == [1, uploads.FIRST_PART_BYTES, uploads.FIRST_PART_BYTES]
    assert store.aborted == 0


def test_missing_shards_are_told_apart_from_other_errors(s3):
    s3(lambda question: Reply(404))
    with pytest.raises(MissingShardError) as caught:
        gopen("s3://bucket/a.tar")
    assert caught.value.status == 404
