"""wl sort and its old names."""

from __future__ import annotations

from typing import Any


def test_equal_keys_are_all_kept_under_new_keys_and_an_error_without(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard("x.tar", samples=3)
    assert len(names(wl("sort", "--rekey", "{key}-{index}", shard, shard).out)) == 12
    ended = wl("sort", shard, shard)
    assert ended.code == 1
    assert ("key 000000]" in ended.err, "--rekey" in ended.err) == (True, True)


def test_tarsort_and_tarp_sort(wl: Any, make_shard: Any, names: Any, members: Any) -> None:
    shard = make_shard(files=[("b.n", b"10"), ("a.n", b"9")])
    assert names(wl.old("tarsort", shard).out) == ["a.n", "b.n"]
    assert names(wl.old("tarsort", "-s", "n", "-S", "int", shard).out) == ["a.n", "b.n"]
    assert members(wl.old("tarsort", "-S", "shuffle", shard).out) == members(shard)
    assert names(wl.old("tarp", "sort", "-s", "n", shard, "-o", "-").out) == ["b.n", "a.n"]
    assert members(wl.old("tarp", "sort", "-s", "__random__", shard, "-o", "-").out) == members(shard)


def test_samples_are_sorted_by_parts_of_fields_and_by_expressions(wl: Any, make_shard: Any, names: Any) -> None:
    scores = {"a": 2, "b": 10, "c": 1}
    files = [(f"{key}.json", f'{{"score": {score}, "n": [{score}]}}'.encode()) for key, score in scores.items()]
    shard = make_shard(files=files)
    by_part = (["-k", "json.score"], ["-k", "json.n.0", "--as", "int"])
    ways = (*by_part, ["-e", 'json["score"]'], ["-r", "-e", "0 - json['score']"])
    for words in ways:
        ended = wl("sort", *words, shard)
        assert (ended.code, names(ended.out)) == (0, ["c.json", "a.json", "b.json"]), ended.err
