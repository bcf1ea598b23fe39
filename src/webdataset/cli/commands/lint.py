"""Find problems in shards: incomplete samples, duplicate keys, broken images, missing end markers and more.

Exits with 1 if there are any. Every shard is read completely. `wl lint --explain` lists the problems.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from webdataset.base.units import counted
from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.tools.inspect.linting import Finding

EXAMPLES = (
    ("wl lint train-{000000..000009}.tar", "one line per problem"),
    ("wl lint --json --noimages s3://bucket/train.tar", "JSON output, without decoding images"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    parser.switch("--noimages", help="do not decode images")
    parser.add_argument("--ignore", metavar="PROBLEMS", default="", help='problems to ignore: "half-sample no-key"')
    parser.number("--most", default=20, help="maximum lines per kind of problem (20)")
    parser.switch("--explain", help="list the problems and exit")
    parser.switch("--json", help="one line of JSON per problem")
    grammar.add_progress(parser, json=False)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import urls_of
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.cli.tables import Table
    from webdataset.tools.inspect.linting import PROBLEMS, lint

    if options.explain:
        names = ("problem", "meaning")
        with Table[tuple[str, str]](names, line=lambda row: f"{row[0]:<16}{row[1]}", cells=list) as meanings:
            for row in PROBLEMS.items():
                meanings.add(row)
        return 0
    ignored = set(options.ignore.replace(",", " ").split())
    if unknown := ignored - set(PROBLEMS):
        raise grammar.UsageError(f"there is no problem {' '.join(sorted(unknown))}; --explain lists them")
    counts: Counter[str] = Counter()
    options.urls = urls_of(options.inputs)
    progress = ProgressDisplay.of(options, as_json=False)
    images, concatenated = not options.noimages, options.concatenated
    columns = () if options.json else ("shard", "problem", "where", "what")
    with Table(columns, line=_json if options.json else line, cells=_cells, before=progress.clear) as table:
        for finding in lint(options.urls, images=images, concatenated=concatenated, progress=progress.add):
            if finding.problem in ignored:
                continue
            counts[finding.problem] += 1
            if counts[finding.problem] <= options.most or options.json:
                table.add(finding)
    progress.clear()
    if not options.quiet:
        _summarize(counts, options.most, f"{counted(progress.count, 'sample')} of {counted(progress.shards, 'shard')}")
    return 1 if counts else 0


def line(finding: Finding) -> str:
    """Format a finding as a line of text."""
    shard, problem, where, what = _cells(finding)
    return f"{shard}: {problem}: {what}{f' [{where}]' if where else ''}"


def _cells(finding: Finding) -> list[str]:
    """Return the shard, the problem, where in the shard it is, and what it is."""
    from webdataset.base.redact import redacted
    from webdataset.tools.inspect.linting import PROBLEMS
    from webdataset.tools.inspect.listing import shown

    places = [f"{name} {shown(str(getattr(finding, name)))}" for name in ("member", "key", "offset")
              if getattr(finding, name) is not None]  # fmt: skip
    detail = f" ({shown(finding.detail)})" if finding.detail else ""
    return [redacted(finding.url), finding.problem, ", ".join(places), PROBLEMS[finding.problem] + detail]


def _json(finding: Finding) -> str:
    from webdataset.tools.inspect.tables import plain_value

    return json.dumps(plain_value(finding.as_dict()), ensure_ascii=False)


def _summarize(counts: Counter[str], most: int, seen: str) -> None:
    if not counts:
        terminal.err(f"no problems in {seen}\n")
        return
    terminal.err(f"{counted(counts.total(), 'problem')} in {seen}\n")
    for problem, n in counts.most_common():
        terminal.err(f"{n:>8,} x {problem}{f' ({most:,} shown)' if n > most else ''}\n")
