"""The page in a browser: what is to be seen, keys, dark and light, and that nothing of the data runs.

`PYTHONPATH=tests python tests/view/test_browser.py` takes the pictures of docs/view.md again.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from servers.chromium import Browser, browser
from shapes import shape_shards
from tests_support import tar_bytes
from waiting import soon
from webdataset.cli.commands.view import open_browser
from webdataset.display.monitors import LoaderMonitor
from webdataset.view.answers import View

pytestmark = pytest.mark.xdist_group("chromium")
ROOT = Path(__file__).resolve().parents[2]

PICTURES_THERE = "[...document.images].every((image) => image.complete || image.loading === 'lazy')"
FIELDS_THERE = "![...document.querySelectorAll('.field > div')].some((body) => body.textContent === '...')"
ATTACK = '<img src=x onerror="window.attacked=1"><script>window.attacked=2</script>'


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as opened:
        opened.size(1280, 800)
        yield opened


@pytest.fixture
def shown(page: Browser, shapes_view: View) -> Browser:
    """The wall of the shapes."""
    page.events.clear()
    page.open("about:blank")
    page.open(shapes_view.server.url)
    page.wait("document.querySelectorAll('.tile').length === 60")
    return page


def go(page: Browser, place: str, until: str) -> None:
    page.run(f"location.hash = {json.dumps('#/' + place)}")
    page.wait(until)


def focused(page: Browser) -> object:
    return page.run("document.activeElement.dataset.number")


def test_the_wall_shows_pictures_and_the_reason_where_one_is_broken(shown: Browser) -> None:
    shown.wait("document.querySelector('.tile img').naturalWidth > 0")
    shown.wait("document.querySelector('[data-number=\"7\"] .broken')")
    assert "truncated" in str(shown.run("document.querySelector('[data-number=\"7\"]').innerText")).lower()
    assert "96 samples" in shown.text()
    picture = np.asarray(Image.open(io.BytesIO(shown.screenshot())).convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 2000  # gradients, not an empty page


def test_keys_move_on_the_wall_open_a_sample_and_go_back(shown: Browser) -> None:
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        shown.press(key)
    assert focused(shown) == "2"
    columns = shown.run(
        "[...document.querySelectorAll('.tile')].findIndex((one, n, all) => one.offsetTop > all[0].offsetTop)"
    )
    shown.press("ArrowDown")
    assert focused(shown) == str(2 + columns)
    shown.press("Enter")
    shown.wait("document.querySelector('.heading h1') && document.querySelector('.stage')")
    shown.press("ArrowRight")
    shown.wait(f"document.querySelector('.heading .soft').textContent.startsWith('sample {3 + columns} ')")
    shown.press("Escape")
    shown.wait("document.querySelectorAll('.tile').length === 60")
    shown.wait(f"document.activeElement.dataset.number === '{3 + columns}'")
    shown.press("PageDown")
    shown.wait("document.querySelectorAll('.tile').length === 36")


def test_a_condition_selects_samples(shown: Browser) -> None:
    shown.press("/")
    assert shown.run("document.activeElement.id") == "search"
    shown.send("Input.insertText", text="cls == 3 and width(jpg) == 120")
    shown.press("Enter")
    shown.wait("document.querySelectorAll('.tile').length === 6")
    assert "6 matches" in shown.text()
    go(shown, "samples?q=cls+%3D%3D", "!document.getElementById('notice').hidden")
    assert "condition" in shown.run("document.getElementById('notice').innerText")


def test_a_sample_shows_every_field(shown: Browser) -> None:
    go(shown, "sample?n=12", f"document.querySelectorAll('.field').length === 7 && {FIELDS_THERE}")
    text = shown.text()
    assert "JPEG 160 \u00d7 120 RGB" in text
    assert "float32 120 \u00d7 160" in text
    assert "8,000 Hz" in text
    assert '"triangle"' in text
    assert shown.run("document.querySelectorAll('.stage img.layer').length") == 2
    shown.wait("document.querySelector('audio').duration === 1")
    assert shown.run("document.querySelector('audio').error") is None
    assert shown.run(
        "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1200, 220).data.some(Boolean)"
    )


def test_statistics_lead_to_their_samples(shown: Browser) -> None:
    go(shown, "statistics", "document.querySelector('.classes button')")
    find = "[...document.querySelectorAll('.card')].find((one) => one.innerText.startsWith('cls'))"
    shown.run(f"{find}.querySelector('.classes button').click()")
    shown.wait("document.querySelectorAll('.tile').length === 20")
    assert shown.run("document.getElementById('search').value") == "cls == 0"


def test_shards_lead_to_their_samples(shown: Browser) -> None:
    go(shown, "shards", "document.querySelectorAll('.map button').length === 3")
    shown.run("document.querySelectorAll('.map button')[1].click()")
    shown.wait("location.hash === '#/samples?start=32' && document.querySelector('[data-number=\"32\"]')")


def test_the_plan_shows_every_sample_of_the_epoch(shown: Browser) -> None:
    go(shown, "plan?ranks=2&batch=8&workers=1", "document.querySelectorAll('.dots a').length === 96")
    assert "steps" in shown.text()


def test_problems_are_shown_where_they_are(shown: Browser) -> None:
    go(shown, "problems", "document.querySelector('.button.main') || document.querySelector('td a')")
    shown.run("document.querySelector('.button.main') && document.querySelector('.button.main').click()")
    shown.wait("document.querySelectorAll('td a').length === 2")
    go(shown, "sample?n=7", "document.querySelector('.problem')")
    assert "wrong-image" in shown.text()


def test_running_loaders_are_shown_live(shown: Browser) -> None:
    with LoaderMonitor(lambda: {"bytes_read": 5_000_000, "reasons": {}}, title="WebLoader") as monitor:
        watched = monitor.watched(iter([[1], [2], [3]]))
        next(watched)
        go(shown, "live", "document.querySelector('.loader')")
        shown.wait("document.querySelector('.loader').innerText.includes('5.0 MB')")
        list(watched)
        shown.wait("document.querySelector('.loader').innerText.includes('idle')")
    shown.wait("document.querySelector('.empty')")


def test_dark_and_light(shown: Browser) -> None:
    before = shown.run("getComputedStyle(document.body).backgroundColor")
    shown.press("t")
    after = shown.run("getComputedStyle(document.body).backgroundColor")
    assert before != after
    shown.press("t")
    assert shown.run("getComputedStyle(document.body).backgroundColor") == before


def test_it_can_be_used_without_eyes_and_without_a_mouse(shown: Browser) -> None:
    nameless = """[...document.querySelectorAll('button, a, input, img, canvas')].filter((one) =>
      !(one.innerText || one.ariaLabel || one.alt !== undefined && one.hasAttribute('alt') || one.title
        || one.closest('label') || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"""
    for place, until in (
        ("samples", ".tile"),
        ("sample?n=12", ".stage"),
        ("shards", ".map"),
        ("plan", ".dots"),
        ("live", "h1"),
    ):
        go(shown, place, f"document.querySelector({json.dumps(until)})")
        assert shown.run(nameless) == []
    assert shown.run("document.documentElement.lang") == "en"
    shown.press("?")
    shown.wait("document.getElementById('keys').open")
    shown.press("Escape")
    shown.wait("!document.getElementById('keys').open")


def test_the_page_asks_nobody_else_and_breaks_no_rule(shown: Browser, shapes_view: View) -> None:
    for place, until in (
        ("sample?n=12", FIELDS_THERE),
        ("statistics", "document.querySelector('.bars')"),
        ("live", "document.querySelector('h1')"),
    ):
        go(shown, place, until)
    ours = (shapes_view.server.url, "about:", "data:")  # the last are what the browser draws its players with
    assert [url for url in shown.requested() if not url.startswith(ours)] == []
    assert [told for told in shown.complaints() if "422" not in told] == []  # the broken picture


def test_nothing_of_the_data_runs(page: Browser, tmp_path: Path, own_cache: None) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.attacked=3"><script>window.attacked=4</script></svg>'
    files = [
        (f"{ATTACK}.txt", ATTACK.encode()),
        (f"{ATTACK}.json", json.dumps({ATTACK: [ATTACK]}).encode()),
        (f"{ATTACK}.html", ATTACK.encode()),
        (f"{ATTACK}.svg", svg),
        (f"{ATTACK}.jpg", svg),
        (f"{ATTACK}.mp4", svg),
        (f"{ATTACK}.<b onclick=x>", b"\0\1"),
        ("javascript:window.attacked=5.cls", b"1"),
    ]
    (tmp_path / "<b>a.tar").write_bytes(tar_bytes(files))
    page.events.clear()
    with View([str(tmp_path / "<b>a.tar")]) as view:
        assert view.dataset.wait(60)
        page.open(view.server.url)
        page.wait("document.querySelectorAll('.tile').length === 2")
        for place, until in (
            ("sample?n=0", f"document.querySelectorAll('.field').length === 7 && {FIELDS_THERE}"),
            ("statistics", "document.querySelector('.columns')"),
            ("shards", "document.querySelector('.map button')"),
            ("problems", "document.querySelector('.button.main')"),
            ("samples?q=%3Cscript%3E", "document.getElementById('search')"),
        ):
            go(page, place, until)
            assert page.run("window.attacked") is None
            assert (
                page.run(
                    "document.querySelectorAll('main script, main b img, main [onerror], main svg[onload]').length"
                )
                == 0
            )
        go(page, "sample?n=0", "document.querySelector('.heading h1')")
        assert page.run("document.querySelector('.heading h1').textContent") == ATTACK
        # opened by themselves, they are neither pages nor scripts
        for path in (
            "download?n=0&field=html",
            "download?n=0&field=svg",
            "api/field?n=0&field=svg",
            "media?n=0&field=mp4",
        ):
            page.open(view.server.url + path)
            assert page.run("window.attacked") is None


def test_the_file_that_a_browser_is_started_with_leads_to_the_page(
    page: Browser, shapes_view: View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_browser(shapes_view.server.url, str(tmp_path))
    assert soon(lambda: opened)
    page.open("about:blank")
    page.open(opened[0])
    page.wait("document.querySelectorAll('.tile').length === 60")


def test_another_site_cannot_read_the_view(page: Browser, shapes_view: View) -> None:
    page.open("about:blank")
    address = shapes_view.server.url
    told = page.run(f"fetch({json.dumps(address + 'api/state')}).then((one) => one.text(), (error) => 'refused')")
    assert told == "refused"


# -- pictures for the documentation ----------------------------------------------------------------------------------


def take_pictures(page: Browser, folder: Path, shapes: Path) -> None:
    """The pictures of docs/view.md, each as a browser shows it."""
    names = [Path(shard).name for shard in shape_shards(shapes, samples=300, per_shard=64)]
    with contextlib.chdir(shapes), View(names) as view:
        assert view.dataset.wait(60)
        view.problems.job.start()
        assert soon(lambda: view.problems.job.state == "done")
        page.size(1200, 760)
        page.open(view.server.url)
        page.wait("document.querySelectorAll('.tile').length === 60")
        places = {
            "wall": (
                "samples",
                "document.querySelector('.tile img').naturalWidth > 0 && document.querySelector('.broken')",
            ),
            "sample": ("sample?n=12", f"document.querySelector('.stage img').naturalWidth > 0 && {FIELDS_THERE}"),
            "statistics": ("statistics", "document.querySelector('.bars')"),
            "plan": ("plan?ranks=4&batch=16", "document.querySelector('.dots a')"),
        }
        for name, (place, until) in places.items():
            for theme in ("light", "dark") if name in ("wall", "sample") else ("light",):
                page.run(f"document.documentElement.dataset.theme = '{theme}'")
                go(page, place, f"{until} && {PICTURES_THERE}")
                page.run("new Promise((done) => setTimeout(done, 400))")
                picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
                picture.save(folder / f"view-{name}{'-dark' if theme == 'dark' else ''}.jpg", quality=86, optimize=True)


def test_the_pictures_of_the_documentation_can_be_taken(page: Browser, tmp_path: Path, own_cache: None) -> None:
    (tmp_path / "shapes").mkdir()
    take_pictures(page, tmp_path, tmp_path / "shapes")
    taken = {path.name for path in tmp_path.glob("view-*.jpg")}
    assert taken == {path.name for path in (ROOT / "docs/images").glob("view-*.jpg")}
    for name in taken:
        with Image.open(tmp_path / name) as new, Image.open(ROOT / "docs/images" / name) as old:
            assert new.size == old.size


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="shapes-") as made, browser() as opened:
        take_pictures(opened, ROOT / "docs/images", Path(made))
