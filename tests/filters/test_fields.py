import pytest

from webdataset.errors import SampleError
from webdataset.filters import (
    associate,
    extract_keys,
    getfirst,
    parse_field_spec,
    rename,
    rename_keys,
    to_tuple,
    transform_with,
)
from webdataset.handlers import ignore_and_continue

SAMPLE = {"__key__": "a", "__url__": "x.tar", "x": 1, "y": None}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("x", "__key__"), (1, "a")),
        (("x __key__",), (1, "a")),
        (("q;x",), (1,)),
        ((["q", "x"], "__key__"), (1, "a")),
        ((["q", "x"],), (1,)),
        ((), ()),
    ],
)
def test_to_tuple_takes_fields_alternatives_and_one_string_of_several(args, expected):
    assert list(to_tuple(*args)([SAMPLE])) == [expected]


@pytest.mark.parametrize("fields", [("q",), ("x", "q"), ("x;z", "q")])
def test_a_missing_field_is_an_error_that_names_it_and_what_there_is(fields):
    with pytest.raises(SampleError, match=r"'q'.* x, y") as raised:
        list(to_tuple(*fields)([SAMPLE]))
    assert (raised.value.url, raised.value.key) == ("x.tar", "a")


@pytest.mark.parametrize("fields", [("y",), ("x", "y"), ("q;y", "x")])
def test_none_is_an_error_too(fields):
    with pytest.raises(SampleError, match="None") as raised:
        list(to_tuple(*fields)([SAMPLE]))
    assert (raised.value.url, raised.value.key) == ("x.tar", "a")
    assert raised.value.field in ("y", "q;y")


def test_missing_and_none_can_be_allowed():
    assert list(to_tuple("q", "x", missing_is_error=False)([SAMPLE])) == [(None, 1)]
    assert list(to_tuple("y", "x", none_is_error=False)([SAMPLE])) == [(None, 1)]
    with pytest.raises(ValueError, match="None"):
        list(to_tuple("q", missing_is_error=False, none_is_error=True)([SAMPLE]))
    with pytest.raises(ValueError, match="'q'"):
        list(to_tuple("q", none_is_error=False)([SAMPLE]))


def test_a_handler_skips_samples_without_the_field():
    assert list(to_tuple("q", "x", handler=ignore_and_continue)([SAMPLE, {"q": 1, "x": 2}])) == [(1, 2)]


def test_spaces_in_one_field_of_several_are_a_mistake():
    with pytest.raises(ValueError, match="spaces"):
        to_tuple("x __key__", "y")([])


@pytest.mark.parametrize("fields", ["a b", "a;b"])
def test_to_tuple_takes_dicts_only(fields):
    with pytest.raises(TypeError, match="tuple"):
        list(to_tuple(fields)([(1, 2)]))


def test_rename_drops_the_old_names_and_keeps_the_rest():
    assert list(rename(z="q;x")([SAMPLE])) == [{"__key__": "a", "__url__": "x.tar", "y": None, "z": 1}]
    assert list(rename(z="a;b")([{"a": 1, "b": 2, "c": 3}])) == [{"c": 3, "z": 1}]
    assert list(rename(z=["q", "x"], keep=False)([SAMPLE])) == [{"z": 1}]


def test_rename_can_swap():
    assert list(rename(a="b", b="a")([{"a": 1, "b": 2}])) == [{"a": 2, "b": 1}]


def test_rename_needs_one_of_the_fields():
    with pytest.raises(ValueError, match="'q' or 'r'"):
        list(rename(z="q;r")([SAMPLE]))


FILES = {"__key__": "a", "d/Im.JPG": 1, "cls": 2, "x.txt": 3}


def test_rename_keys_matches_the_lower_cased_last_component():
    assert list(rename_keys(("j", "*.jpg"), c="cls")([FILES])) == [{"j": 1, "c": 2}]


def test_rename_keys_can_keep_the_rest():
    expected = {"__key__": "a", "j": 1, "cls": 2, "x.txt": 3}
    assert list(rename_keys(("j", "*.jpg"), keep_unselected=True)([FILES])) == [expected]


def test_later_rules_of_rename_keys_win():
    assert list(rename_keys(("j", "*.jpg"), ("k", "*.jpg"))([FILES])) == [{"k": 1}]


def test_each_pattern_must_match_unless_told():
    with pytest.raises(ValueError, match=r"\*\.png"):
        list(rename_keys(("j", "*.png"))([FILES]))
    assert list(rename_keys(("j", "*.png"), must_match=False)([FILES])) == [{}]


def test_two_fields_of_one_name_are_an_error_unless_told():
    with pytest.raises(ValueError, match="'j'"):
        list(rename_keys(("j", "*"))([FILES]))
    assert list(rename_keys(("j", "*"), duplicate_is_error=False)([FILES])) == [{"j": "a"}]


def test_a_renamed_field_does_not_silently_replace_one_that_is_kept():
    for sample in ({"jpg": 1, "j": 2}, {"j": 2, "jpg": 1}):
        with pytest.raises(ValueError, match="'j'"):
            list(rename_keys(j="jpg", keep_unselected=True)([sample]))


def test_extract_keys_matches_with_and_without_a_dot():
    assert list(extract_keys("*.jpg", "cls")([{"jpg": 1, "cls": 2}])) == [(1, 2)]
    assert list(extract_keys("*.png;*.jpg")([{"d/a.jpg": 1}])) == [(1,)]
    assert list(extract_keys(["*.png", "*.jpg"])([{"jpg": 1}])) == [(1,)]


def test_extract_keys_wants_one_match_for_each():
    sample = {"jpg": 1, "cls": 2}
    with pytest.raises(ValueError, match="png"):
        list(extract_keys("*.png")([sample]))
    assert list(extract_keys("*.png", "cls", ignore_missing=True)([sample])) == [(2,)]
    with pytest.raises(ValueError, match="jpg"):
        list(extract_keys("*")([sample]))
    assert list(extract_keys("*", duplicate_is_error=False)([sample])) == [(1,)]


def test_associate_adds_fields_by_key():
    sample = {"__key__": "a", "x": 1}
    assert list(associate({"a": {"n": 2}})([sample])) == [{"__key__": "a", "x": 1, "n": 2}]
    assert list(associate({})([sample])) == [sample]
    assert list(associate(lambda key: {"n": key})([sample])) == [{"__key__": "a", "x": 1, "n": "a"}]
    assert list(associate(lambda key: None)([sample])) == [sample]


def test_associate_needs_a_dict_or_function():
    with pytest.raises(TypeError, match="dict"):
        associate(5)([])


def test_getfirst():
    assert getfirst({"b": 1}, "a;b") == getfirst({"b": 1}, ["a", "b"]) == 1
    assert getfirst({"b": 1}, "a", 5, missing_is_error=False) == 5
    with pytest.raises(ValueError, match="'a'"):
        getfirst({"b": 1}, "a")


def test_parse_field_spec():
    assert parse_field_spec("a;b c") == [["a", "b"], ["c"]]
    assert parse_field_spec(["a;b", ("c", "d")]) == [["a", "b"], ["c", "d"]]


def test_transform_with():
    assert transform_with([1, 2, 3], [str, None]) == ["1", 2, 3]
    assert transform_with((1, 2), None) == (1, 2)
    with pytest.raises(ValueError, match="2 functions"):
        transform_with([1], [str, str])
