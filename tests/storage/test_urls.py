from __future__ import annotations

import itertools
import pathlib
import re

import braceexpand as reference
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from webdataset.errors import MissingShardError, SecurityError, StorageError
from webdataset.storage.urls import (
    UnsetVariableError,
    as_url,
    braceexpand,
    check_url_from_data,
    expanded,
    local_path,
    scheme_of,
    substituted,
)


def outcome(function, pattern):
    try:
        return list(function(pattern))
    except ValueError:
        return "refused"


@pytest.mark.parametrize(
    ("pattern", "urls"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{000..002}.tar", ["a-000.tar", "a-001.tar", "a-002.tar"]),
        ("{1..7..3}", ["1", "4", "7"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("x{a,b{1..2}}y", ["xay", "xb1y", "xb2y"]),
        ("{,.gz}", ["", ".gz"]),
        ("{}", ["{}"]),
        ("{x}", ["{x}"]),
        (r"\{a,b\}", ["{a,b}"]),
        (r"{a\,b,c}", ["a,b", "c"]),
        ("pipe:cat {a,b}.tar", ["pipe:cat a.tar", "pipe:cat b.tar"]),
    ],
)
def test_braces_expand_as_in_a_shell(pattern, urls):
    assert list(braceexpand(pattern)) == urls


@pytest.mark.parametrize("pattern", ["{a,b", "a}", "{{a,b}", r"\{a}"])
def test_a_brace_without_its_partner_is_an_error_with_the_cure(pattern):
    with pytest.raises(ValueError, match=r"Unbalanced braces: .*write \\"):
        braceexpand(pattern)


def closes_before_it_opens(pattern):
    """Such as "}{": the reference counts braces only, we say which one has no partner."""
    depth = 0
    for brace in re.sub(r"\\.", "", pattern):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return True
    return False


@settings(max_examples=1000, deadline=None)
@given(st.text(alphabet="ab1{},.\\-0", max_size=14))
def test_expansion_equals_the_reference_on_any_text(pattern):
    assume(not closes_before_it_opens(pattern))
    assume("\\\\" not in pattern)  # the reference takes backslashes away twice inside braces
    assert outcome(braceexpand, pattern) == outcome(reference.braceexpand, pattern)


numbers = st.from_regex(r"-?0{0,2}[0-9]{1,3}", fullmatch=True)
ranges = st.builds(lambda a, b, s: f"{{{a}..{b}{s}}}", numbers, numbers, st.sampled_from(["", "..3", "..-7", "..0"]))
letters = st.builds(lambda a, b, s: f"{{{a}..{b}{s}}}", st.sampled_from("aZkA"), st.sampled_from("azAZ"), st.just(""))
leaves = st.one_of(st.text(alphabet="ab-./", max_size=3), letters, st.just("{1..3}"), st.just("{08..11}"))
patterns = st.recursive(
    leaves, lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda xs: "{" + ",".join(xs) + "}"), max_leaves=6
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(ranges, patterns, st.tuples(patterns, patterns).map("".join)))
def test_expansion_equals_the_reference_on_patterns(pattern):
    assert list(itertools.islice(braceexpand(pattern), 5000)) == list(
        itertools.islice(reference.braceexpand(pattern), 5000)
    )


@pytest.mark.parametrize("bomb", ["{1..9999999999}", "{0..9}" * 8, "{a,b}" * 60, "{1..99999}{1..99999}"])
def test_a_brace_bomb_is_refused_before_it_expands(bomb):
    with pytest.raises(ValueError, match="more than the limit"):
        braceexpand(bomb)


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="nested"):
        braceexpand("{a," * 5000 + "}" * 5000)


def test_a_large_pattern_expands_lazily():
    assert next(braceexpand("{0000000..9999999}")) == "0000000"


def test_many_ranges_of_one_are_no_problem():
    assert list(braceexpand("{1..1}" * 3000)) == ["1" * 3000]


def test_urls_are_split_at_double_colons_but_not_inside_an_address():
    assert expanded("a.tar::b-{0..1}.tar") == ["a.tar", "b-0.tar", "b-1.tar"]
    assert expanded("http://[::1]:8000/a.tar::http://[fe80::1]/b.tar") == [
        "http://[::1]:8000/a.tar",
        "http://[fe80::1]/b.tar",
    ]


def test_variables_come_from_the_environment_with_a_prefix(monkeypatch):
    monkeypatch.setenv("WDS_DATA", "/data/${SET}")
    monkeypatch.setenv("WDS_SET", "train-{0..1}")
    assert expanded("${DATA}.tar") == ["/data/train-0.tar", "/data/train-1.tar"]


