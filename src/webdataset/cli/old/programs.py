"""The programs' old names: other names, and where the old flags differ other flags, for the same commands.

An old program runs the `run` of its command. Its flags are the command's, unless the command's module has

    OLD = {"tarsort": configure_tarsort}

where `configure_tarsort(parser)` declares the old flags under the same `dest` as the new ones; options it does not
declare have the command's defaults. `OLD_RUN = {"tarsort": run_tarsort}` may prepare the options first.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from webdataset.cli.grammar import UsageError, add_storage, command_parser, defaults
from webdataset.cli.running import about, command_module, parser_of, run_parser, say_error
from webdataset.cli.streams import occupy_closed_streams
from webdataset.cli.table import COMMANDS

PROGRAMS = {
    "wl-map": "map",
    "wl-xargs": "xargs",
    "wl-cat": "cat",
    "wl-extract": "extract",
    "wl-dump": "dump",
    "wl-info": "info",
    "wl-test": "test",
    "wl-show": "show",
    "tar2tsv": "extract",
    "tar2json": "extract",
    "tarcat": "concat",
    "tarcats": "concat",
    "tarscat": "concat",
    "tarmix": "concat",
    "tarcreate": "create",
    "tarfirst": "cat",
    "tarpcat": "shuffle",
    "tarproc": "xargs",
    "tarshow": "show",
    "tarsort": "sort",
    "tarsplit": "split",
    "lines2tar": "create",
    "tarp create": "create",
    "tarp cat": "concat",
    "tarp proc": "xargs",
    "tarp sort": "sort",
    "tarp split": "split",
}


EXAMPLES = {
    "wl-map": {
        "wl-map -c '_[\"cls\"] -= 1' in.tar -o out.tar": "subtract 1 from each class",
        "wl-map -p 4 -l code.py in.tar -o out.tar": "the function transform(sample) of a file, with four cores",
    },
    "wl-xargs": {
        "wl-xargs -c 'convert sample.png sample.jpeg && rm sample.png' in.tgz -o out.tgz": "PNG to JPEG",
        "wl-xargs -P 4 -c 'mogrify -edge 5 sample.png' in.tar -o out.tar": "edge detection using four cores",
    },
    "wl-cat": {
        "wl-cat in.tar png > picture.png": "the first picture",
        "wl-cat -S '_[\"cls\"] == 7' in.tar txt 2": "the third text of class 7",
    },
    "wl-extract": {
        "wl-extract -f '__key__ cls' in.tar": "keys and classes",
        "wl-extract -F json -f 'cls txt' -c 10 in.tar": "ten lines of JSON",
    },
    "wl-dump": {
        "wl-dump -f png -c 3 -o 'picture-{index:06d}' in.tar": "three pictures",
        "wl-dump -f txt -c 10 -o '{key}' in.tar": "ten texts under their keys",
    },
    "wl-info": {
        "wl-info in.tar": "what the first 1000 samples hold",
        "wl-info -c 0 in-{0..3}.tar": "what all samples hold",
    },
    "wl-test": {
        "wl-test in.tar": "how fast ten batches come",
        "wl-test --decode rgb8 --batchsize 16 --processes 2 in-{0..3}.tar": "with decoding and two workers",
    },
    "wl-show": {"wl-show in.tar": "ten samples", "wl-show -f png -s 5 in.tar": "pictures, from the sixth sample on"},
    "tar2tsv": {
        "tar2tsv -f cls in.tar": "keys and classes, with a header",
        "tar2tsv -f 'cls txt' --nokey --noheader in.tar": "values only",
    },
    "tar2json": {
        "tar2json -k 'cls txt' < in.tar": "a line a sample",
        "tar2json -a -f yaml < in.tar": "all fields, a YAML document a sample",
    },
    "tarcat": {
        "tarcat in-{0..3}.tar > all.tar": "four archives into one",
        "cat in.tar | tarcat -c 10 > small.tar": "the first ten samples",
    },
    "tarmix": {
        "tarmix mix.yaml -o mixed.tar": "what the file says",
        "tarmix -c 100 --seed 1 mix.yaml > mixed.tar": "a hundred samples, the same every time",
    },
    "tarp cat": {
        "tarp cat -s 100 in-{0..3}.tar -o - > all.tar": "four archives, shuffled a little",
        "tarp cat -f 'png label:cls' --slice 0:10 in.tar -o ten.tar": "ten samples, a field renamed",
    },
    "tarpcat": {
        "tarpcat -p 4 -s 1000 in-{0..3}.tar > shuffled.tar": "four archives, shuffled",
        "tarpcat -p 4 in-{0..3}.tar -o all.tar": "read by four processes",
    },
    "tarcreate": {
        "tarcreate plan.csv > out.tar": "a table with the columns __key__, @png (a file's name) and cls",
        "tarcreate -C pictures plan.tsv -o out.tar": "files are in a folder",
    },
    "lines2tar": {
        "lines2tar < text.txt > out.tar": "a sample a line, in txt",
        "lines2tar -k 'txt cls' --keyformat 'line{:06d}' text.tsv > out.tar": "two fields, separated by tabs",
    },
    "tarp create": {
        "tarp create recipe -o out.tar": "lines of NAME SOURCE",
        "printf 'a.png photo.png\\na.cls text:7\\n' | tarp create - -o out.tar": "one sample",
    },
    "tarfirst": {
        "tarfirst in.tar > picture.png": "the first picture",
        "tarfirst -f txt -S '_[\"cls\"] == 7' in.tar": "the first text of class 7",
    },
    "tarproc": {
        "tarproc -p 5 -c 'ls; gm mogrify -size 256x256 *.png -resize 256x256' in.tar > out.tar": "resize, five cores",
        "tarproc -S -c 'for i in 1 2; do mkdir $i; cp sample.txt $i; done' in.tar -o out.tar": "folders become samples",
    },
    "tarp proc": {
        "tarp proc -c 'gm mogrify -resize 8x8 sample.png' in.tar -o out.tar": "smaller pictures",
        "tarp proc -m 'cp sample.txt sample-000001.txt' in.tar -o out.tar": "numbered files become samples",
    },
    "tarshow": {"tarshow -c 2 in.tar": "two samples, a line a field", "tarshow -f png -c 1 in.tar": "a picture"},
    "tarsort": {
        "tarsort in.tar > sorted.tar": "by key",
        "tarsort -s cls -S int in.tar -o sorted.tar": "by class, as a number",
    },
    "tarp sort": {
        "tarp sort -s cls in.tar -o sorted.tar": "by a field",
        "tarp sort -s __random__ in.tar -o shuffled.tar": "shuffled",
    },
    "tarsplit": {
        "tar -cf - --sort=name -C pictures . | tarsplit -s 1e9 -o train --maxshards 2": "two shards of 1 GB",
        "tarsplit -n 1000 -C 'cp {abspath} up/' -o train in.tar": "a command for each, which is removed then",
    },
    "tarp split": {
        "tarp split -c 1000 -o train-%06d.tar in.tar": "a thousand samples each",
        "tarp split -s 1e9 -p 'cp %s up/' -o train-%06d.tar in.tar": "a command for each",
    },
}
"""Two lines of each program, and what they do."""

SAME = {"tarcats": "tarcat", "tarscat": "tarcat"}


def examples(program: str) -> list[tuple[str, str]]:
    """What its help begins with.

    >>> examples("tarscat")[0]
    ('tarscat in-{0..3}.tar > all.tar', 'four archives into one')
    """
    known = SAME.get(program, program)
    return [(line.replace(known, program), text) for line, text in EXAMPLES[known].items()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run an old program; the first argument is its name, as in sys.argv."""
    occupy_closed_streams()
    words = list(sys.argv if argv is None else argv)
    program = os.path.basename(words[0]).removesuffix(".exe")
    rest = words[1:]
    if program == "tarp":
        rest = [*rest[1:2], "-v", *rest[2:]] if rest[:1] == ["-v"] else rest
        commands = [name.removeprefix("tarp ") for name in PROGRAMS if name.startswith("tarp ")]
        if rest[:1] in (["-h"], ["--help"]):
            sys.stdout.write(
                "".join(f"  # {text}\n  {line}\n" for name in commands for line, text in examples(f"tarp {name}"))
            )
            return 0
        if not rest or rest[0] not in commands:
            return say_error("tarp", UsageError(f"usage: tarp {'|'.join(commands)} [options]"))
        program, rest = f"tarp {rest[0]}", rest[1:]
    return run_old(program, rest)


def run_old(program: str, argv: Sequence[str]) -> int:
    """Run a program of the table."""
    name = PROGRAMS[program]
    module = command_module(name)
    new = parser_of(name, module)
    configure = getattr(module, "OLD", {}).get(program)
    run = getattr(module, "OLD_RUN", {}).get(program, module.run)
    if configure is None:
        new.prog, new.examples = program, examples(program)
        return run_parser(new, argv, run)
    text = f"{about(module)}\n\n{program} is an old name of `wl {name}`: {COMMANDS[name].help}."
    parser = command_parser(name, text, examples(program), prog=program)
    configure(parser)
    add_storage(parser)
    # they have always replaced what was there; what is left over of it is named in the end
    return run_parser(parser, argv, _telling(program, run), defaults(new) | {"overwrite": "warn"})


def _telling(program: str, run: Callable[[Namespace], int | None]) -> Callable[[Namespace], int | None]:
    """The same, but flags that have no effect are named first."""

    def told(options: Namespace) -> int | None:
        for text in getattr(options, "without_effect", ()) if not options.quiet else ():
            sys.stderr.write(f"{program}: warning: {text}\n")
        return run(options)

    return told
