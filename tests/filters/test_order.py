import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.filters import _shuffle, detshuffle, pick, rsample, shuffle, slice
from webdataset.filters.order import size_in_bytes

sizes = st.integers(0, 30)


def reference(data, bufsize, initial, rng):
    """The algorithm in plain words: two in and one out until the buffer is full, then one in and one out."""
    source, buffer, results = iter(data), [], []

    def take():
        chosen = rng.randrange(len(buffer))
        buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
        results.append(buffer.pop())

    for sample in source:
        buffer.append(sample)
        if len(buffer) < bufsize:
            buffer.extend([x for x in [next(source, None)] if x is not None])
        if len(buffer) >= min(initial, bufsize):
            take()
    while buffer:
        take()
    return results


@given(n=sizes, bufsize=sizes, initial=sizes, seed=st.integers())
def test_shuffle_is_a_permutation_and_a_function_of_the_seed(n, bufsize, initial, seed):
    once = list(shuffle(bufsize, initial, seed=seed)(range(n)))
    assert sorted(once) == list(range(n))
    assert once == list(shuffle(bufsize, initial, seed=seed)(iter(range(n))))


@given(n=sizes, bufsize=sizes, initial=sizes, seed=st.integers(0, 1000))
def test_the_order_is_that_of_the_plain_algorithm(n, bufsize, initial, seed):
    expected = reference(range(n), bufsize, initial, random.Random(seed))
    assert list(_shuffle(range(n), bufsize, initial, random.Random(seed))) == expected


@given(n=sizes, bufsize=sizes, initial=sizes, seed=st.integers(0, 1000))
def test_ample_bytes_change_nothing(n, bufsize, initial, seed):
    bounded = shuffle(bufsize, initial, seed=seed, max_bytes=10**9)(range(n))
    assert list(bounded) == list(shuffle(bufsize, initial, seed=seed)(range(n)))


def test_earlier_versions_gave_this_order_for_this_seed():
    assert list(shuffle(5, 2, seed=3)(range(10))) == [0, 3, 2, 4, 8, 6, 1, 7, 9, 5]
    assert list(_shuffle(range(10), 5, 2, random.Random(1))) == [0, 3, 1, 4, 5, 6, 9, 2, 7, 8]


def test_a_buffer_of_none_or_one_keeps_the_order():
    for bufsize in (-1, 0, 1):
        assert list(shuffle(bufsize)(range(5))) == [0, 1, 2, 3, 4]


def test_shuffle_holds_no_more_than_its_buffer():
    taken = []
    source = (taken.append(i) or i for i in range(1000))
    for given_out, _ in enumerate(shuffle(10, 4)(source), 1):
        assert len(taken) <= given_out + 10


def test_every_place_of_the_buffer_is_equally_likely():
    rng = random.Random(0)
    firsts = Counter(next(iter(_shuffle(range(100), 10, 10, rng))) for _ in range(10_000))
    assert set(firsts) == set(range(10))
    assert all(abs(n - 1000) < 5 * 30 for n in firsts.values())  # 30 = sqrt(10000 * 0.1 * 0.9)


def test_the_steady_state_mixes_far_beyond_the_buffer():
    order = list(shuffle(100, 100, seed=0)(range(10_000)))
    distance = [abs(a - b) for a, b in pairwise(order)]
    assert sum(distance) / len(distance) > 50


def test_without_a_seed_two_passes_differ():
    stage = shuffle(1000)
    assert list(stage(range(1000))) != list(stage(range(1000)))


def test_the_order_does_not_depend_on_the_process():
    code = "from webdataset.filters import shuffle; print(list(shuffle(50, seed=9)(range(100))))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {str(list(shuffle(50, seed=9)(range(100))))}


def test_forked_workers_without_a_seed_differ():
    code = (
        "import os\nfrom webdataset.filters import shuffle\nstage = shuffle(100)\n"
        "for _ in range(2):\n"
        "    if (pid := os.fork()) == 0:\n        print(list(stage(range(100))), flush=True)\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2
    assert lines[0] != lines[1]


def test_numpy_generators_serve_as_rng():
    for rng in (numpy.random.default_rng(1), numpy.random.RandomState(1)):
        assert sorted(_shuffle(range(100), 20, 10, rng)) == list(range(100))


def test_max_bytes_bounds_what_the_buffer_holds():
    held, most = 0, 0

    def source():
        nonlocal held, most
        for i in range(200):
            size = 10 + i % 90
            held += size
            most = max(most, held)
            yield {"data": bytes(size)}

    total = 0
    for sample in shuffle(10_000, 100, seed=0, max_bytes=1000)(source()):
        held -= len(sample["data"])
        total += 1
    assert total == 200
    assert most <= 1000 + 2 * 100


def test_a_sample_larger_than_max_bytes_passes():
    assert len(list(shuffle(10, max_bytes=5)([bytes(100)] * 3))) == 3


def test_sizes_of_the_usual_values():
    from PIL import Image

    assert size_in_bytes({"a": bytes(10), "b": [b"123", "4567"]}) == 17
    assert size_in_bytes(numpy.zeros((3, 4), "f4")) == 48
    assert size_in_bytes(Image.new("RGB", (10, 20))) == 600


def test_rng_and_seed_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        shuffle(10, rng=random.Random(), seed=1)([])


def test_max_bytes_must_be_positive():
    with pytest.raises(ValueError, match="max_bytes"):
        shuffle(10, max_bytes=0)([])


def test_detshuffle_changes_by_epoch_and_repeats_by_seed():
    first, second = detshuffle(100, seed=5), detshuffle(100, seed=5)
    epochs = [list(first.run(range(50))) for _ in range(3)]
    assert epochs == [list(second.run(range(50))) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert first.epoch == 2


def test_detshuffle_can_start_at_any_epoch():
    later = detshuffle(100, seed=5, epoch=1)
    stage = detshuffle(100, seed=5)
    assert [list(stage.run(range(50))) for _ in range(3)][2] == list(later.run(range(50)))


def test_pick_takes_one_out():
    buffer = [1, 2, 3]
    assert pick(buffer, random.Random(2)) == 1
    assert buffer == [3, 2]


def test_rsample_keeps_about_its_share():
    assert 2700 < len(list(rsample(0.3)(range(10_000)))) < 3300


def test_rsample_needs_a_probability():
    with pytest.raises(ValueError, match="0 and 1"):
        rsample(2)([])


@given(st.lists(st.integers()), st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))
def test_slice_is_a_slice(items, start, stop, step):
    assert list(slice(start, stop, step)(items)) == items[start:stop:step]
