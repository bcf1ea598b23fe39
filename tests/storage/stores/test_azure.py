"""Azure: whose key it is, SAS tokens, and urls that name an account."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import time
import types
from urllib.parse import quote

import pytest

from servers.doubles import Double, Reply, ranged
from webdataset.errors import StorageError
from webdataset.gopen import gopen
from webdataset.storage.stores import azure_account
from webdataset.storage.stores.azure import AzureClient
from webdataset.storage.stores.azure_account import EMULATOR_ACCOUNT, EMULATOR_KEY, account_for

pytestmark = pytest.mark.usefixtures("nobody")

KEY = base64.b64encode(b"hush").decode()


def account(host="", **options):
    return account_for(host, options.pop("endpoint", None), anonymous=options.pop("anonymous", False), url="az://c/b")


# -- whose key it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [("abfs://data@mine.dfs.core.windows.net/a b/c.tar", "https://mine.blob.core.windows.net/data/a%20b/c.tar"),
     ("abfss://data@mine.dfs.core.chinacloudapi.cn/c.tar", "https://mine.blob.core.chinacloudapi.cn/data/c.tar"),
     ("az://data@mine.blob.core.windows.net/c.tar", "https://mine.blob.core.windows.net/data/c.tar")],
)  # fmt: skip
def test_urls_may_name_their_account(url, address):
    assert AzureClient(url, anonymous=True).address() == address


def test_errors_before_any_request(monkeypatch):
    with pytest.raises(StorageError, match="account") as caught:
        gopen("az://container/a.tar")
    assert "AZURE_STORAGE_ACCOUNT" in caught.value.hint
    with pytest.raises(StorageError, match="container"):
        gopen("az:///a.tar")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "nonsense")
    with pytest.raises(StorageError, match="AZURE_STORAGE_CONNECTION_STRING"):
        gopen("az://container/a.tar")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=mine;AccountKey=h?sh")
    with pytest.raises(StorageError, match="base64") as caught:
        gopen("az://container/a.tar")
    assert "h?sh" not in str(caught.value)


# -- what is sent ----------------------------------------------------------------------------------


def test_without_credentials_requests_carry_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    azure_account._login.cache_clear()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    with Double(lambda question: ranged(question, b"data", '"1"')) as double:
        assert gopen("az://container/a.tar", endpoint=double.url).read() == b"data"
        assert "authorization" not in double.questions[0].headers


def test_a_login_is_sent_as_a_token_and_kept_while_it_lasts(monkeypatch):
    asked = []

    class Credential:
        def __init__(self, **options):
            asked.append(options)

        def get_token(self, scope):
            assert scope == "https://storage.azure.com/.default"
            return types.SimpleNamespace(token="hush-token", expires_on=time.time() + 3600)

    package, module = types.ModuleType("azure"), types.ModuleType("azure.identity")
    package.identity, module.DefaultAzureCredential = module, Credential
    monkeypatch.setitem(sys.modules, "azure", package)
    monkeypatch.setitem(sys.modules, "azure.identity", module)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    azure_account._login.cache_clear()
    with Double(lambda question: ranged(question, b"data", '"1"')) as double:
        for _ in range(2):
            assert gopen("az://container/a.tar", endpoint=double.url).read() == b"data"
        assert double.questions[0].headers["authorization"] == "Bearer hush-token"
        assert len(asked) == 1
    azure_account._login.cache_clear()


def test_a_container_that_is_not_public_is_an_error_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    azure_account._login.cache_clear()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    refusal = Reply(409, b"", {"x-ms-error-code": "PublicAccessNotPermitted"})
    with Double(lambda question: refusal) as double, pytest.raises(StorageError) as raised:
        gopen("az://container/a.tar", endpoint=double.url)
    assert raised.value.status == 409
    assert "AZURE_STORAGE_KEY" in raised.value.hint


def sas_token(container, permissions="rl", seconds=3600):
    """A token as the portal makes one, signed with the emulator's key."""
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    resource = f"/blob/{EMULATOR_ACCOUNT}/{container}"
    lines = [permissions, "", expiry, resource, "", "", "", "2021-06-08", "c", *[""] * 7]
    digest = hmac.new(base64.b64decode(EMULATOR_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest).decode(), safe="")
    return f"sv=2021-06-08&sr=c&sp={permissions}&se={quote(expiry)}&sig={signature}"


@pytest.fixture
def shared(azurite_server, monkeypatch):
    """A container with one blob; afterwards only a SAS token is known."""
    for name, value in azurite_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = azurite_server.bucket()
    azurite_server.store(f"{bucket}/a.tar", b"data")
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", EMULATOR_ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{azurite_server.port}/{EMULATOR_ACCOUNT}")
    return bucket


def test_a_sas_token_reads_and_lists(shared, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?" + sas_token(shared.removeprefix("az://")))
    assert gopen(f"{shared}/a.tar").read() == b"data"
    assert list(AzureClient(f"{shared}/").list()) == [(f"{shared}/a.tar", 4)]


@pytest.mark.parametrize("options", [{"seconds": -60}, {"permissions": "w"}])
def test_a_sas_token_that_has_ended_or_permits_too_little_is_an_error_without_it(shared, monkeypatch, options):
    token = sas_token(shared.removeprefix("az://"), **options)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", token)
    with pytest.raises(StorageError) as caught:
        gopen(f"{shared}/a.tar")
    assert (caught.value.status, caught.value.retryable) == (403, False)
    assert caught.value.hint
    assert token.partition("sig=")[2] not in str(caught.value)
    assert "sig=" not in str(caught.value)


# -- credentials go to Azure, and to what the program names ------------------------------------------
