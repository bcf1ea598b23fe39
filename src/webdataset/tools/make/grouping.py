"""Which files are one sample, by their names, and which are in none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from webdataset.base.reports import current_report
from webdataset.errors import SampleError
from webdataset.tariterators import base_plus_ext

FIRST_DOT, LAST_DOT = "first-dot", "last-dot"
KEY_ENDS = (FIRST_DOT, LAST_DOT)
JUNK = frozenset(["thumbs.db", "desktop.ini", "__macosx"])
"""What desktops leave in folders and archives, in lower case."""


def reason_to_leave(name: str, *, folder: bool = False) -> str:
    """Why a file or a `folder` is in no sample, by its name; an empty text if it can be in one.

    >>> reason_to_leave("Thumbs.db"), reason_to_leave("a.jpg")
    ('it belongs to the desktop, not to the data', '')
    """
    if name.startswith("."):
        return "it is hidden"
    if name.lower() in JUNK:
        return "it belongs to the desktop, not to the data"
    return "" if folder or "." in name else "the file's name has no extension, so it is in no sample"


def kept(paths: Iterable[str]) -> list[str]:
    """The files of an archive that can be in a sample; the others are counted in the report.

    >>> kept(["a/b.jpg", "a/.b.jpg", "__MACOSX/b.jpg", "README"])
    ['a/b.jpg']
    """
    found = []
    for path in paths:
        *folders, name = path.split("/")
        reasons = [*(reason_to_leave(each, folder=True) for each in folders if each != "."), reason_to_leave(name)]
        if reason := next(filter(None, reasons), ""):
            current_report().dropped("members_dropped", reason)
        else:
            found.append(path)
    return found


def member_names(files: Sequence[str], key_end: str | None = None, *, origin: str | None = None) -> list[str]:
    """The names that files get in an archive; it is an error if readers would take unrelated ones for one sample.

    A key ends at the first dot. Files of a sample that may be files on their own, as a.left.png and a.right.png, must
    have fields that other samples have too, and not by numbers; `key_end="first-dot"` says that they need not. With
    "last-dot" the dots before the last one become `_`. `origin` is where the files are.

    >>> member_names(["IMG.0030.jpg", "IMG.0031.jpg"], "last-dot")
    ['IMG_0030.jpg', 'IMG_0031.jpg']
    """
    current_report().count("files_read", len(files))
    if key_end == LAST_DOT:
        return _without_dots(files, origin)
    if key_end != FIRST_DOT:
        _check_related(files, origin)
    return [*files]


def row_key(key: str, key_end: str | None = None) -> str:
    """The key of a row that has one: readers end a key at its first dot, so it must have none.

    >>> row_key("v1/a"), row_key("v1.5", "last-dot")
    ('v1/a', 'v1_5')
    """
    folder, slash, name = key.rpartition("/")
    if key_end == FIRST_DOT or "." not in name:
        return key
    if key_end == LAST_DOT:
        return f"{folder}{slash}{name.replace('.', '_')}"
    hint = "--key last-dot makes each dot a _"
    raise SampleError("a key ends at its first dot, so that of a row has none", key=key, hint=hint)


def split_at_last_dot(path: str) -> tuple[str | None, str | None]:
    """Split the name of a file into key and field, as `base_plus_ext` does at the first dot.

    >>> split_at_last_dot("2024.05/IMG.0030.jpg")
    ('2024.05/IMG.0030', 'jpg')
    """
    if base_plus_ext(path)[0] is None:
        return None, None
    key, _, field = path.rpartition(".")
    return key, field


def _without_dots(files: Iterable[str], origin: str | None) -> list[str]:
    names, files_of = [], dict[str, tuple[str, str]]()
    for file in files:
        key, field = split_at_last_dot(file)
        if key is None:
            names.append(file)
            continue
        new = row_key(key, LAST_DOT)
        other, other_key = files_of.setdefault(new, (file, key))
        if other_key != key:
            message = f"{other!r} and {file!r} would become one sample, since dots in a key become _"
            raise SampleError(message, url=origin, key=new, hint="rename one of them")
        names.append(f"{new}.{field}")
    return names


def _check_related(files: Sequence[str], origin: str | None) -> None:
    if not any(file.count(".", file.rfind("/") + 1) > 1 for file in files):
        return
    times = Counter[str]()
    samples: dict[str, dict[str, str]] = {}  # those with fields that look alike, which are few
    parts = ((*base_plus_ext(file), file) for file in files)
    named = sorted((key, field.lower(), file) for key, field, file in parts if key is not None and field is not None)
    for key, group in groupby(named, key=itemgetter(0)):
        files_of = {field: file for _, field, file in group}
        times.update(files_of.keys())
        if _alike(files_of):
            samples[key] = files_of

    def is_shared(field: str) -> bool:
        """Numbers come again for whatever is counted: cat.0.jpg and cat.1.jpg are no sample beside dog.0.jpg."""
        return times[field] > 1 and _is_word(field)

    for key, files_of in samples.items():
        fields = _alike(files_of)
        others = [field for field in files_of if field not in fields and _is_word(field)]
        if not any(map(is_shared, others)) and 2 * sum(map(is_shared, fields)) <= len(fields):
            raise _merged([files_of[field] for field in fields], key, origin)


def _alike(fields: Collection[str]) -> list[str]:
    """Fields that may be of files on their own: left.png and right.png, or 30.jpg and 31.mp4; png itself is not.

    Words with different extensions, seg.png and depth.npy, are taken for parts of the file that has no word, if any.
    """
    dotted = [field for field in fields if "." in field]
    if len(dotted) == len(fields) or not all(map(_is_word, dotted)):
        return dotted if len({field.rpartition(".")[0] for field in dotted}) > 1 else []
    times = Counter(field.rpartition(".")[2] for field in dotted)
    return [field for field in dotted if times[field.rpartition(".")[2]] > 1]


def _is_word(field: str) -> bool:
    """Whether a field is named by words: seg.png and view0.png are, 0030.jpg is not.

    >>> _is_word("view0.seg.png"), _is_word("01.02.jpg"), _is_word(" Smith.jpg"), _is_word("jpg")
    (True, False, False, True)
    """
    words = field.split(".")[:-1]
    return all(word[:1].isalpha() and not any(map(str.isspace, word)) for word in words)


def _merged(files: Sequence[str], key: str, origin: str | None) -> SampleError:
    first, second, *others = files
    names = f"{first!r}, {second!r} and {len(others):,} more" if others else f"{first!r} and {second!r}"
    return SampleError(
        f"{names} would become one sample, since a key ends at the first dot",
        url=origin,
        key=key,
        hint="--key last-dot tells them apart, --key first-dot says that they belong together; or rename them",
    )