def test_an_unset_variable_is_an_error_that_names_it():
    with pytest.raises(UnsetVariableError, match="WDS_NOSUCH"):
        substituted("${NOSUCH}/a.tar")
    with pytest.raises(AssertionError):
        substituted("${NOSUCH}/a.tar")


def test_variables_that_refer_to_themselves_are_an_error(monkeypatch):
    monkeypatch.setenv("WDS_LOOP", "${LOOP}x")
    with pytest.raises(ValueError, match="without end"):
        substituted("${LOOP}")


def test_globs_list_local_files_in_order(tmp_path):
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    assert expanded(f"{tmp_path}/*.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expanded(tmp_path / "?.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expanded(f"file:{tmp_path}/a*.tar") == [f"{tmp_path}/a.tar"]


def test_a_glob_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(MissingShardError, match="no file matches"):
        expanded(f"{tmp_path}/*.tar")


def test_a_file_whose_name_looks_like_a_glob_stands_for_itself(tmp_path):
    (tmp_path / "a[1].tar").touch()
    assert expanded(f"{tmp_path}/a[1].tar") == [f"{tmp_path}/a[1].tar"]


def test_a_question_mark_in_a_web_address_is_no_glob():
    assert expanded("http://host/a.tar?x=1") == ["http://host/a.tar?x=1"]


def test_a_windows_path_keeps_its_backslashes():
    assert expanded(r"C:\data\a-{0..1}.tar") == [r"C:\data\a-0.tar", r"C:\data\a-1.tar"]
    assert scheme_of(r"C:\data\a.tar") == ""


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("a.tar", ""), ("./a:b.tar", ""), ("PIPE:cat", "pipe"), ("s3://b/a", "s3"), ("/x:y", ""), ("2024:1.tar", "")],
)
def test_the_scheme_of_a_url(url, scheme):
    assert scheme_of(url) == scheme


def test_paths_and_bytes_are_urls_but_numbers_are_not():
    assert as_url(pathlib.PurePosixPath("a/b.tar")) == "a/b.tar"
    assert as_url(b"a.tar") == "a.tar"
    with pytest.raises(TypeError, match="int"):
        as_url(7)


def test_file_urls_name_paths(tmp_path):
    (tmp_path / "a b.tar").touch()
    (tmp_path / "c%20d.tar").touch()
    assert local_path(f"file://{tmp_path}/a%20b.tar") == f"{tmp_path}/a b.tar"
    assert local_path(f"file:{tmp_path}/c%20d.tar") == f"{tmp_path}/c%20d.tar"
    assert local_path("file:///none%20here.tar") == "/none%20here.tar"
    assert local_path("http://host/a.tar") is None
    assert local_path("-") is None
    with pytest.raises(StorageError, match="host"):
        local_path("file://elsewhere/a.tar")


@pytest.mark.parametrize(
    "url",
    ["pipe:touch x", "PIPE:touch x", " pipe:touch x", "/etc/passwd", "file:/etc/passwd", "a.tar", "-", "",
     "sftp://h/a", "scp://h/a", "unknown:x", "\thttp://h/a", "C:/x"],
)  # fmt: skip
def test_data_from_elsewhere_names_no_command_and_no_file(url):
    with pytest.raises(SecurityError):
        check_url_from_data(url, "https://host/index.json")
    with pytest.raises(SecurityError):
        check_url_from_data(url, "pipe:curl https://host/index.json")


def test_data_from_elsewhere_may_name_stores_and_a_local_list_anything():
    for url in ("https://h/a.tar", "s3://b/a.tar", "ais://b/a.tar"):
        assert check_url_from_data(url, "http://host/index.json") == url
    assert check_url_from_data("pipe:cat a.tar", "lists/mine.yaml") == "pipe:cat a.tar"


def test_secrets_in_a_pattern_do_not_appear_in_its_error():
    with pytest.raises(ValueError, match="Unbalanced") as caught:
        braceexpand("http://me:hidden@host/{a")
    assert "hidden" not in str(caught.value)


def test_a_number_after_an_at_sign_says_how_many_shards_there_are(tmp_path):
    assert expanded("s3://b/train-@000002.tgz") == ["s3://b/train-000000.tgz", "s3://b/train-000001.tgz"]
    for literal in ("http://me@010.0.0.1/a.tar", "a@2023.tar", "pipe:cat x-@002.tar", "hf://datasets/o/n@main/a.tar"):
        assert expanded(literal) == [literal]
    existing = tmp_path / "x@002.tar"
    existing.write_bytes(b"")
    assert expanded(existing) == [str(existing)]
    with pytest.raises(ValueError, match="no shard"):
        expanded("x-@000.tar")
