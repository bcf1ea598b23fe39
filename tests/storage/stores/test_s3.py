"""S3: signatures, credentials, regions, and the answers that a well behaved server does not give."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.doubles import Double, Reply, ranged
from webdataset.errors import MissingPackageError, MissingShardError, SecurityError, StorageError, UnavailableError
from webdataset.gopen import gopen
from webdataset.storage.stores import aws, uploads
from webdataset.storage.stores.lookup import stored_object
from webdataset.storage.stores.markup import parsed
from webdataset.storage.stores.s3 import S3Client
from webdataset.storage.stores.sigv4 import Keys, signed

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

EXAMPLE = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
SUITE = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("target", "headers", "signature"),
    [("/test.txt", {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
     ("/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
     ("/?prefix=J&max-keys=2", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")],
)  # fmt: skip
def test_signatures_are_those_of_the_manual_of_s3(target, headers, signature):
    url = f"https://examplebucket.s3.amazonaws.com{target}"
    found = signed("GET", url, headers, EXAMPLE, region="us-east-1", now=datetime(2013, 5, 24, tzinfo=UTC))
    assert found["Authorization"].endswith(f"Signature={signature}")


@pytest.mark.parametrize(
    ("target", "signature"),
    [("/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
     ("/?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500")],
)  # fmt: skip
def test_signatures_are_those_of_the_general_test_suite(target, signature):
    now = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    url = f"https://example.amazonaws.com{target}"
    found = signed("GET", url, {}, SUITE, region="us-east-1", service="service", now=now)
    assert found["Authorization"].endswith(f"Signature={signature}")


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(deadline=None)
@given(
    key=TEXT,
    query=st.dictionaries(TEXT.filter(bool), TEXT, max_size=3),
    body=st.binary(max_size=50),
    token=st.sampled_from([None, "a token"]),
)
def test_signatures_are_those_of_amazons_own_library(key, query, body, token):
    pytest.importorskip("botocore", reason="pip install 'webdataset[s3]'")
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    client = S3Client(f"s3://bucket/{key}", endpoint="http://host:9000", region="eu-west-1")
    url = client.address(query.items())
    theirs = AWSRequest("PUT", url, data=body, headers={"Range": "bytes=0-9"})
    theirs.context["payload_signing_enabled"] = True
    S3SigV4Auth(Credentials("ACCESS", "hush", token), "s3", "eu-west-1").add_auth(theirs)
    now = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    keys = Keys("ACCESS", "hush", token)
    ours = signed("PUT", url, {"Range": "bytes=0-9"}, keys, region="eu-west-1", body=body, now=now)
    assert ours["Authorization"] == theirs.headers["Authorization"]


def test_secrets_are_not_in_what_is_shown():
    assert "hush" not in repr(Keys("ACCESS", "hush", "hush"))


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


def test_a_url_without_a_bucket_is_an_error():
    with pytest.raises(StorageError, match="names no bucket"):
        gopen("s3:///a.tar")


# -- credentials -----------------------------------------------------------------------------------


def aws_files(tmp_path, credentials="", config=""):
    folder = tmp_path / "home" / ".aws"
    folder.mkdir(parents=True)
    (folder / "credentials").write_text(credentials)
    (folder / "config").write_text(config)


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


def test_half_a_key_is_an_error(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ACCESS")
    with pytest.raises(StorageError, match="AWS_SECRET_ACCESS_KEY is not set"):
        aws.aws_keys()


def test_the_environment_comes_before_the_default_profile(tmp_path, monkeypatch):
    aws_files(tmp_path, "[default]\naws_access_key_id = FILE\naws_secret_access_key = x\n")
    assert aws.aws_keys() == Keys("FILE", "x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert aws.aws_keys() == Keys("ENV", "y", "t")


def test_a_profile_gives_keys_region_and_endpoint(tmp_path, monkeypatch):
    aws_files(
        tmp_path,
        "[default]\naws_access_key_id=D\naws_secret_access_key=d%x\n[work]\naws_access_key_id=W\n"
        "aws_secret_access_key=w\naws_session_token=t\n",
        "[profile work]\nregion = eu-north-1\nendpoint_url = http://store:9000\n[default]\nregion = us-west-2\n",
    )
    assert aws.aws_keys() == Keys("D", "d%x")
    assert aws.aws_region() == "us-west-2"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert aws.aws_keys() == Keys("W", "w", "t")
    assert (aws.aws_region(), aws.aws_endpoint()) == ("eu-north-1", "http://store:9000")


def test_a_profile_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "wrok")
    with pytest.raises(StorageError, match="no profile 'wrok'"):
        aws.aws_keys()


def test_a_broken_file_is_an_error_that_does_not_quote_it(tmp_path):
    aws_files(tmp_path, "aws_secret_access_key = hush\n")
    with pytest.raises(StorageError, match="credentials cannot be read") as caught:
        aws.aws_keys()
    assert "hush" not in str(caught.value)


def test_a_process_gives_keys_through_boto3(tmp_path, monkeypatch):
    pytest.importorskip("boto3", reason="pip install 'webdataset[s3]'")
    program = tmp_path / "keys"
    answer = json.dumps({"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "p", "SessionToken": "t"})
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    aws_files(tmp_path, config=f"[profile tool]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_PROFILE", "tool")
    assert aws.aws_keys() == Keys("P", "p", "t")


def test_in_secure_mode_a_profile_runs_no_process(tmp_path, monkeypatch):
    aws_files(tmp_path, config=f"[profile tool]\ncredential_process = touch {tmp_path}/ran\n")
    monkeypatch.setenv("AWS_PROFILE", "tool")
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SecurityError, match="not run in secure mode"):
        aws.aws_keys()
    assert not (tmp_path / "ran").exists()


def test_without_boto3_a_role_is_an_error_with_the_cure(tmp_path, monkeypatch):
    aws_files(tmp_path, config="[profile tool]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n")
    monkeypatch.setenv("AWS_PROFILE", "tool")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingPackageError, match=r"needs boto3; pip install 'webdataset\[s3\]'"):
        aws.aws_keys()


def keys_answer(name, expires="2099-01-01T00:00:00Z"):
    return Reply(
        200, json.dumps({"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": expires}).encode()
    )


@pytest.mark.parametrize(("expires", "fetched"), [("2099-01-01T00:00:00Z", 1), ("2001-01-01T00:00:00Z", 2)])
def test_the_role_of_a_machine_is_asked_for_and_renewed_before_it_ends(monkeypatch, expires, fetched):
    def answer(question):
        if question.method == "PUT":
            assert question.headers["x-aws-ec2-metadata-token-ttl-seconds"]
            return Reply(200, b"imds-token")
        assert question.headers["x-aws-ec2-metadata-token"] == "imds-token"
        return Reply(200, b"my-role") if question.raw_path.endswith("/") else keys_answer("ROLE", expires)

    with Double(answer) as double:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", double.url)
        assert [aws.aws_keys(), aws.aws_keys()] == [Keys("ROLE", "s", "t")] * 2
        assert len(double.questions) == 3 * fetched


def test_the_role_of_a_container_is_asked_for_with_its_token(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("pod-token\n")
    with Double(lambda question: keys_answer("POD")) as double:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{double.url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        assert aws.aws_keys() == Keys("POD", "s", "t")
        assert double.questions[0].headers["authorization"] == "pod-token"


def test_a_web_identity_is_exchanged_for_keys(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("web-token")
    names = "<AccessKeyId>WEB</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
    body = (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<AssumeRoleWithWebIdentityResult><Credentials>{names}<Expiration>2099-01-01T00:00:00Z</Expiration>"
        "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
    with Double(lambda question: Reply(200, body.encode())) as double:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", double.url)
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        assert aws.aws_keys() == Keys("WEB", "s", "t")
        assert b"WebIdentityToken=web-token" in double.questions[0].body


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
    ("status", "code", "line"),
    [(403, "ExpiredToken", r"the session token has expired .*log in again"),
     (403, "RequestTimeTooSkewed", r"the clock of this machine is wrong .*NTP"),
     (403, "InvalidAccessKeyId", r"does not know this access key .*AWS_ACCESS_KEY_ID"),
     (403, "SignatureDoesNotMatch", r"the secret key is wrong .*AWS_SECRET_ACCESS_KEY"),
     (403, "InvalidObjectState", r"archived .*Glacier"),
     (403, "AccessDenied", r"access is denied .*check the credentials"),
     (400, "SomethingNew", r"the store refuses \(400 SomethingNew: why\)")],
)  # fmt: skip
def test_errors_of_the_store_are_one_line_with_the_cure(s3, status, code, line):
    s3(lambda question: error(status, code, "why"))
    for job in (lambda: gopen("s3://bucket/a.tar"), lambda: list(stored_object("s3://bucket/").list())):
        with pytest.raises(StorageError, match=line) as caught:
            job()
        assert "hush" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_that_is_no_store_is_an_error(s3):
    s3(lambda question: Reply(200, b"<html><body>Please log in<br></body></html>"))
    with pytest.raises(StorageError, match="does not answer as an S3 store"):
        list(stored_object("s3://bucket/").list())


def test_a_list_that_does_not_advance_is_an_error(s3):
    page = b"<R><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></R>"
    s3(lambda question: Reply(200, page))
    with pytest.raises(StorageError, match="does not advance"):
        list(stored_object("s3://bucket/").list())


@pytest.mark.parametrize(
    "body",
    [b'<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>', b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', b"<a>", b"", b"{}",
     '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>'.encode("utf-16")],
)  # fmt: skip
def test_xml_with_entities_and_no_xml_at_all_are_refused(body):
    with pytest.raises(ValueError, match=r"not XML|document type"):
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
    with pytest.raises(StorageError, match="access is denied"):
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
    with pytest.raises(StorageError, match=r"could not be completed \(InvalidPart"):
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
    with pytest.raises(UnavailableError, match="200 InternalError, 2 times in a row"):
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
    with pytest.raises(MissingShardError, match=r"there is no such object \(404\)"):
        gopen("s3://bucket/a.tar")
