from __future__ import annotations

import pytest

from webdataset.errors import StorageError
from webdataset.gopen import gopen
from webdataset.storage.stores.client import pages

pytestmark = pytest.mark.usefixtures("nobody")


def test_a_list_whose_pages_go_in_circles_ends() -> None:
    following = {"": "a", "a": "b", "b": "a"}
    with pytest.raises(StorageError, match="advance"):
        list(pages("", lambda marker: ([(f"s3://b/{marker}", 1)], following[marker]), "s3://b/"))


def test_a_url_without_a_bucket_is_an_error():
    with pytest.raises(StorageError, match="bucket"):
        gopen("s3:///a.tar")
