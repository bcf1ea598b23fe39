from __future__ import annotations

import itertools
import re

import braceexpand as reference
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from webdataset.storage.braces import braceexpand


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
    with pytest.raises(ValueError, match=r"\\"):
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
    with pytest.raises(ValueError, match="limit"):
        braceexpand(bomb)


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="nested"):
        braceexpand("{a," * 5000 + "}" * 5000)


def test_a_large_pattern_expands_lazily():
    assert next(braceexpand("{0000000..9999999}")) == "0000000"


def test_many_ranges_of_one_are_no_problem():
    assert list(braceexpand("{1..1}" * 3000)) == ["1" * 3000]


def test_secrets_in_a_pattern_do_not_appear_in_its_error():
    with pytest.raises(ValueError, match="Unbalanced") as caught:
        braceexpand("http://me:hidden@host/{a")
    assert "hidden" not in str(caught.value)
