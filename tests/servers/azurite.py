"""Azurite: Microsoft's own emulator of Azure Blob Storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.object_stores import ObjectServer, asked
from servers.programs import program, running, served
from webdataset.storage.stores.azure import AzureClient
from webdataset.storage.stores.azure_account import EMULATOR_ACCOUNT, EMULATOR_KEY


class AzureServer(ObjectServer):
    def environment(self, port: int | None = None) -> dict[str, str]:
        return _variables(port or self.port, EMULATOR_KEY)

    def wrong_key(self, port: int | None = None) -> dict[str, str]:
        return _variables(port or self.port, "d3Jvbmc=")

    def bucket(self) -> str:
        url = f"az://{self.name()}"
        client = AzureClient(f"{url}/")
        path = client._address(client.container, [("restype", "container")])
        asked(client, "PUT", path, ok=(201,))
        return url

    def unfinished(self, bucket: str) -> int:
        """Blocks that no list names do not count: they are invisible and go away by themselves."""
        return 0


def _variables(port: int, key: str) -> dict[str, str]:
    endpoint = f"http://127.0.0.1:{port}/{EMULATOR_ACCOUNT}"
    words = f"DefaultEndpointsProtocol=http;AccountName={EMULATOR_ACCOUNT};AccountKey={key};BlobEndpoint={endpoint};"
    return {"AZURE_STORAGE_CONNECTION_STRING": words}


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    folder = tmp_path_factory.mktemp("azurite")
    command = [program("azurite-blob", "npm azurite"), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    command += ["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort"]
    with served(lambda port: running([*command, str(port)], port, folder)) as (port,):
        yield AzureServer(port)
