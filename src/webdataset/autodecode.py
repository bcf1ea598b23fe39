"""Decoding the fields of a sample by their extensions.

A handler is a function of (key, data): the key is the field's name with a leading dot, None means "not mine",
`Continue(key, data)` means "go on with these", anything else is the decoded value.

>>> Decoder([handle_extension("up", bytes.upper)])({"__key__": "a", "cls": b"7", "x.up": b"abc", "bin": b"x"})
{'__key__': 'a', 'cls': 7, 'x.up': b'ABC', 'bin': b'x'}
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial as bound
from typing import Any

from .base.printing import did_you_mean, printable, reason_of
from .base.settings import settings
from .codecs import arrays, basic, cbor, decoders, images, media, more_decoders, pickles, trusting
from .codecs.compression import gunzip_bounded
from .codecs.images import ALIASES, IMAGE_EXTENSIONS, imagespecs, spec_names
from .codecs.pickle import torchfiles
from .errors import DecodingError, UnsafePickleError, WebDatasetError

__all__ = [
    "IMAGE_EXTENSIONS",
    "Continue",
    "Decoder",
    "DecodingError",
    "ImageHandler",
    "UnsafeFieldError",
    "basichandlers",
    "call_extension_handler",
    "cbor_loads",
    "decoders",
    "default_decoder",
    "default_post_handlers",
    "default_pre_handlers",
    "gzfilter",
    "handle_extension",
    "imagehandler",
    "imagespecs",
    "morehandlers",
    "msgpack_loads",
    "npy_loads",
    "npz_loads",
    "pytorch_weights_only",
    "safetensors_loads",
    "tenbin_loads",
    "torch_audio",
    "torch_loads",
    "torch_video",
    "unpickle_loads",
]

pytorch_weights_only: bool  # see __getattr__

KeyHandler = Callable[[str, Any], Any]
Sample = dict[str, Any]

torch_loads = torchfiles.decode_pth
unpickle_loads = pickles.loads
npy_loads = arrays.decode_npy
npz_loads = arrays.decode_npz
msgpack_loads = basic.decode_msgpack
cbor_loads = cbor.decode_cbor
tenbin_loads = arrays.decode_ten
safetensors_loads = arrays.decode_safetensors


class Continue:
    """What a handler returns to hand a field on under another key or with other data.

    Args:
        key: the name to go on with, as `.json` of `.json.gz`
        data: the bytes to go on with
    """

    def __init__(self, key: str, data: Any) -> None:
        self.key = key
        self.data = data


class UnsafeFieldError(DecodingError, UnsafePickleError):
    """A field holds a pickle that was refused: both a decoding error and a security error."""


def gzfilter(key: str, data: bytes) -> Continue | None:
    """Decompress fields whose name ends in .gz and go on with the rest of the name.

    Args:
        key: the field's name, with a leading dot
        data: its bytes
    """
    if not key.endswith(".gz"):
        return None
    return Continue(key[:-3], gunzip_bounded(data))


def basichandlers(key: str, data: bytes, *, allow_pickle: bool = False) -> Any:
    """Decode by the last extension, as the table `decoders` says.

    >>> basichandlers(".meta.json", b"[1, 2]")
    [1, 2]
    """
    decode = decoders.get(key.rpartition(".")[2])
    if decode is None:
        return None
    if allow_pickle or (decode is torch_loads and globals().get("pytorch_weights_only", True) is False):
        decode = trusting.get(decode, decode)
    return decode(data)


def morehandlers(key: str, data: bytes) -> Any:
    """Decode what stays bytes by default: class, count, html, htm, tenbin, msgpack, safetensors.

    >>> Decoder([morehandlers])({"class": b"3"})
    {'class': 3}
    """
    decode = more_decoders.get(key.rpartition(".")[2])
    return None if decode is None else decode(data)


def call_extension_handler(key: str, data: object, f: Callable[[Any], Any], extensions: Sequence[str]) -> Any:
    """Call f if the key ends in one of the extensions, part by part."""
    parts = key.lower().split(".")
    for extension in extensions:
        wanted = extension.split(".")
        if len(wanted) <= len(parts) and parts[-len(wanted) :] == wanted:
            return f(data)
    return None


def handle_extension(extensions: str, f: Callable[[Any], Any]) -> KeyHandler:
    """A handler that calls f for the given extensions, a space separated list.

    "seg.jpg" needs both parts at the end of the key, ".jpg" a field that is just jpg.

    Args:
        extensions: extensions, separated by spaces
        f: a function of the bytes
    """
    return bound(call_extension_handler, f=f, extensions=extensions.lower().split())


class ImageHandler:
    """Decodes images; the spec says to what: "pil", "rgb" (float), "rgb8", "torchrgb", "l", "pixels" and so on."""

    def __init__(self, imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> None:
        imagespec = ALIASES.get(imagespec, imagespec)
        names = spec_names()
        if imagespec not in names:
            meant = did_you_mean(str(imagespec), names)
            raise ValueError(f"unknown imagespec {imagespec!r}; there are {' '.join(names)}{meant}")
        self.imagespec = imagespec
        self.extensions = set(extensions.split() if isinstance(extensions, str) else extensions)

    def __call__(self, key: str, data: Any) -> Any:
        if key.rpartition(".")[2].lower() not in self.extensions:
            return None
        return images.decode_image(data, self.imagespec)

    def __repr__(self) -> str:
        return f"ImageHandler({self.imagespec!r})"


def imagehandler(imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> ImageHandler:
    """A handler for images.

    Args:
        imagespec: what to decode to: "pil", "rgb8", "torchrgb" and so on
        extensions: which fields are images: a list, or a string with spaces
    """
    return ImageHandler(imagespec, extensions)


class FieldHandler:
    """Decodes one field, or all that begin with its name, in a way of its own.

    `how` is an image spec, a function of the bytes, or a handler. "mask" is the field `mask` and every `mask.png`,
    `mask.json`, ..., of which a spec means the images alone; "mask.png" is that field alone.

    >>> FieldHandler("mask", len)(".mask.png", b"abc"), FieldHandler("mask", len)(".png", b"abc")
    (3, None)
    """

    def __init__(self, name: str, how: str | Callable[..., Any]) -> None:
        if not isinstance(how, str) and not callable(how):
            raise TypeError(f"{name}={how!r}: a field is decoded by an image spec or a function of its bytes")
        self.name = name.strip(".").lower()
        self.how: Callable[..., Any] = ImageHandler(how) if isinstance(how, str) else how
        self._takes_key = _takes_key(self.how)

    def __call__(self, key: str, data: Any) -> Any:
        field = key.lstrip(".").lower()
        if field != self.name and not field.startswith(f"{self.name}."):
            return None
        if field == self.name and isinstance(self.how, ImageHandler):  # whatever its extension
            return images.decode_image(data, self.how.imagespec)
        return self.how(key, data) if self._takes_key else self.how(data)

    def of_sample(self, sample: Mapping[str, Any]) -> FieldHandler:
        """The same for the fields of one sample."""
        found = copy.copy(self)
        found.how = of_sample(self.how, sample)
        return found

    def __repr__(self) -> str:
        return f"FieldHandler({self.name!r}, {self.how!r})"


def of_sample(handler: object, sample: Mapping[str, Any]) -> Any:
    """The handler for the fields of one sample, where it has one: `handler.of_sample(sample)`."""
    found = getattr(handler, "of_sample", None)
    return handler if found is None else found(sample)


def torch_video(key: str, data: bytes) -> Any:
    """A handler for videos: (frames T x H x W x 3, sound K x L, {"video_fps", "audio_fps"}).

    Args:
        key: the field's name; its extension says whether it is a video
        data: its bytes
    """
    return media.decode_video(data) if key.rpartition(".")[2].lower() in media.VIDEO_EXTENSIONS else None


def torch_audio(key: str, data: bytes) -> Any:
    """A handler for sound: (samples K x L, sample rate).

    Args:
        key: the field's name; its extension says whether it is sound
        data: its bytes
    """
    return media.decode_audio(data) if key.rpartition(".")[2].lower() in media.AUDIO_EXTENSIONS else None


default_pre_handlers: list[KeyHandler] = [gzfilter]
default_post_handlers: list[KeyHandler] = [basichandlers]


class Decoder:
    """Decodes samples with a list of handlers, in order: pre, the given ones, post.

    `Decoder([f, g])(sample)` decodes a sample; `Decoder(f, g)(dataset)` a dataset: `args` are the handlers, or as
    positional arguments `handlers, pre, post, only, partial`. `only` limits the fields that
    are decoded; `partial=True` passes on values that are not bytes; `allow_pickle=True` lets pickles build any
    object, that is, run code. `fields` has a spec or function for some fields, which comes before the handlers:
    `Decoder(["rgb8"], fields={"mask.png": "pixels"})`.
    """

    def __init__(
        self,
        *args: Any,
        handlers: Iterable[KeyHandler | str] | None = None,
        pre: Iterable[KeyHandler] | None = None,
        post: Iterable[KeyHandler] | None = None,
        only: Iterable[str] | str | None = None,
        partial: bool = False,
        allow_pickle: bool = False,
        fields: Mapping[str, str | Callable[..., Any]] | None = None,
    ) -> None:
        if args and not _is_handler(args[0]):  # Decoder(handlers, pre, post, only, partial)
            positional: tuple[Any, ...] = (*args, *(None, pre, post, only, partial)[len(args) :])
            handlers, pre, post, only, partial = positional
        elif args:
            handlers = args
        self.only = set(only.split() if isinstance(only, str) else only) if only is not None else None
        self.partial = partial
        self.handlers: list[KeyHandler] = [
            *(default_pre_handlers if pre is None else pre),
            *_field_handlers(fields or {}),
            *map(_as_handler, handlers or []),
            *(default_post_handlers if post is None else post),
        ]
        for handler in self.handlers:
            if not callable(handler):
                raise ValueError(f"a handler is a function of (key, data), got {handler!r}")
        self._per_sample = any(hasattr(getattr(handler, "how", handler), "of_sample") for handler in self.handlers)
        if allow_pickle:
            trusted = bound(basichandlers, allow_pickle=True)
            self.handlers = [trusted if handler is basichandlers else handler for handler in self.handlers]

    def decode1(self, key: str, data: Any) -> Any:
        """Decode one field.

        Args:
            key: the field's name, with or without a leading dot
            data: its bytes
        """
        key = key if key.startswith(".") else f".{key}"
        for handler in self.handlers:
            result = handler(key, data)
            if isinstance(result, Continue):
                key, data = result.key, result.data
            elif result is not None:
                return result
        return data

    def decode(self, sample: Sample) -> Sample:
        """A decoded copy of the `sample`."""
        if self._per_sample:
            return self._of_sample(sample).decode(sample)
        return {name: self._field(sample, name, value) for name, value in sample.items()}

    def __call__(self, sample: Any) -> Any:
        """Decode a sample, or a dataset of samples."""
        if isinstance(sample, dict):
            return self.decode(sample)
        if hasattr(sample, "map"):
            return sample.map(self)
        if isinstance(sample, (str, bytes)) or not hasattr(sample, "__iter__"):
            raise ValueError(f"a sample is a dict, got {type(sample).__name__}")
        return map(self, sample)

    def _of_sample(self, sample: Sample) -> Decoder:
        """The decoder of one sample, for handlers that want to know whose field they decode."""
        found = copy.copy(self)
        found.handlers = [of_sample(handler, sample) for handler in self.handlers]
        found._per_sample = False
        return found

    def _field(self, sample: Sample, name: str, value: object) -> Any:
        if name.startswith("__"):
            return _text(value)
        if self.only is not None and name not in self.only:
            return value
        if not isinstance(value, bytes):
            if self.partial:
                return value
            raise _failure(sample, name, TypeError(f"it holds {type(value).__name__}, not bytes (see partial=True)"))
        try:
            return self.decode1(name, value)
        except Exception as exn:
            raise _failure(sample, name, exn) from exn


def __getattr__(name: str) -> bool:
    # read from the environment each time, until a program sets the module's variable
    if name == "pytorch_weights_only":
        return settings.pytorch_weights_only
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_handler(value: object) -> bool:
    return callable(value) or isinstance(value, str)


def _as_handler(value: KeyHandler | str) -> KeyHandler:
    return imagehandler(value) if isinstance(value, str) else value


def _field_handlers(fields: Mapping[str, Any]) -> list[FieldHandler]:
    """The handlers of some fields, longer names first: `mask.png` is more than `mask`."""
    handlers = [FieldHandler(name, how) for name, how in fields.items()]
    return sorted(handlers, key=lambda handler: -len(handler.name))


def _takes_key(function: Callable[..., Any]) -> bool:
    """Whether a function is a handler, of (key, data), rather than one of the bytes."""
    import inspect  # takes as long to import as all of this module

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 2


def _text(value: object) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _failure(sample: Sample, name: str, exn: Exception) -> DecodingError:
    """The error for a field: what was wrong, and where."""
    kind = UnsafeFieldError if isinstance(exn, UnsafePickleError) else DecodingError
    reason = exn.message if isinstance(exn, WebDatasetError) else reason_of(exn)
    url = _text(sample.get("__url__"))
    error = kind(
        f"the field cannot be decoded: {_line(reason) or type(exn).__name__}",
        key=_text(sample.get("__key__")),
        k=name,
        sample=sample,
        url=url if isinstance(url, str) else None,
        hint=getattr(exn, "hint", ""),
    )
    error.__cause__ = exn
    return error


def _line(text: str) -> str:
    """A message that may quote data, as a short printable line."""
    return printable(text, 300)


default_decoder = Decoder([])
