import pickle

from webdataset import filters
from webdataset.base.stages import Filter


def test_compose_applies_the_first_first():
    assert filters.compose(str.strip, int)(" 7 ") == 7
    assert filters.compose2(str.strip, int)(" 7 ") == 7
    assert filters.compose()(3) == 3


def test_a_composition_pickles():
    assert pickle.loads(pickle.dumps(filters.compose(str.strip, int)))(" 7 ") == 7


def test_the_old_curried_class_makes_stages():
    stage = filters.FilterFunction(filters._map, str)
    assert list(stage([1])) == ["1"]
    assert (stage.f, stage.args, stage.kw) == (filters._map, (str,), {})
    assert list(pickle.loads(pickle.dumps(stage))([1])) == ["1"]


def test_the_old_names_of_curried_filters():
    assert filters.RestCurried is filters.Curried is Filter
    assert list(filters.RestCurried(filters._map)(str)([1])) == ["1"]
    assert list(filters.pipelinefilter(filters._map)(str)([1])) == ["1"]
