"""Build the site: `python website/build.py [--to FOLDER] [--serve [PORT]]`.

The pages are put together in `build/pages` first: those of `docs/`, the notebooks, a page for each command and for each
part of the reference, and the files elsewhere that pages link to. They are plain Markdown, but for the reference,
which mkdocstrings makes of the docstrings. Then mkdocs builds the site; a warning is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

import commands
import links
import notebooks
import plots
import reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
# the pages that stand at the top of the repository
TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def main(arguments: list[str]) -> int:
    """Build the site, and serve it if asked to."""
    parser = argparse.ArgumentParser(prog="./run docs", description="Build the site; warnings are errors.")
    parser.add_argument("--to", type=Path, default=SITE, metavar="FOLDER", help="where the site goes (build/site)")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="FOLDER", help="where its pages go (build/pages)")
    parser.add_argument(
        "--serve",
        type=int,
        nargs="?",
        const=8000,
        metavar="PORT",
        help="serve it on this machine (8000; 0 chooses one)",
    )
    options = parser.parse_args(arguments)
    config = assemble(options.pages, options.to)
    what = ["build", "--strict", "--quiet", "--clean"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    status = subprocess.call([sys.executable, "-m", "mkdocs", *what, "--config-file", config], env=environment)
    if status == 0:
        print(f"the site is in {options.to}: open {options.to / 'index.html'}, or --serve it, to search it", flush=True)
    if status == 0 and options.serve is not None:
        serve(options.to, options.serve)
    return status


def serve(site: Path, port: int) -> None:
    """Serve the site on this machine alone, until it is interrupted."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server, contextlib.suppress(KeyboardInterrupt):
        print(f"serving it at http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


def assemble(pages: Path, site: Path) -> Path:
    """Put all pages of the site into a folder, and give the configuration that builds it."""
    shutil.rmtree(pages, ignore_errors=True)
    docs = pages / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("notebooks"))
    origins = {page: ROOT / "docs" / page.relative_to(docs) for page in docs.rglob("*.md")}
    for name, page in TOP.items():
        shutil.copy(ROOT / name, docs / page)
        origins[docs / page] = ROOT / name
    for notebook in notebooks.all_notebooks():
        origins[notebooks.write_page(notebook, docs / "notebooks")] = notebook
    commands.write_pages(docs / "commands")
    reference.write_pages(docs / "reference")
    (docs / "stylesheets").mkdir()
    shutil.copy(ROOT / "website" / "site.css", docs / "stylesheets")
    add_plot(docs)
    links.mend(origins, docs)
    return write_config(pages, docs, site)


def add_plot(docs: Path) -> None:
    """Show the figures of the page on speed as bars, below its title."""
    page, picture = docs / "benchmarks.md", plots.speed((ROOT / "README.md").read_text())
    if picture is not None:
        (docs / "pictures" / "speed.svg").write_text(str(picture))
        title, _, rest = page.read_text().partition("\n")
        page.write_text(f"{title}\n\n![Samples per second, by what is measured](pictures/speed.svg)\n{rest}")


def write_config(pages: Path, docs: Path, site: Path) -> Path:
    """mkdocs.yml with the folders of this build, and with the pages that are there."""
    loader = yaml.UnsafeLoader  # the file is our own, and names a function of pymdownx
    config = yaml.load((ROOT / "website" / "mkdocs.yml").read_text(), Loader=loader)
    nav, missing = navigation(config["nav"], docs)
    config |= {"docs_dir": str(docs), "site_dir": str(site.resolve()), "nav": nav + missing}
    handler = config["plugins"][-1]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT / "src")]
    handler["options"]["extensions"] = [f"{ROOT / 'website' / 'docstrings.py'}:Docstrings"]
    path = pages / "mkdocs.yml"
    path.write_text(yaml.dump(config, sort_keys=False))
    return path


def navigation(nav: list[Any], docs: Path) -> tuple[list[Any], list[Any]]:
    """The navigation with the pages that are there, and what is nowhere in it as a section of its own."""
    used: set[str] = set()

    def entries(values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if isinstance(value, dict):
                ((title, inner),) = value.items()
                below = entries([inner] if isinstance(inner, str) else inner)
                single = isinstance(inner, str) and not inner.endswith("/")
                found += [{title: below[0] if single else below}] if below else []
            else:
                found += pages_of(value)
        return found

    def pages_of(name: str) -> list[str]:
        """The page of this name, or those of a folder that were not named before, its index first."""
        pages = sorted((docs / name).glob("*.md")) if name.endswith("/") else [docs / name]
        pages = [page for page in pages if page.exists() and page.relative_to(docs).as_posix() not in used]
        found = [page.relative_to(docs).as_posix() for page in sorted(pages, key=lambda page: page.name != "index.md")]
        used.update(found)
        return found

    known = entries(nav)
    every = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    rest = sorted(page for page in every - used if not page.startswith("source/"))
    sources = sorted(page for page in every if page.startswith("source/"))
    more = [{"More": rest}] if rest else []
    return known, more + ([{"Source": sources}] if sources else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
