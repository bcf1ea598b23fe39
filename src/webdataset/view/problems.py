"""Problems in the data, found by the checks of `wl lint`, each at the sample that it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from webdataset.base.redact import redacted
from webdataset.tools.inspect.linting import PROBLEMS, Finding, lint
from webdataset.tools.inspect.listing import shown

from .jobs import Job
from .samples import SampleList

MOST_FINDINGS = 5000


class Problems:
    """What was found so far; `check` reads all shards, once, when it is asked for."""

    def __init__(self, urls: Sequence[str], *, concatenated: bool = False) -> None:
        self._urls = list(urls)
        self._concatenated = concatenated
        self.counts: Counter[str] = Counter()
        self.by_shard: Counter[str] = Counter()
        self._findings: list[Finding] = []
        self._by_sample: dict[tuple[str, str], list[Finding]] = {}
        self.job = Job(self._check)

    def of(self, url: str, key: str) -> list[dict[str, Any]]:
        """The problems of one sample."""
        return [_told(finding) for finding in self._by_sample.get((url, key), ())]

    def number_of(self, url: str, key: str) -> int:
        """How many problems a sample has."""
        return len(self._by_sample.get((url, key), ()))

    def as_dict(self, samples: SampleList | None, start: int = 0, count: int = 200) -> dict[str, Any]:
        """The counts of each problem, and some of the findings, each with the number of its sample."""
        page = self._findings[start : start + count]
        rows = [_told(finding) | _number(samples, finding) for finding in page]
        kinds = [{"problem": name, "count": n, "about": PROBLEMS[name]} for name, n in self.counts.most_common()]
        return {**self.job.progress(), "kinds": kinds, "findings": rows, "kept": len(self._findings)}

    def _check(self, job: Job) -> None:
        job.total = len(self._urls)
        for finding in lint(self._watched(job), images=_has_pillow(), concatenated=self._concatenated):
            self.counts[finding.problem] += 1
            self.by_shard[finding.url] += 1
            if len(self._findings) < MOST_FINDINGS:
                self._findings.append(finding)
                if finding.key is not None:
                    self._by_sample.setdefault((finding.url, finding.key), []).append(finding)
            if job.stopped:
                return
        job.done = job.total

    def _watched(self, job: Job) -> Iterator[str]:
        for job.done, url in enumerate(self._urls):
            if job.stopped:
                return
            yield url


def _has_pillow() -> bool:
    from webdataset.base.packages import is_installed

    return is_installed("PIL")


def _told(finding: Finding) -> dict[str, Any]:
    facts = {"problem": finding.problem, "about": PROBLEMS[finding.problem], "detail": shown(finding.detail)}
    facts["shard"] = redacted(finding.url).rpartition("/")[2]
    for name in ("key", "member"):
        if (text := getattr(finding, name)) is not None:
            facts[name] = shown(str(text))
    return facts


def _number(samples: SampleList | None, finding: Finding) -> dict[str, Any]:
    if samples is None or finding.key is None or not samples.is_complete():
        return {}
    try:
        return {"number": samples.find(finding.key, finding.url)}
    except KeyError:
        return {}
