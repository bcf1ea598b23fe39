from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.storage.stores.s3 import S3Client
from webdataset.storage.stores.sigv4 import Keys, signed

pytestmark = pytest.mark.usefixtures("nobody")

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
    key=TEXT.filter(bool),
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
