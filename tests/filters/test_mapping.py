import io
import pickle
from collections import OrderedDict

import numpy
import pytest

from webdataset import filters
from webdataset.errors import DecodingError, UnsafePickleError, WebDatasetError
from webdataset.filters import decode, find_decoder, map, map_dict, map_tuple, pipe, select, then, xdecode


def test_map_applies_a_function():
    assert list(map(int)(["1", "2"])) == [1, 2]


def test_map_drops_none_but_not_what_is_merely_false():
    assert list(map({1: None, 2: 0, 3: ""}.get)([1, 2, 3])) == [0, ""]


def test_a_new_dict_keeps_the_key_only():
    sample = {"__key__": "a", "__url__": "a.tar", "x": 1}
    assert list(map(lambda s: {"y": 2})([sample])) == [{"y": 2, "__key__": "a"}]


def test_a_key_that_the_function_sets_stays():
    assert list(map(lambda s: {"__key__": "b"})([{"__key__": "a"}])) == [{"__key__": "b"}]


def test_samples_without_a_key_get_none():
    assert list(map(lambda s: {"y": s["x"]})([{"x": 1}])) == [{"y": 1}]


def test_a_dict_that_the_function_hands_out_again_is_not_changed():
    constant = {"y": 1}
    results = list(map(lambda s: constant)([{"__key__": "a"}, {"__key__": "b"}]))
    assert [result["__key__"] for result in results] == ["a", "b"]
    assert constant == {"y": 1}


def test_a_dict_of_another_kind_keeps_its_kind():
    (result,) = map(lambda s: OrderedDict(y=1))([{"__key__": "a"}])
    assert type(result) is OrderedDict
    assert result == {"y": 1, "__key__": "a"}


def test_map_needs_a_function():
    with pytest.raises(TypeError, match="function"):
        map(3)([])


def test_an_error_of_the_function_keeps_its_type_and_names_the_sample():
    with pytest.raises(ZeroDivisionError) as caught:
        list(map(lambda s: 1 / 0)([{"__key__": "a7", "__url__": "x.tar"}]))
    (note,) = caught.value.__notes__
    assert "a7" in note
    assert "x.tar" in note


def test_map_dict_changes_the_named_fields():
    assert list(map_dict(x=str, y=int)([{"x": 1, "y": "2", "z": 3}])) == [{"x": "1", "y": 2, "z": 3}]


def test_map_dict_needs_the_field():
    with pytest.raises(KeyError, match="nosuch"):
        list(map_dict(nosuch=str)([{"__key__": "a", "x": 1}]))


def test_map_dict_needs_a_field_and_functions():
    with pytest.raises(ValueError, match="field"):
        map_dict()([])
    with pytest.raises(TypeError, match="x="):
        map_dict(x=None)([])


def test_map_dict_takes_a_field_named_data():
    assert list(map_dict(data=int)([{"data": "1"}])) == [{"data": 1}]


def test_map_tuple_keeps_values_without_a_function():
    assert list(map_tuple(str, None)([(1, 2, 3), [4]])) == [("1", 2, 3), ("4",)]
    assert list(map_tuple()([[1, 2]])) == [(1, 2)]


def test_map_tuple_keeps_none_results():
    assert list(map_tuple(lambda x: None)([(1,)])) == [(None,)]


def test_map_tuple_refuses_dicts():
    with pytest.raises(TypeError, match="to_tuple"):
        list(map_tuple(str)([{"a": 1}]))


def test_select_keeps_what_the_predicate_likes():
    assert list(select(lambda x: x % 2)(range(5))) == [1, 3]


def test_pipe_and_then_put_a_function_of_the_stream_in():
    assert list(pipe(sorted)([3, 1, 2])) == [1, 2, 3]
    assert list(then(sorted, reverse=True)([3, 1, 2])) == [3, 2, 1]


