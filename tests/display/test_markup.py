"""Tables in HTML and in text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webdataset.display.markup import columns, escaped, number_text, table

HOSTILE = st.text(alphabet=st.sampled_from("<>&\"'\x00\x1b\u202eab"), max_size=20)


@given(st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4), HOSTILE)
def test_a_table_has_no_markup_but_its_own(rows: list[tuple[str, str]], title: str) -> None:
    made = table(rows, head=("a", "b"), title=title)
    assert made.count("<") == 12 + 6 * len(rows) + 4 * bool(title)
    assert "\x00" not in made
    assert "\u202e" not in made


@given(HOSTILE)
def test_escaped_text_has_no_markup(text: str) -> None:
    assert not set("<>\"'\x00\x1b") & set(escaped(text))


def test_columns_are_aligned() -> None:
    assert columns([["a", "b"], ["long", "c"]], head=("x", "y"), indent=" ") == " x     y\n a     b\n long  c"
    assert columns([]) == ""


def test_numbers_have_separators() -> None:
    assert [number_text(n) for n in (0, 1e6, 0.5, -1234567)] == ["0", "1,000,000", "0.5", "-1,234,567"]
