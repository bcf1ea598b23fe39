from __future__ import annotations

import json
import sys

import pytest

from servers.doubles import Double, Reply
from webdataset.errors import MissingPackageError, SecurityError, StorageError
from webdataset.storage.stores import aws
from webdataset.storage.stores.sigv4 import Keys

pytestmark = pytest.mark.usefixtures("nobody")


def aws_files(tmp_path, credentials="", config=""):
    folder = tmp_path / "home" / ".aws"
    folder.mkdir(parents=True)
    (folder / "credentials").write_text(credentials)
    (folder / "config").write_text(config)


def test_half_a_key_is_an_error(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ACCESS")
    with pytest.raises(StorageError, match="AWS_SECRET_ACCESS_KEY"):
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
    with pytest.raises(StorageError, match="'wrok'"):
        aws.aws_keys()


def test_a_broken_file_is_an_error_that_does_not_quote_it(tmp_path):
    aws_files(tmp_path, "aws_secret_access_key = hush\n")
    with pytest.raises(StorageError, match="credentials") as caught:
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
    with pytest.raises(SecurityError):
        aws.aws_keys()
    assert not (tmp_path / "ran").exists()


def test_without_boto3_a_role_is_an_error_with_the_cure(tmp_path, monkeypatch):
    aws_files(tmp_path, config="[profile tool]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n")
    monkeypatch.setenv("AWS_PROFILE", "tool")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingPackageError, match=r"'webdataset\[s3\]'"):
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
