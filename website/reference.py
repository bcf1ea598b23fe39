"""The reference: every public name, from its docstring.

The names are those of `src/webdataset/__init__.pyi`; the module that one comes from says on which page it stands.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import webdataset
from webdataset import filters

# page -> title, and the modules whose names it has; names of other modules stand on a page of their module
PAGES = {
    "dataset": (
        "Datasets and pipelines",
        ["dataset", "pipeline", "fluid", "base.stages", "base.states", "display.reprs"],
    ),
    "loader": ("The loader", ["loader"]),
    "filters": ("Filters", ["filters"]),
    "shardlists": ("Lists of shards", ["shardlists"]),
    "exact": ("Exact epochs and indices", ["exact.plans", "indices.access", "indices.catalogue", "indices.making"]),
    "mix": ("Mixtures", ["mix"]),
    "decoding": ("Decoding", ["autodecode", "codecs.clips", "codecs.pickles"]),
    "remote": ("Remote batches", ["remote.loader", "remote.serving", "remote.streams"]),
    "engines": ("Engines", ["runs.api", "raydata"]),
    "writing": ("Writing", ["writer"]),
    "storage": ("Storage and caching", ["gopen", "cache"]),
    "reading": ("Reading tar archives", ["tariterators"]),
    "errors": ("Errors and handlers", ["errors", "handlers"]),
    "old": ("For older programs", ["extradatasets", "utils"]),
}
ELSEWHERE = {"Dataset": "old"}
WITHOUT_MEMBERS = ["    options:", "      members: false"]
UNDER_A_HEADING = ["    options:", "      heading_level: 3"]


def public_names() -> dict[str, tuple[str, str]]:
    """Public name -> the module it comes from, and its name there."""
    places: dict[str, tuple[str, str]] = webdataset.__places__  # type: ignore[attr-defined]
    return places


def public_modules() -> list[str]:
    """The submodules that are public themselves."""
    return [name for name in webdataset.__all__ if name not in public_names() and name != "__version__"]


def write_pages(folder: Path) -> None:
    """Write the pages, and an index with every name."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = names_by_page()
    index = ["# Reference", "", "Every public name and argument, from the docstrings. `import webdataset as wds`.", ""]
    for page, (title, names) in pages.items():
        lines = [f"# {title}", ""]
        for name in names:
            lines += [*entry(name), ""]
        (folder / f"{page}.md").write_text("\n".join(lines))
        links = ", ".join(f"[`{name}`]({page}.md#webdataset.{name})" for name in names)
        index += [f"## [{title}]({page}.md)", "", links, ""]
    for package, title in (("webdataset.images", "Images"), ("wids", "The package wids")):
        page = package.rpartition(".")[2]
        names = importlib.import_module(package).__all__
        lines = [f"# {title}", "", f"::: {package}", *WITHOUT_MEMBERS, ""]
        options = WITHOUT_MEMBERS if page == "images" else []  # operations are made, and called by the pipeline alone
        lines += [line for name in names for line in (f"::: {package}.{name}", *options, "")]
        (folder / f"{page}.md").write_text("\n".join(lines))
        links = ", ".join(f"[`{name}`]({page}.md#{package}.{name})" for name in names)
        index += [f"## [{title}]({page}.md)", "", links, ""]
    (folder / "modules.md").write_text(modules_page())
    index += ["## [Modules](modules.md)", "", ", ".join(f"`{name}`" for name in public_modules()), ""]
    (folder / "index.md").write_text("\n".join(index))


def names_by_page() -> dict[str, tuple[str, list[str]]]:
    """Page -> its title and its names, in the order of the table."""
    page_of = {module: page for page, (_, modules) in PAGES.items() for module in modules}
    order = {module: place for place, module in enumerate(page_of)}
    pages: dict[str, tuple[str, list[str]]] = {page: (title, []) for page, (title, _) in PAGES.items()}
    for name, (module, _) in sorted(public_names().items()):
        page = ELSEWHERE.get(name) or page_of.get(module, module.replace(".", "-"))
        pages.setdefault(page, (f"webdataset.{module}", []))[1].append(name)
    for _, names in pages.values():
        names.sort(key=lambda name: (name in aliases(), order.get(public_names()[name][0], 0), name.lower()))
    return {page: found for page, found in pages.items() if found[1]}


def entry(name: str) -> list[str]:
    """What stands on a page for a name."""
    heading = [f"## {name} {{#webdataset.{name}}}", ""]
    if name in aliases():
        return [*heading, f"Another name of [`{aliases()[name]}`][webdataset.{aliases()[name]}]."]
    place = real_place(name)
    if place is not None:
        return [*heading, f"::: {place}", *UNDER_A_HEADING]
    lines = [f"::: webdataset.{name}"]
    if name == "FluidInterface":
        links = ", ".join(f"[`{filter}`][webdataset.{filter}]" for filter in filters.declared())
        lines += ["", f"The [filters](filters.md) as methods: {links}."]
    return lines


def aliases() -> dict[str, str]:
    """Names that mean the same as another public name."""
    places = public_names()
    return {name: original for name, (_, original) in places.items() if original != name and original in places}


def real_place(name: str) -> str | None:
    """Where a function or class is defined that has another name there, or no definition that can be read."""
    value = getattr(webdataset, name)
    value = getattr(value, "function", value)
    own = getattr(value, "__qualname__", name).lstrip("_")  # a filter's function has an underscore before its name
    return f"{value.__module__}.{own}" if callable(value) and own != name else None


def modules_page() -> str:
    """The modules that programs import, with their names."""
    about = "Modules that programs import by name. Most of what they have is documented under the package."
    lines = ["# Modules", "", about, ""]
    for name in public_modules():
        module = importlib.import_module(f"webdataset.{name}")
        about = (inspect.getdoc(module) or "").splitlines()[0]
        names = ", ".join(f"`{each}`" for each in names_of(module))
        lines += [f"## webdataset.{name}", "", about, "", names, ""]
    return "\n".join(lines)


def names_of(module: object) -> list[str]:
    """What a module has for programs: `__all__`, or else what is defined in it."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = module.__name__  # type: ignore[attr-defined]
    return sorted(
        name for name, value in vars(module).items() if name[0] != "_" and getattr(value, "__module__", "") == own
    )
