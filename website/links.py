"""Links of pages that stand elsewhere in the site than in the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "sh", ".md": "markdown"}


def mend(origins: dict[Path, Path], docs: Path) -> None:
    """Let the links of each page lead to where their targets are in the site.

    `origins` says of each page which file of the repository it was made of. A linked file that is no page (a program,
    a folder of programs) becomes one below `source/`.
    """
    places = {origin: page for page, origin in origins.items()}
    places[ROOT / "README.md"] = docs / "index.md"

    def place_of(target: Path) -> Path | None:
        """Where the site has a file of the repository; None if it is where the link says."""
        if target in places:
            return places[target]
        if not target.is_relative_to(ROOT) or not target.exists() or target.is_relative_to(ROOT / "docs"):
            return None
        page = docs / "source" / (f"{target.relative_to(ROOT)}.md")
        places[target] = page
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(folder_page(target, place_of, page) if target.is_dir() else source_page(target))
        return page

    for page, origin in origins.items():

        def mended(match: re.Match[str], page: Path = page, origin: Path = origin) -> str:
            opening, link, anchor, closing = match.groups()
            if ":" in link:
                return match[0]
            place = place_of((origin.parent / link).resolve())
            shown = link if place is None else os.path.relpath(place, page.parent)
            return f"{opening}{shown}{anchor or ''}{closing}"

        parts = FENCED.split(page.read_text())
        page.write_text("".join(part if part.startswith("```") else LINK.sub(mended, part) for part in parts))


def source_page(path: Path) -> str:
    """A file of the repository, shown."""
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n````{language}\n{path.read_text().rstrip()}\n````\n"


def folder_page(path: Path, place_of: object, page: Path) -> str:
    """The files of a folder, each with a link."""
    lines = [f"# {path.relative_to(ROOT)}", ""]
    for each in sorted(path.iterdir()):
        if each.is_file() and not each.name.startswith("."):
            target = place_of(each)  # type: ignore[operator]
            lines.append(f"- [{each.name}]({os.path.relpath(target, page.parent)})")
    return "\n".join(lines) + "\n"
