"""moto's S3 server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.object_stores import ObjectServer, asked
from servers.programs import program, running, served
from webdataset.storage.stores.markup import parsed
from webdataset.storage.stores.s3 import S3Client

ACCESS, SECRET = "TESTACCESSKEY", "TESTSECRETKEY"


class S3Server(ObjectServer):
    def environment(self, port: int | None = None) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def wrong_key(self, port: int | None = None) -> dict[str, str]:
        return self.environment(port) | {"AWS_SECRET_ACCESS_KEY": "wrong"}

    def client(self, bucket: str) -> S3Client:
        return S3Client(f"{bucket}/", endpoint=f"http://127.0.0.1:{self.port}")

    def address(self, bucket: str) -> str:
        """The web address of a bucket."""
        return f"http://127.0.0.1:{self.port}/{bucket.removeprefix('s3://')}"

    def bucket(self) -> str:
        url = f"s3://{self.name()}"
        asked(self.client(url), "PUT", self.address(url))
        return url

    def unfinished(self, bucket: str) -> int:
        answer = asked(self.client(bucket), "GET", f"{self.address(bucket)}?uploads=")
        return len(parsed(answer.body).findall("Upload"))


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from _started(tmp_path_factory)


@pytest.fixture(scope="session")
def other_moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Another store, with buckets of its own."""
    yield from _started(tmp_path_factory)


def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    command = [program("moto_server", "pip moto[server,s3]"), "-H", "127.0.0.1", "-p"]
    folder = tmp_path_factory.mktemp("moto")
    with served(lambda port: running([*command, str(port)], port, folder)) as (port,):
        yield S3Server(port)
