"""Samples by number: the same from an index and from a stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests_support import tar_bytes
from webdataset.errors import LimitError
from webdataset.indices.making import catalogue_of
from webdataset.view import samples as samples_module
from webdataset.view.samples import CataloguedSamples, SampleList, StoredSample, StreamedSamples

pytestmark = pytest.mark.usefixtures("own_cache")


def plain(sample: StoredSample) -> tuple[object, ...]:
    values = {name: field.read(1000) for name, field in sample.fields.items()}
    return sample.number, sample.key, sample.url, sample.shard, sample.place, values


def test_a_stream_and_an_index_give_the_same(make_shards: Callable[..., list[str]]) -> None:
    shards = make_shards(3, samples=4)
    indexed, streamed = CataloguedSamples(catalogue_of(shards)), StreamedSamples(shards)
    assert [plain(indexed.sample(i)) for i in range(12)] == [plain(streamed.sample(i)) for i in range(12)]
    assert plain(streamed.sample(5))[1:5] == ("000005", shards[1], 1, 1)
    for samples in (indexed, streamed):
        samples.close()


@pytest.mark.parametrize("kind", ["indexed", "streamed"])
def test_keys_are_found(make_shards: Callable[..., list[str]], kind: str) -> None:
    shards = make_shards(2, samples=5)
    samples: SampleList = CataloguedSamples(catalogue_of(shards)) if kind == "indexed" else StreamedSamples(shards)
    assert (samples.find("000007"), samples.key(7)) == (7, "000007")
    assert (samples.find("000003", shards[0]), samples.find("000007", shards[1])) == (3, 7)
    for key, url in (("nobody", None), ("000003", shards[1]), ("000003", "elsewhere")):
        with pytest.raises(KeyError):
            samples.find(key, url)
    with pytest.raises(IndexError):
        samples.sample(10)
    assert (samples.known(), samples.is_complete()) == (10, True)
    samples.close()


def test_a_stream_is_read_only_as_far_as_is_asked_for(make_shards: Callable[..., list[str]]) -> None:
    streamed = StreamedSamples([*make_shards(1, samples=5), "/nowhere/b.tar"])
    streamed.sample(2)
    assert (streamed.known(), streamed.is_complete(), streamed.errors) == (3, False, [])
    with pytest.raises(IndexError):
        streamed.sample(99)
    assert (streamed.known(), len(streamed.errors)) == (5, 1)
    assert plain(streamed.sample(0))[1] == "000000"
    streamed.close()


def test_a_broken_shard_of_a_stream_is_told_and_the_next_is_read(
    make_shard: Callable[..., str], make_shards: Callable[..., list[str]]
) -> None:
    whole = tar_bytes([(f"x{i}.txt", b"text") for i in range(4)])
    cut = make_shard("cut.tar", samples=1)
    with open(cut, "wb") as file:
        file.write(whole[:2600])
    streamed = StreamedSamples([cut, *make_shards(1, samples=2)])
    keys = [streamed.sample(i).key for i in range(4)]
    assert keys == ["x0", "x1", "000000", "000001"]
    assert "early" in str(streamed.errors[0])
    streamed.close()


def test_parts_of_fields_are_read(make_shard: Callable[..., str]) -> None:
    shard = make_shard("a.tar", files=[("a.bin", bytes(range(200)))])
    for samples in (CataloguedSamples(catalogue_of([shard])), StreamedSamples([shard])):
        field = samples.sample(0).fields["bin"]
        parts = [field.read_part(10, 13), field.beginning(2), field.read_part(198, 999)]
        assert parts == [b"\n\x0b\x0c", b"\0\1", b"\xc6\xc7"]
        with pytest.raises(LimitError, match="many"):
            field.read(100)
        samples.close()


def test_large_fields_of_a_stream_are_passed_over(
    make_shard: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples_module, "LARGE", 1000)
    streamed = StreamedSamples([make_shard("a.tar", files=[("a.bin", bytes(5000)), ("a.txt", b"small")])])
    fields = streamed.sample(0).fields
    assert (fields["bin"].size, fields["txt"].read(99)) == (5000, b"small")
    with pytest.raises(LimitError, match="index"):
        fields["bin"].beginning(10)
    streamed.close()


def test_a_stream_is_kept_up_to_a_limit(make_shards: Callable[..., list[str]]) -> None:
    streamed = StreamedSamples(make_shards(1, samples=10), most=20)
    with pytest.raises(IndexError):
        streamed.sample(9)
    assert 0 < streamed.known() < 10
    assert "keeps" in str(streamed.errors[-1])
    streamed.close()
