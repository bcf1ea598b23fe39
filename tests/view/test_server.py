"""The server of the view: this machine only, with the token only, and nothing of the data runs."""

from __future__ import annotations

import http.client
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from view_support import request
from webdataset.view.answers import View
from webdataset.view.server import STRANGERS, Body, RequestError, ViewServer, as_json

STATIC = Path(__file__).parents[2] / "src/webdataset/view/static"


def test_the_page_and_its_files_are_served(shapes_view: View) -> None:
    page = request(shapes_view, "")
    assert page.status == 200
    assert b'<script src="app.js" type="module">' in page.data
    for name in [path.name for path in STATIC.iterdir() if path.name != "index.html"]:
        assert request(shapes_view, name).data == (STATIC / name).read_bytes()


def test_the_policy_allows_the_pages_own_script_and_nothing_else(shapes_view: View) -> None:
    policy = request(shapes_view, "").headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["api/state", "picture?n=0&field=jpg", "media?n=0&field=wav", "icon.svg"])
def test_data_is_sent_sandboxed_and_is_not_sniffed(shapes_view: View, path: str) -> None:
    headers = request(shapes_view, path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", "/api/state", "/x/api/state", "/app.js", "/../../etc/passwd", "//api/state"])
def test_without_the_token_nothing_is_answered(shapes_view: View, path: str) -> None:
    reply = request(shapes_view, path)
    assert reply.status == 403
    assert shapes_view.server.token.encode() not in reply.data


def test_strangers_who_say_nothing_do_not_keep_the_owner_out(shapes_view: View) -> None:
    with ExitStack() as silent:
        for _ in range(2 * STRANGERS):
            silent.enter_context(socket.create_connection(("127.0.0.1", shapes_view.server.port)))
        assert request(shapes_view, "api/state").status == 200


def test_who_has_shown_the_token_stays_while_strangers_come(shapes_view: View) -> None:
    owner = http.client.HTTPConnection("127.0.0.1", shapes_view.server.port, timeout=60)
    with ExitStack() as silent, closing(owner):
        owner.request("GET", f"/{shapes_view.server.token}/api/state")
        owner.getresponse().read()
        kept = owner.sock
        for _ in range(2 * STRANGERS):
            silent.enter_context(socket.create_connection(("127.0.0.1", shapes_view.server.port)))
        owner.request("GET", f"/{shapes_view.server.token}/api/state")
        assert owner.getresponse().status == 200
        assert owner.sock is kept


def test_a_stranger_who_says_nothing_is_left(shapes_view: View) -> None:
    with socket.create_connection(("127.0.0.1", shapes_view.server.port), timeout=40) as silent:
        assert silent.recv(1) == b""  # after a few seconds, long before a minute


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "localhost."])
def test_another_name_for_this_machine_is_refused(shapes_view: View, host: str) -> None:
    assert request(shapes_view, "api/state", headers={"Host": host}).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:0", "[::1]:99", "LOCALHOST:1"])
def test_loopback_is_answered_by_any_port_as_a_forwarded_one_has(shapes_view: View, host: str) -> None:
    assert request(shapes_view, "api/state", headers={"Host": host}).status == 200


def test_requests_of_other_sites_are_refused(shapes_view: View) -> None:
    other = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    for path in ("api/state", "picture?n=0&field=jpg", "app.js", "download?n=0&field=jpg"):
        assert request(shapes_view, path, headers=other).status == 403
    assert request(shapes_view, "", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}).status == 403
    assert request(shapes_view, "", headers=other).status == 200  # a link to the page
    assert request(shapes_view, "api/state", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(shapes_view: View, method: str) -> None:
    assert request(shapes_view, "api/state", method=method).status == 501


@pytest.mark.parametrize(
    "path", ["../app.js", "..%2f..%2fetc%2fpasswd", "static/../server.py", "api/../../server.py", "app.js/", "%2e%2e/x"]
)
def test_no_path_leads_out(shapes_view: View, path: str) -> None:
    assert request(shapes_view, f"/{shapes_view.server.token}/{path}").status == 404


def test_it_listens_on_loopback_only(shapes_view: View) -> None:
    assert shapes_view.server.url.startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", shapes_view.server.port), timeout=60)


def test_every_start_has_a_token_of_its_own() -> None:
    servers = [ViewServer({}) for _ in range(2)]
    assert servers[0].token != servers[1].token
    assert min(len(server.token) for server in servers) >= 32
    for server in servers:
        server.close()


def test_the_script_never_makes_markup_of_data() -> None:
    script = "".join(path.read_text() for path in STATIC.glob("*.js"))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "http://"):
        assert word not in script.replace('"http://www.w3.org/2000/svg"', "")


def test_parts_are_sent_as_a_player_asks_for_them(shapes_view: View) -> None:
    whole = request(shapes_view, "media", n=0, field="wav")
    assert whole.headers["Content-Type"] == "audio/wav"
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = request(shapes_view, "media", n=0, field="wav", headers={"Range": "bytes=10-19"})
    assert (part.status, part.data) == (206, whole.data[10:20])
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(whole.data)}"
    assert request(shapes_view, "media", n=0, field="wav", headers={"Range": "bytes=-4"}).data == whole.data[-4:]
    assert request(shapes_view, "media", n=0, field="wav", headers={"Range": "bytes=9999999-"}).status == 416
    assert request(shapes_view, "media", n=0, field="wav", headers={"Range": "pages=1-2"}).status == 200


def test_head_sends_no_body(shapes_view: View) -> None:
    reply = request(shapes_view, "media", n=0, field="wav", method="HEAD")
    assert reply.status == 200
    assert int(reply.headers["Content-Length"]) > 1000
    assert reply.data == b""


def test_errors_are_json_with_a_status() -> None:
    def refuse(_: dict[str, str]) -> Body:
        raise RequestError("no", 409)

    def fail(_: dict[str, str]) -> Body:
        raise RuntimeError("a mistake of ours")

    server = ViewServer({"refuse": refuse, "fail": fail, "fine": lambda asked: as_json(asked)})
    server.start()

    view = SimpleNamespace(server=server)
    assert (request(view, "refuse").status, request(view, "refuse").json) == (409, {"error": "no"})
    assert request(view, "fail").status == 500
    assert request(view, "fine", a="1", b="").json == {"a": "1", "b": ""}
    server.close()


def test_connections_without_end_do_not_take_all_threads(shapes_view: View) -> None:
    held = [socket.create_connection(("127.0.0.1", shapes_view.server.port), timeout=60) for _ in range(70)]
    refused = held[-1].recv(1)  # the last are closed at once
    for connection in held:
        connection.close()
    assert refused == b""
