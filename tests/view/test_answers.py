"""What the page asks for: the wall, samples, fields, shards, statistics, problems, plans."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from shapes import BROKEN, tone
from view_support import request
from waiting import soon
from webdataset.view.answers import View

ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_the_wall_has_cards_with_pictures_and_words(shapes_view: View) -> None:
    found = request(shapes_view, "api/samples", start=0, count=10).json
    first = found["cards"][0]
    assert [card["number"] for card in found["cards"]] == list(range(10))
    assert (first["key"], first["picture"], first["class"]) == ("train/circle-00000", "jpg", "0")
    assert first["label"] == "a circle on a gradient, number 0"
    assert (found["next"], found["known"], found["complete"]) == (10, 96, True)


def test_pages_go_to_the_end_and_not_beyond(shapes_view: View) -> None:
    last = request(shapes_view, "api/samples", start=90, count=10).json
    assert [card["number"] for card in last["cards"]] == list(range(90, 96))
    assert last["next"] is None
    assert request(shapes_view, "api/samples", start=1000).json["cards"] == []


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("star-00003", [3]),
        ("STAR-0000", [3, 8]),
        ("cls == 2 and 'number 1' in _['caption.txt']", [12, 17]),
        ("json.shape == 'ring' and json.score > 2", []),
        ("has('depth.npy') and cls == 0 and not has(wav)", [20, 40, 80]),
        ("width(jpg) == 120 and cls == 3", [8, 23, 38, 53, 68, 83]),
        ("key == 'train/star-00013'", [13]),
    ],
)
def test_samples_are_found_by_key_and_condition(shapes_view: View, query: str, numbers: list[int]) -> None:
    found = request(shapes_view, "api/samples", q=query, count=100).json
    assert [card["number"] for card in found["cards"]] == numbers


def test_a_condition_that_is_none_is_refused_with_the_reason(shapes_view: View) -> None:
    reply = request(shapes_view, "api/samples", q="cls ==")
    assert reply.status == 400
    assert "condition" in reply.json["error"]


def test_a_condition_that_fails_for_some_samples_says_so(shapes_view: View) -> None:
    found = request(shapes_view, "api/samples", q="cls < 'a'").json
    assert found["failed"] == 96
    assert "TypeError" in found["why"]


def test_a_sample_has_all_its_fields(shapes_view: View) -> None:
    sample = request(shapes_view, "api/sample", n=12).json
    assert sample["key"] == "train/triangle-00012"
    fields = {field["name"]: field for field in sample["fields"]}
    assert fields["mask.png"]["overlay"] == "mask"
    assert fields["depth.npy"]["overlay"] == "depth"
    assert [field["kind"] for field in fields.values()] == [
        "image",
        "number",
        "text",
        "json",
        "image",
        "array",
        "audio",
    ]
    assert request(shapes_view, "api/sample", key="train/triangle-00012").json["number"] == 12


@pytest.mark.parametrize(("field", "facts"), [
    ("jpg", {"format": "JPEG", "mode": "RGB", "width": 160, "height": 120}),
    ("mask.png", {"format": "PNG", "mode": "L"}),
    ("cls", {"text": "2"}),
    ("caption.txt", {"text": "a triangle on a gradient, number 12", "cut": False}),
])  # fmt: skip
def test_a_field_is_shown_by_its_kind(shapes_view: View, field: str, facts: dict[str, object]) -> None:
    found = request(shapes_view, "api/field", n=12, field=field).json
    assert facts.items() <= found.items()


def test_json_is_a_tree_arrays_have_a_range_and_sound_a_shape(shapes_view: View) -> None:
    tree = request(shapes_view, "api/field", n=12, field="json").json["tree"]
    assert dict(tree["items"])["shape"] == "triangle"
    [array] = request(shapes_view, "api/field", n=12, field="depth.npy").json["arrays"]
    assert (array["shape"], array["dtype"], array["min"]) == ([120, 160], "float32", 0.0)
    sound = request(shapes_view, "api/field", n=12, field="wav").json["sound"]
    assert (sound["rate"], sound["seconds"], sound["channels"]) == (8000, 1.0, 1)
    assert len(sound["shape"]) > 100


@pytest.mark.parametrize("field", ["jpg", "mask.png", "depth.npy", "wav"])
def test_a_picture_is_not_larger_than_asked_for(shapes_view: View, field: str) -> None:
    reply = request(shapes_view, "picture", n=12, field=field, size=64)
    with Image.open(io.BytesIO(reply.data)) as image:
        assert max(image.size) <= 64
        assert reply.headers["Content-Type"] == f"image/{str(image.format).lower()}"


def test_a_broken_image_has_its_reason_where_the_picture_would_be(shapes_view: View) -> None:
    reply = request(shapes_view, "picture", n=BROKEN[0], field="jpg")
    assert reply.status == 422
    assert "truncated" in reply.json["error"].lower()
    field = request(shapes_view, "api/field", n=BROKEN[0], field="jpg").json
    assert "truncated" in field["error"].lower()
    assert field["hex"].startswith("ffd8")


def test_a_field_is_saved_as_it_is_stored(shapes_view: View) -> None:
    reply = request(shapes_view, "download", n=12, field="wav")
    assert reply.data == tone(220 + 40 * (12 % 8))
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Disposition"] == 'attachment; filename="triangle-00012.wav"'


@pytest.mark.parametrize(("path", "words"), [
    ("api/sample", {"n": "5000"}), ("api/sample", {"key": "nobody"}), ("api/field", {"n": "0", "field": "nothing"}),
    ("picture", {"n": "0", "field": "../x"}), ("media", {"n": "0", "field": "__url__"}),
])  # fmt: skip
def test_what_is_not_there_is_not_found(shapes_view: View, path: str, words: dict[str, str]) -> None:
    assert request(shapes_view, path, **words).status == 404


@pytest.mark.parametrize("number", ["-1", "x", "1e9", "99999999999999999999999", "\uff11"])
def test_numbers_are_numbers(shapes_view: View, number: str) -> None:
    assert request(shapes_view, "api/sample", n=number).status == 400


def test_only_sound_and_video_is_played(shapes_view: View) -> None:
    assert request(shapes_view, "media", n=0, field="json").status == 415


def test_shards_have_samples_sizes_and_an_age(shapes_view: View) -> None:
    shards = request(shapes_view, "api/shards").json["shards"]
    assert [(shard["name"], shard["samples"], shard["first"]) for shard in shards] == [
        ("shapes-000.tar", 32, 0),
        ("shapes-001.tar", 32, 32),
        ("shapes-002.tar", 32, 64),
    ]
    assert all(shard["bytes"] > 100_000 and shard["modified"] > 1e9 for shard in shards)


def test_statistics_have_classes_sizes_and_lengths(shapes_view: View) -> None:
    request(shapes_view, "api/statistics", start=1)
    assert soon(lambda: request(shapes_view, "api/statistics").json["state"] == "done")
    result = request(shapes_view, "api/statistics").json["result"]
    fields = {field["name"]: field for field in result["fields"]}
    assert result["samples"] == 96
    classes = fields["cls"]["histograms"][0]["bars"]
    assert [(bar["value"], bar["count"]) for bar in classes] == [("0", 20), ("1", 19), ("2", 19), ("3", 19), ("4", 19)]
    assert [one["of"] for one in fields["jpg"]["histograms"]] == ["mean of values", "height", "width", "bytes"]
    assert [one["of"] for one in fields["caption.txt"]["histograms"]] == ["length", "bytes"]
    assert sum(bar["count"] for bar in fields["json.shape"]["histograms"][0]["bars"]) == 96
    assert fields["json.lens.f"]["range"] == [0.0, 2.0]
    assert fields["jpg"]["errors"]


def test_problems_are_found_and_shown_at_their_samples(shapes_view: View) -> None:
    assert request(shapes_view, "api/problems").json["state"] == "waiting"
    request(shapes_view, "api/problems", start=1)
    assert soon(lambda: request(shapes_view, "api/problems").json["state"] == "done")
    found = request(shapes_view, "api/problems").json
    assert [(kind["problem"], kind["count"]) for kind in found["kinds"]] == [("wrong-image", 2)]
    assert [one["number"] for one in found["findings"]] == list(BROKEN)
    assert request(shapes_view, "api/sample", n=BROKEN[0]).json["problems"][0]["problem"] == "wrong-image"
    cards = request(shapes_view, "api/samples", count=10).json["cards"]
    assert [card["number"] for card in cards if card["problems"]] == [BROKEN[0]]
    assert request(shapes_view, "api/shards").json["shards"][0]["problems"] == 1


def test_the_plan_says_who_gets_what_and_when(shapes_view: View) -> None:
    plan = request(shapes_view, "api/plan", ranks=3, workers=2, batch=4).json
    assert (plan["facts"]["steps"], plan["facts"]["samples"]) == (8, 96)
    given = [sample[0] for row in plan["rows"] for rank in row["ranks"] for sample in rank["samples"]]
    assert sorted(given) == list(range(96))
    assert [row["ranks"][0]["worker"] for row in plan["rows"][:4]] == [0, 1, 0, 1]


@pytest.mark.parametrize("words", [{"ranks": "0"}, {"ranks": "100000"}, {"batch": "x"}, {"shuffle_bytes": "much"}])
def test_a_plan_that_cannot_be_is_refused(shapes_view: View, words: dict[str, str]) -> None:
    assert request(shapes_view, "api/plan", **words).status in (400, 422)


def test_without_a_dataset_there_are_only_loaders(make_view: Callable[..., View]) -> None:
    view = make_view([])
    assert request(view, "api/state").json["mode"] == "live"
    assert "loaders" in request(view, "api/live").json
    assert request(view, "api/samples").status == 404


# -- bad data -------------------------------------------------------------------------------------------


def test_markup_in_keys_fields_texts_and_json_stays_text(
    make_view: Callable[..., View], make_shard: Callable[..., str]
) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>'
    files = [
        (f"{ATTACK}.txt", ATTACK.encode()),
        (f"{ATTACK}.json", json.dumps({ATTACK: ATTACK}).encode()),
        (f"{ATTACK}.svg", svg),
        (f"{ATTACK}.html", ATTACK.encode()),
        (f"{ATTACK}.jpg", svg),
        (f"{ATTACK}.mp4", svg),
        (f"{ATTACK}.<b>", b"\0\1"),
    ]
    view = make_view([make_shard("a.tar", files=files)])
    sample = request(view, "api/sample", n=0)
    assert sample.headers["Content-Type"] == "application/json"
    assert sample.json["key"] == ATTACK
    for name in ("txt", "json", "svg", "html", "jpg", "mp4", "<b>"):
        reply = request(view, "api/field", n=0, field=name)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    assert request(view, "api/field", n=0, field="svg").json["text"] == svg.decode()
    assert request(view, "picture", n=0, field="jpg").status == 422
    assert request(view, "picture", n=0, field="svg").headers["Content-Type"] == "application/json"
    assert request(view, "media", n=0, field="mp4").headers["Content-Type"] == "video/mp4"
    saved = request(view, "download", n=0, field="svg").headers
    assert saved["Content-Type"] == "application/octet-stream"
    assert "<" not in saved["Content-Disposition"]


@pytest.mark.parametrize(("field", "data"), [
    ("json", b"[" * 100_000), ("json", b"1e999"), ("json", b'{"a": ' * 500 + b"1" + b"}" * 500), ("json", b"\xff\xfe"),
    ("npy", b"\x93NUMPY" + bytes(100)), ("pyd", b"cos\nsystem\n(S'true'\ntR."), ("wav", b"RIFF" + bytes(60)),
    ("mp4", bytes(1000)), ("jpg", b""), ("npz", b"PK\3\4"), ("json.gz", b"\x1f\x8b" + bytes(10)), ("cls", b"\0\1\2"),
    ("pth", b"PK"), ("png", b"\x89PNG\r\n\x1a\n" + bytes(40)), ("caption", b"\xff\xfe\0text"), ("mp", b"\xc1"),
])  # fmt: skip
def test_whatever_a_field_holds_is_answered(
    make_view: Callable[..., View], make_shard: Callable[..., str], field: str, data: bytes
) -> None:
    view = make_view([make_shard("a.tar", files=[(f"a.{field}", data)])])
    assert request(view, "api/samples").status == 200
    assert request(view, "api/field", n=0, field=field).status == 200
    assert request(view, "picture", n=0, field=field).status in (200, 422)
    request(view, "api/statistics", start=1)
    assert soon(lambda: request(view, "api/statistics").json["state"] in ("done", "failed"))


def test_huge_fields_are_not_read_at_once(
    make_view: Callable[..., View], tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests_support import sparse_tar

    path = str(tmp_path_factory.mktemp("huge") / "huge.tar")
    huge = 5 << 30
    sparse_tar(
        path, [("a.jpg", huge), ("a.txt", huge), ("a.json", huge), ("a.npy", huge), ("a.mp4", huge), ("a.bin", huge)]
    )
    view = make_view([path])
    assert view.dataset.catalogue is not None
    for name in ("jpg", "json", "npy"):
        assert "many" in request(view, "api/field", n=0, field=name).json["error"]
    assert request(view, "api/field", n=0, field="txt").json["cut"]
    assert request(view, "api/field", n=0, field="bin").json["size"] == huge
    assert len(request(view, "api/hex", n=0, field="bin", start=huge - 10).json["hex"]) == 20
    part = request(view, "media", n=0, field="mp4", headers={"Range": f"bytes={huge - 5}-"})
    assert (part.status, part.data) == (206, bytes(5))
    assert request(view, "picture", n=0, field="jpg").status == 422


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(
    make_view: Callable[..., View], make_shard: Callable[..., str]
) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((11_000, 11_000), np.uint8)).save(stream, "PNG")
    view = make_view([make_shard("a.tar", files=[("a.png", stream.getvalue())])])
    reply = request(view, "picture", n=0, field="png")
    assert (reply.status, "pixels" in reply.json["error"]) == (422, True)


def test_secrets_in_urls_are_not_shown(make_view: Callable[..., View], closed_port: int) -> None:
    view = make_view([f"http://me:password@127.0.0.1:{closed_port}/a.tar?X-Amz-Signature=abc"])
    told = request(view, "api/state").data + request(view, "api/shards").data
    assert b"password" not in told
    assert b"abc" not in told
