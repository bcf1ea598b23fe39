"""Views of a dataset with shapes, and requests to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shapes import shape_shards
from webdataset.view.answers import View


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Shards with 96 samples."""
    return shape_shards(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def shapes_view(shapes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """A view of them, once the index is there; its threads end with the module."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patched.setenv("WDS_MONITOR", str(tmp_path_factory.mktemp("monitors")) + "/")
        with View(shapes) as view:
            assert view.dataset.wait(60)
            yield view


@pytest.fixture
def make_view(tmp_path: Path, own_cache: None) -> Iterator[Callable[..., View]]:
    """`make_view(urls)` opens a view and waits for its index."""
    opened = []

    def make(urls: list[str], **options: Any) -> View:
        view = View(urls, **options)
        opened.append(view)
        view.start()
        assert view.dataset.wait(60)
        return view

    yield make
    for view in opened:
        view.close()
