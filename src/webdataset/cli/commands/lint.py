"""Find what will surprise: half samples, key collisions, wrong images, missing ends and more. Exits with 1 if it does.

Every shard is read whole. `wl lint --explain` lists what is looked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl lint train-{000000..000009}.tar", "one line for each problem"),
    ("wl lint --json --noimages s3://bucket/train.tar", "for programs, without decoding pictures"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("--noimages", action="store_true", help="do not decode pictures")
    parser.add_argument("--ignore", metavar="PROBLEMS", default="", help='problems to pass over, "half-sample no-key"')
    parser.add_argument("--most", metavar="N", type=grammar.count, default=20, help="lines for a kind of problem (20)")
    parser.add_argument("--explain", action="store_true", help="list the problems and end")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each problem")
    grammar.add_progress(parser, json=False)


def run(options: argparse.Namespace) -> int:
    from webdataset.cli.flow import urls_of
    from webdataset.tools.inspect.linting import PROBLEMS, lint

    if options.explain:
        for problem, text in PROBLEMS.items():
            sys.stdout.write(f"{problem:<16}{text}\n")
        return 0
    ignored = set(options.ignore.replace(",", " ").split())
    if unknown := ignored - set(PROBLEMS):
        raise grammar.UsageError(f"there is no problem {' '.join(sorted(unknown))}; --explain lists them")
    counts: Counter[str] = Counter()
    reading = {"images": not options.noimages, "concatenated": options.concatenated}
    for finding in lint(urls_of(options.inputs), **reading):
        if finding.problem in ignored:
            continue
        counts[finding.problem] += 1
        if counts[finding.problem] <= options.most or options.json:
            sys.stdout.write((_json(finding) if options.json else line(finding)) + "\n")
    if not options.quiet:
        _tell(counts)
    return 1 if counts else 0


def line(finding: Any) -> str:
    """A finding as a line of text."""
    from webdataset.base.redact import redacted
    from webdataset.tools.inspect.linting import PROBLEMS
    from webdataset.tools.inspect.listing import shown

    places = [f"{name} {shown(str(getattr(finding, name)))}" for name in ("member", "key", "offset")
              if getattr(finding, name) is not None]  # fmt: skip
    detail = f" ({shown(finding.detail)})" if finding.detail else ""
    place = f" [{', '.join(places)}]" if places else ""
    return f"{redacted(finding.url)}: {finding.problem}: {PROBLEMS[finding.problem]}{detail}{place}"


def _json(finding: Any) -> str:
    from webdataset.tools.inspect.tables import plain_value

    return json.dumps(plain_value(finding.as_dict()), ensure_ascii=False)


def _tell(counts: Counter[str]) -> None:
    if not counts:
        sys.stderr.write("nothing found\n")
    for problem, n in counts.most_common():
        sys.stderr.write(f"{n:>8} x {problem}\n")
