from __future__ import annotations

import pytest

from webdataset.errors import ObsoleteError, SampleError, SecurityError
from webdataset.shardlists import (
    MultiShardSample,
    SimpleShardList,
    shardspec,
)

SIX = "s-{0..5}.tar"


def urls(shards):
    return [shard["url"] for shard in shards]


SPEC = """
prefix: http://h/
datasets:
  - shards: ["x-{0..3}.tar"]
  - choose: 2
    shards: ["y-{0..3}.tar", q.tar]
    buckets: [b2]
  - resample: 6
    shards: z-{0..2}.tar
    buckets: b4
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def test_a_yaml_file_mixes_datasets(spec):
    shards = MultiShardSample(str(spec))
    first, second = urls(shards), urls(shards)
    for found in (first, second):
        assert sorted(url for url in found if "/x-" in url) == [f"http://h/x-{i}.tar" for i in range(4)]
        assert len({url for url in found if "/b2/" in url}) == 2
        assert sum("/b4/z-" in url for url in found) == 6
        assert len(found) == 12
    assert first != second
    assert urls(MultiShardSample(str(spec))) == first
    assert isinstance(shardspec(str(spec)), MultiShardSample)
    assert isinstance(shardspec(SIX), SimpleShardList)


def test_a_yaml_file_is_obsolete_unless_allowed(spec, monkeypatch):
    monkeypatch.delenv("ALLOW_OBSOLETE")
    with pytest.raises(ObsoleteError, match="ALLOW_OBSOLETE"):
        MultiShardSample(str(spec))


@pytest.mark.parametrize("shard", ["pipe:touch x", "/etc/passwd", "${HOME}"])
def test_a_yaml_file_from_elsewhere_names_no_command_file_or_variable(spec, monkeypatch, shard):
    monkeypatch.setenv("WDS_HOME", "http://evil/")
    spec.write_text(f"datasets: [{{shards: ['{shard}']}}]")
    with pytest.raises(SecurityError):
        MultiShardSample(f"pipe:cat {spec}")


def test_a_local_yaml_file_may_name_variables(spec, monkeypatch):
    monkeypatch.setenv("SOME_BUCKET", "http://h/b")
    spec.write_text("datasets: [{shards: [a.tar], buckets: [$SOME_BUCKET]}]")
    assert urls(MultiShardSample(str(spec))) == ["http://h/b/a.tar"]


def test_a_local_yaml_file_may_name_commands(spec):
    spec.write_text("datasets: [{shards: ['pipe:cat a.tar']}]")
    assert urls(MultiShardSample(str(spec))) == ["pipe:cat a.tar"]


@pytest.mark.parametrize(
    "text", ["[1]", "x: 1", "datasets: [{shards: [a], wrong: 1}]", "datasets: [{}]", "a: [", "datasets: []\nq: 1"]
)
def test_a_wrong_yaml_file_is_an_error(spec, text):
    spec.write_text(text)
    with pytest.raises(SampleError) as raised:
        MultiShardSample(str(spec))
    assert raised.value.url == str(spec)