def test_decode_takes_specs_functions_and_options():
    sample = {"__key__": "a", "cls": b"7", "txt": b"seven"}
    assert list(decode()([sample])) == [{"__key__": "a", "cls": 7, "txt": "seven"}]
    assert list(decode(only=["cls"])([sample])) == [{"__key__": "a", "cls": 7, "txt": b"seven"}]
    assert list(decode(partial=True)([{"cls": 7, "txt": b"seven"}])) == [{"cls": 7, "txt": "seven"}]
    assert list(decode(lambda name, data: name)([sample])) == [{"__key__": "a", "cls": ".cls", "txt": ".txt"}]


def test_decode_takes_image_specs():
    from webdataset.codecs import encode

    image = numpy.zeros((2, 3, 3), "u1")
    (sample,) = decode("rgb8")([{"png": encode("png", image)}])
    assert sample["png"].tolist() == image.tolist()


def test_decode_refuses_pickles_unless_allowed():
    sample = {"__key__": "a", "pyd": pickle.dumps(Custom())}
    with pytest.raises(DecodingError, match="Custom"):
        list(decode()([sample]))
    (decoded,) = decode(allow_pickle=True)([sample])
    assert type(decoded["pyd"]) is Custom


class Custom:
    pass


def test_decode_comes_before_to_tuple():
    with pytest.raises(TypeError, match="to_tuple"):
        list(decode()([(b"a", b"b")]))


def test_decode_asks_its_handler():
    samples = [{"__key__": "a", "json": b"[1,]"}, {"__key__": "b", "json": b"[1]"}]
    with pytest.raises(DecodingError) as raised:
        list(decode()(samples))
    assert (raised.value.key, raised.value.field) == ("a", "json")
    assert list(decode(handler=filters.identity)(samples)) == [{"__key__": "b", "json": [1]}]


def test_xdecode_decodes_by_pattern_and_leaves_special_keys():
    sample = {"__key__": b"a", "bin": b"x", "txt": "é".encode(), "d/a.TXT": b"q"}
    assert list(xdecode()([sample])) == [{"__key__": b"a", "bin": b"x", "txt": "é", "d/a.TXT": "q"}]


def test_later_rules_of_xdecode_win():
    one, two = (lambda stream: 1), (lambda stream: 2)
    assert list(xdecode(("*.foo", one), ("*.foo", two))([{"foo": b""}])) == [{"foo": 2}]
    assert list(xdecode(("*.foo", one), foo=two)([{".foo": b""}])) == [{".foo": 2}]
    assert list(xdecode(("*.txt", one))([{"txt": b""}])) == [{"txt": 1}]


def test_false_leaves_the_bytes():
    assert list(xdecode(foo=False)([{"foo": b"q"}])) == [{"foo": b"q"}]


def test_xdecode_must_know_the_field_unless_told():
    with pytest.raises(WebDatasetError) as raised:
        list(xdecode()([{"__key__": "a", "foo": b"q"}]))
    assert (raised.value.key, raised.value.field) == ("a", "foo")
    assert "must_decode" in raised.value.hint
    assert list(xdecode(must_decode=False)([{"foo": b"q"}])) == [{"foo": b"q"}]


def test_xdecode_gives_streams_on_and_refuses_other_values():
    assert list(xdecode()([{"txt": io.BytesIO(b"a")}])) == [{"txt": "a"}]
    with pytest.raises(DecodingError, match="int"):
        list(xdecode()([{"txt": 5}]))


def test_xdecode_reads_plain_pickles_only():
    assert list(xdecode()([{"pyd": pickle.dumps({"a": [1, 2.5]})}])) == [{"pyd": {"a": [1, 2.5]}}]
    attack = b"cos\nsystem\n(S'echo attacked > /dev/null'\ntR."
    with pytest.raises(UnsafePickleError, match="system"):
        list(xdecode()([{"pyd": attack}]))


def test_find_decoder():
    rules = [("*.txt", 1), ("*.txt", 2), ("a*", 3)]
    assert [find_decoder(rules, name) for name in ("d/b.txt", "TXT", "abc", "b.txt.gz")] == [2, 2, 3, None]
