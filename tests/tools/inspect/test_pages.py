"""A page of samples: complete in itself, and nothing in the data can run."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from webdataset.tools.inspect.pages import page

TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "section", "dl", "dt", "dd", "small", "pre", "p",
    "img", "audio", "video",
}  # fmt: skip
ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)><!-- </pre></title></style>"


class Tree(HTMLParser):
    """The tags, attributes and text of a page, as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.comments = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def page_of(*samples: dict[str, object], title: str = "t") -> str:
    return b"".join(page(samples, title=title)).decode()


def assert_harmless(text: str) -> Tree:
    tree = Tree(text)
    for tag, attributes in tree.tags:
        assert tag in TAGS, tag
        assert not any(name.startswith("on") for name in attributes), attributes
        for name in ("src", "href"):
            if name in attributes:
                assert re.fullmatch(r"data:(image|audio|video)/[\w+-]+;base64,[\w+/=]*", attributes[name] or "")
    assert tree.comments == 0
    return tree


def test_markup_in_keys_fields_and_texts_stays_text() -> None:
    sample = {
        "__key__": ATTACK,
        f"{ATTACK}.txt": ATTACK.encode(),
        "txt": ATTACK.encode(),
        "html": ATTACK.encode(),
        "svg": b"<svg onload=alert(1)><script>alert(1)</script></svg>",
        "json": b'{"<script>": "</script><script>alert(1)</script>"}',
        "jpg": b"<script>alert(1)</script>",
        "ppm": b"<script>",
        "wav": ATTACK.encode(),
        "npy": b"<script>",
        "pyd": b"cos\nsystem\n(S'touch /tmp/attacked'\ntR.",
        ATTACK: b"x",
    }
    text = page_of(sample, title=ATTACK)
    assert "<script" not in text.lower()
    tree = assert_harmless(text)
    assert tree.text.count("<script>alert(1)</script>") >= 6


def test_the_policy_forbids_scripts_and_requests() -> None:
    tree = Tree(page_of())
    policy = next(attributes["content"] for tag, attributes in tree.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


def test_pictures_are_in_the_page() -> None:
    stored = io.BytesIO()
    Image.new("RGB", (5, 4), "red").save(stored, "JPEG")
    tree = assert_harmless(page_of({"__key__": "a", "jpg": stored.getvalue()}))
    source = next(attributes["src"] for tag, attributes in tree.tags if tag == "img")
    assert source is not None
    kind, data = source.split(",")
    assert kind == "data:image/jpeg;base64"
    assert base64.b64decode(data) == stored.getvalue()


def test_formats_that_browsers_do_not_know_become_png() -> None:
    stored = io.BytesIO()
    Image.new("RGB", (5, 4), "red").save(stored, "PPM")
    tree = assert_harmless(page_of({"__key__": "a", "ppm": stored.getvalue()}))
    source = next(attributes["src"] for tag, attributes in tree.tags if tag == "img") or ""
    assert Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).size == (5, 4)


@pytest.mark.parametrize(("field", "tag"), [("wav", "audio"), ("mp3", "audio"), ("mp4", "video")])
def test_sound_and_video_have_players(field: str, tag: str) -> None:
    tree = assert_harmless(page_of({"__key__": "a", field: b"data"}))
    assert [attributes for name, attributes in tree.tags if name == tag and "controls" in attributes]


def test_arrays_show_shape_type_and_values() -> None:
    stored = io.BytesIO()
    np.save(stored, np.arange(6, dtype=np.int16).reshape(2, 3))
    tree = assert_harmless(page_of({"__key__": "a", "npy": stored.getvalue()}))
    assert "2 x 3 int16" in tree.text
    assert "0, 1, 2, 3, 4, 5" in tree.text


def test_names_of_any_bytes_can_be_written() -> None:
    assert "a\\udcff" in page_of({"__key__": "a\udcff", "txt": b"\xff\x00"})


NASTY = st.text(st.sampled_from("<>\"'&/=! -scriptonload\0\x1b\udcff;#x\n`{}"), max_size=30)


@given(NASTY, NASTY, st.binary(max_size=30), st.sampled_from(["txt", "json", "html", "jpg", "wav", "npy", "x", "cls"]))
def test_no_data_becomes_markup(key: str, prefix: str, data: bytes, extension: str) -> None:
    assert_harmless(
        page_of({"__key__": key, f"{prefix}.{extension}": data, "y.txt": prefix.encode("utf-8", "replace")})
    )
