"""A real nginx on loopback: files, lists, ranges, PUT, a slow place, a busy place, a guarded place, and TLS."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.programs import program, running, served

CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {folder}/leaf.pem;
    ssl_certificate_key {folder}/leaf.key;
    root {folder}/files;
    add_header Cache-Control "public, max-age=3600";
    location / {{ autoindex on; dav_methods PUT DELETE; create_full_put_path on; }}
    location /slow/ {{ alias {folder}/files/; limit_rate 1m; }}
    location /busy/ {{ return 503; }}
    location /norange/ {{ alias {folder}/files/; max_ranges 0; }}
    location /guarded/ {{ alias {folder}/files/; auth_basic "here"; auth_basic_user_file {folder}/users; }}
    location /moved/ {{ return 302 /$arg_to; }}
  }}
}}
"""


@dataclass
class Nginx:
    """`files` is what it serves; `authority` is the certificate that a client has to trust."""

    folder: Path
    port: int
    tls_port: int

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def authority(self) -> str:
        return str(self.folder / "authority.pem")

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def tls_url(self, path: str, host: str = "localhost") -> str:
        return f"https://{host}:{self.tls_port}{path}"

    def put(self, name: str, data: bytes) -> str:
        """A file under this name, and its url."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return self.url(f"/{name}")

    def sent(self, name: str) -> int:
        """How many bytes of this file were sent so far, by the server's own log."""
        marker = f"/end-of-{uuid.uuid4().hex}"
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(self.url(marker))
        log = self.folder / "access.log"
        while marker not in (text := log.read_text()):
            """What was asked for last is not written down yet."""
        return sum(int(size) for size in re.findall(rf'"GET /{re.escape(name)} HTTP/1.1" \d+ (\d+)', text))


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    command = program("nginx", "apt nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    folder.chmod(0o755)
    (folder / "files").mkdir()
    _make_certificates(folder)
    (folder / "users").write_text("me:{PLAIN}secret\n")

    def start(port: int, tls_port: int) -> AbstractContextManager[object]:
        config = ("user root;" if os.geteuid() == 0 else "") + CONFIG
        (folder / "nginx.conf").write_text(config.format(folder=folder, port=port, tls_port=tls_port))
        return running([command, "-p", str(folder), "-c", str(folder / "nginx.conf")], port, folder)

    with served(start, 2) as ports:
        yield Nginx(folder, *ports)


def _make_certificates(folder: Path) -> None:
    """An authority of our own, and a certificate for localhost signed by it."""
    openssl = program("openssl", "apt openssl")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "leaf.ext").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    for words in (
        # Python 3.13 takes an authority only if it says that it signs certificates
        ["req", "-x509", *key, "-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=test authority"]
        + ["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ["req", *key, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "leaf.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"]
        + ["-extfile", "leaf.ext", "-out", "leaf.pem", "-days", "30"],
    ):
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)
