"""Sound as a waveform: its rate, length, and the least and largest value in each of a few hundred parts."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import package
from webdataset.codecs.media import opened_media
from webdataset.codecs.stored import pillow
from webdataset.errors import DecodingError, MissingPackageError

from .rasters import Picture

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

BLOCK = 1 << 16
MOST_SAMPLES = 3600 * 48_000
"""Of an hour and more, the first hour is shown."""
PARTS = 600
INK = (94, 129, 244)


def waveform(data: bytes, parts: int = PARTS) -> dict[str, Any]:
    """The rate, channels and seconds of a sound, and its shape: [least, largest] for each part, between -1 and 1.

    >>> stream = io.BytesIO()
    >>> with wave.open(stream, "wb") as sound:
    ...     sound.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     sound.writeframes(bytes(16000))
    >>> found = waveform(stream.getvalue(), parts=2)
    >>> found["rate"], found["channels"], found["seconds"], found["shape"]
    (8000, 1, 1.0, [[0.0, 0.0], [0.0, 0.0]])
    """
    import numpy as np

    blocks = _blocks(data)
    facts = next(blocks)
    heard, total = [], 0
    for block in blocks:
        heard.append(_thinned(block))
        total += len(block)
        if total >= MOST_SAMPLES:
            break
    if not total:
        raise DecodingError("there is no sound in it")
    ends = np.concatenate(heard)
    pieces = np.array_split(ends, min(parts, len(ends)))
    shape = [[round(float(piece[:, 0].min()), 4), round(float(piece[:, 1].max()), 4)] for piece in pieces]
    peak = float(np.abs(ends).max())
    return {**facts, "seconds": round(total / facts["rate"], 3), "peak": round(peak, 4), "shape": shape}


def waveform_picture(data: bytes, size: int) -> Picture:
    """The waveform as a picture, twice as wide as high."""
    from PIL import ImageDraw

    found = waveform(data, parts=size)
    height = size // 2
    image = pillow().new("RGBA", (size, height), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    scale = 1 / max(found["peak"], 0.05)
    for x, (low, high) in enumerate(found["shape"]):
        top, bottom = height / 2 * (1 - high * scale), height / 2 * (1 - low * scale)
        left = x * size / len(found["shape"])
        draw.line(
            [(left, top - 0.5), (left, bottom + 0.5)], fill=(*INK, 255), width=max(1, size // len(found["shape"]))
        )
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return Picture(stream.getvalue(), "image/png")


def _thinned(block: Array) -> Array:
    """The least and largest of every few samples: enough for any screen, and little to keep."""
    import numpy as np

    mono = block if block.ndim == 1 else block.mean(axis=1)
    few = max(1, min(64, len(mono)))
    kept = mono[: len(mono) // few * few].reshape(-1, few)
    return np.stack([kept.min(axis=1), kept.max(axis=1)], axis=1)


def _blocks(data: bytes) -> Iterator[Any]:
    """First the rate and channels, then the sound in blocks (samples x channels), by whatever can read it."""
    for read in (_by_soundfile, _by_wave, _by_av):
        blocks = read(data)
        try:
            facts = next(blocks)
        except MissingPackageError:
            if read is _by_av:
                raise
            continue
        except _UnreadableError:
            continue
        yield facts
        yield from blocks
        return
    raise DecodingError("the sound is of no known format")


class _UnreadableError(Exception):
    """Another reader may know the format."""


def _by_soundfile(data: bytes) -> Iterator[Any]:
    soundfile = package("soundfile", extra="audio", purpose="for audio fields")
    try:
        sound = soundfile.SoundFile(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        raise _UnreadableError from error
    with sound:
        yield {"rate": int(sound.samplerate), "channels": int(sound.channels), "format": sound.format}
        while len(block := sound.read(BLOCK, dtype="float32", always_2d=True)):
            yield block


def _by_wave(data: bytes) -> Iterator[Any]:
    """Python itself reads plain WAV files."""
    import numpy as np

    try:
        with wave.open(io.BytesIO(data)) as sound:
            width, channels = sound.getsampwidth(), sound.getnchannels()
            if width not in (1, 2, 4):
                raise _UnreadableError
            yield {"rate": sound.getframerate(), "channels": channels, "format": "WAV"}
            while frames := sound.readframes(BLOCK):
                numbers = np.frombuffer(frames[: len(frames) // width * width], {1: "u1", 2: "<i2", 4: "<i4"}[width])
                scaled = numbers.astype(np.float32) / float(1 << 8 * width - 1) - (width == 1)
                yield scaled[: len(scaled) // channels * channels].reshape(-1, channels)
    except (wave.Error, EOFError) as error:
        raise _UnreadableError from error


def _by_av(data: bytes) -> Iterator[Any]:
    with opened_media(data) as container:
        if not container.streams.audio:
            raise DecodingError("there is no sound in it")
        import av

        stream = container.streams.audio[0]
        resampler = av.AudioResampler(format="fltp")
        yield {"rate": int(stream.rate), "channels": int(stream.channels), "format": container.format.name}
        for frame in container.decode(stream):
            for part in resampler.resample(frame):
                yield part.to_ndarray().T
