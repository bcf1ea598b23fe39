"""What a pass knows, while its stages are built."""

from __future__ import annotations

import pickle

from webdataset.base.context import PassContext, current_pass, pass_in_force
from webdataset.base.reports import Report, current_report


def test_a_context_is_in_force_in_its_block_only() -> None:
    outer, inner = PassContext(epoch=1), PassContext(epoch=2)
    assert pass_in_force() is None
    with outer.in_force():
        with inner.in_force():
            assert current_pass() is inner
            assert current_report() is inner.report
        assert current_pass() is outer
    assert pass_in_force() is None


def test_a_stage_on_its_own_has_the_report_in_force() -> None:
    report = Report()
    with PassContext(epoch=3).in_force(), report.in_force():
        assert current_pass().report is report
        assert current_pass().epoch == 0


def test_seeds_are_numbered_and_of_the_pass() -> None:
    context, again = PassContext(epoch=4, base_seed=9), PassContext(epoch=4, base_seed=9)
    first, second = context.seed(), context.seed()
    assert first != second
    assert [again.numbered_seed(1), again.numbered_seed(2)] == [first, second]
    assert PassContext(epoch=5, base_seed=9).seed() != first
    assert PassContext().seed() != PassContext().seed()


def test_what_listens_stays_in_this_process() -> None:
    context = PassContext(epoch=2, strict=True)
    context.on_shard_end = lambda source: None
    copy = pickle.loads(pickle.dumps(context))
    assert (copy.epoch, copy.strict, copy.on_shard_end) == (2, True, None)
