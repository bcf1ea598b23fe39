"""The small functions of `webdataset.utils`."""

from __future__ import annotations

from pathlib import Path

import pytest

from webdataset import utils


def test_a_source_is_repeated_up_to_a_number_of_passes_batches_or_samples() -> None:
    assert list(utils.repeatedly([1, 2], nepochs=2)) == [1, 2, 1, 2]
    assert list(utils.repeatedly([1, 2], nbatches=3)) == [1, 2, 1]
    assert len(list(utils.repeatedly([([0] * 4,)], nsamples=10))) == 3
    assert list(utils.repeatedly0([1, 2, 3], nepochs=2, nbatches=2)) == [1, 2, 1, 2]


def test_braces_in_patterns(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).touch()
    assert [Path(path).name for path in utils.glob_with_braces(f"{tmp_path}/{{a,c}}.t*")] == ["a.txt", "c.txt"]
    assert utils.fnmatch_with_braces("x.png", "*.{jpg,png}")
    assert not utils.fnmatch_with_braces("x.gif", "*.{jpg,png}")


def test_a_name_is_looked_up_in_modules() -> None:
    assert utils.lookup_sym("sqrt", ["json", "math"])(4) == 2
    assert utils.lookup_sym("nothing", ["json", "math"]) is None


@pytest.mark.parametrize("text", ["__import__('os')", "a.b", "a b", ""])
def test_only_plain_names_are_evaluated(text: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        utils.safe_eval(text)


def test_deprecated_functions_warn_and_work() -> None:
    @utils.deprecated("since today")
    def old() -> int:
        return 3

    with pytest.warns(DeprecationWarning, match="today"):
        assert old() == 3


def test_obsolete_functions_need_the_users_word(monkeypatch: pytest.MonkeyPatch) -> None:
    @utils.obsolete(reason="use new()")
    def old() -> int:
        return 3

    with pytest.raises(utils.ObsoleteException, match=r"new\(\)"):
        old()
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    assert old() == 3
