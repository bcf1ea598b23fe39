"""Histograms of samples all over a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from webdataset.view import statistics as statistics_module
from webdataset.view.jobs import Job
from webdataset.view.samples import StreamedSamples
from webdataset.view.statistics import statistics


@pytest.fixture
def of_files(make_shard: Callable[..., str], request: pytest.FixtureRequest) -> Callable[..., dict[str, object]]:
    def made(files: list[tuple[str, bytes]], **options: float) -> dict[str, object]:
        samples = StreamedSamples([make_shard(files=files)])
        request.addfinalizer(samples.close)
        return statistics(samples, Job(lambda _: None), **options)

    return made


def by_name(result: dict[str, object]) -> dict[str, dict[str, object]]:
    return {field["name"]: field for field in result["fields"]}


def test_few_texts_are_classes_and_many_are_lengths(of_files: Callable[..., dict[str, object]]) -> None:
    files = [(f"{i:03d}.label", ("cat", "dog", "dog")[i % 3].encode()) for i in range(30)]
    files = [pair for i in range(30) for pair in (files[i], (f"{i:03d}.txt", b"x" * (i + 100)))]
    fields = by_name(of_files(files))
    bars = fields["label"]["histograms"][0]["bars"]
    assert [(bar["label"], bar["count"]) for bar in bars] == [("dog", 20), ("cat", 10)]
    assert [one["of"] for one in fields["txt"]["histograms"]] == ["length", "bytes"]
    assert sum(bar["count"] for bar in fields["txt"]["histograms"][0]["bars"]) == 30


def test_values_in_json_are_fields_of_their_own(of_files: Callable[..., dict[str, object]]) -> None:
    values = [{"kind": "ab"[i % 2], "n": i, "deep": {"x": i / 2}, "not a name": 1, "flag": True} for i in range(10)]
    fields = by_name(of_files([(f"{i}.json", json.dumps(value).encode()) for i, value in enumerate(values)]))
    assert {"json", "json.kind", "json.n", "json.deep.x", "json.flag"} == set(fields)
    assert fields["json.n"]["range"] == [0.0, 9.0]
    assert [bar["value"] for bar in fields["json.kind"]["histograms"][0]["bars"]] == ["a", "b"]


def test_it_ends_in_time_and_after_as_many_as_wanted(of_files: Callable[..., dict[str, object]]) -> None:
    files = [(f"{i:03d}.cls", b"1") for i in range(50)]
    assert of_files(files, most=7)["samples"] == 7
    assert of_files(files, seconds=0)["samples"] <= 1


def test_fields_that_not_all_have_are_counted(of_files: Callable[..., dict[str, object]]) -> None:
    result = of_files([("a.cls", b"1"), ("a.txt", b"t"), ("b.cls", b"2")])
    assert result["sets"] == [{"fields": ["cls", "txt"], "samples": 1}, {"fields": ["cls"], "samples": 1}]
    assert by_name(result)["txt"]["samples"] == 1


def test_fields_that_are_too_large_to_read_still_have_a_size(
    of_files: Callable[..., dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_module, "MOST_BYTES", 100)
    field = by_name(of_files([("a.npy", bytes(5000)), ("b.npy", bytes(7000))]))["npy"]
    [(kind, count)] = field["types"].items()
    assert ("large" in kind, count) == (True, 2)
    assert field["bytes"]["total"] == 12_000
