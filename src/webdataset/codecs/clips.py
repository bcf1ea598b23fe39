"""Clips of videos and sounds: some frames or seconds of them, at another rate.

    dataset.decode(wds.video(frames=8), wds.audio(rate=16000, seconds=5, start="random"))

Both are handlers for `decode`. A random start depends on the seed, the epoch and the sample alone.
"""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from webdataset.base.packages import package
from webdataset.base.workers import make_seed
from webdataset.errors import DecodingError

from .compression import Budget, check_expansion
from .media import AUDIO_EXTENSIONS, FRAME_BYTES, VIDEO_EXTENSIONS, open_container, sound_samples, stacked
from .packages import torch_package

if TYPE_CHECKING:
    import numpy as np
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from webdataset.base.context import PassContext

RANDOM = "random"


def video(
    frames: int | None = None,
    *,
    fps: float | None = None,
    start: float | str = 0.0,
    seconds: float | None = None,
    size: tuple[int, int] | None = None,
    seed: int = 0,
) -> VideoClip:
    """A decoder for videos that takes some of the frames.

    `frames=8` are eight, evenly spaced over the clip; `fps=4` is one every quarter of a second, at most `frames` of
    them. The clip begins at `start`, in seconds or "random", and lasts `seconds`, by default to the end, or as long as
    `frames` at `fps` take. `size=(height, width)` scales them. The value is (frames, info): a uint8 tensor
    T x H x W x 3, and a dict with `times` in seconds, `fps`, `seconds` (of the whole video) and `frames` (in it).
    A random start depends on the `seed`, the epoch and the sample.

    >>> video(frames=8, fps=4)
    video(frames=8, fps=4, start=0.0, seconds=None)
    """
    return VideoClip(frames=frames, fps=fps, start=start, seconds=seconds, size=size, seed=seed)


def audio(
    rate: int | None = None,
    *,
    mono: bool = False,
    start: float | str = 0.0,
    seconds: float | None = None,
    seed: int = 0,
) -> AudioClip:
    """A decoder for sounds, also of videos, that takes a part of them, at another rate.

    `rate=16000` resamples, `mono=True` mixes the channels, and the clip begins at `start`, in seconds or "random", and
    lasts `seconds`, by default to the end. The value is (samples, rate): a float32 tensor channels x samples.
    A random start depends on the `seed`, the epoch and the sample.

    >>> audio(rate=16000, mono=True)
    audio(rate=16000, mono=True, start=0.0, seconds=None)
    """
    return AudioClip(rate=rate, mono=mono, start=start, seconds=seconds, seed=seed)


class Clip:
    """What clips of videos and sounds have in common: where they begin and how long they are."""

    def __init__(self, start: float | str, seconds: float | None, seed: int) -> None:
        if isinstance(start, str) and start != RANDOM:
            raise ValueError(f'start is a number of seconds or "random", got {start!r}')
        if (not isinstance(start, str) and start < 0) or (seconds is not None and seconds <= 0):
            raise ValueError(f"start must be at least 0 and seconds above 0, got {start} and {seconds}")
        self.start = start
        self.seconds = seconds
        self.seed = seed
        self.epoch: int | None = None
        self.drawn: float | None = None

    def in_pass(self, context: PassContext) -> Self:
        """The decoder for one pass: random numbers are others in every epoch."""
        bound = copy.copy(self)
        bound.epoch = context.epoch
        return bound

    def of_sample(self, sample: Mapping[str, Any]) -> Self:
        """The decoder for the fields of one sample: they begin at the same place."""
        if self.start != RANDOM or self.epoch is None:
            return self
        bound = copy.copy(self)
        place = [str(sample.get(name)) for name in ("__key__", "__url__")]
        bound.drawn = random.Random(make_seed(self.seed, self.epoch, *place)).random()
        return bound

    def begin(self, duration: float, length: float | None) -> float:
        """Where a clip of this length begins in something that lasts so long; not so late that it would be cut."""
        if not isinstance(self.start, str):
            return self.start
        drawn = random.random() if self.drawn is None else self.drawn
        return drawn * max(duration - (length or 0.0), 0.0)


class VideoClip(Clip):
    """Decodes some frames of a video: what `video` makes."""

    def __init__(
        self,
        *,
        frames: int | None,
        fps: float | None,
        start: float | str,
        seconds: float | None,
        size: tuple[int, int] | None,
        seed: int,
    ) -> None:
        super().__init__(start, seconds, seed)
        if (frames is not None and frames < 1) or (fps is not None and fps <= 0):
            raise ValueError(f"frames must be at least 1 and fps above 0, got {frames} and {fps}")
        self.frames = frames
        self.fps = fps
        self.size = size

    def __call__(self, key: str, data: bytes) -> Any:
        if key.rpartition(".")[2].lower() not in VIDEO_EXTENSIONS:
            return None
        av = package("av", extra="video", purpose="for video fields")
        with open_container(av, data) as container:
            if not container.streams.video:
                raise DecodingError("there is no video in it")
            return self._decoded(container, float(container.duration or 0) / av.time_base, len(data))

    def _decoded(self, container: InputContainer, duration: float, stored: int) -> tuple[Any, dict[str, Any]]:
        torch = torch_package()
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        rate = float(stream.average_rate or 0) or 25.0
        duration = duration or (stream.frames or 0) / rate
        begin, wanted = self._times(duration, rate)
        pictures: list[Any] = []
        budget, times, shown, repeated = Budget(), [], None, 0
        for time, frame in _nearest(_frames(container, stream, begin), wanted):
            width, height = self.size[::-1] if self.size else (frame.width, frame.height)
            size = 3 * width * height + FRAME_BYTES
            budget.spend(size)
            if frame is shown:  # again and again, which takes no bytes of the file
                repeated += size
                check_expansion(repeated, stored)
                pictures.append(pictures[-1])
            else:
                pictures.append(torch.from_numpy(frame.to_ndarray(format="rgb24", width=width, height=height)))
            shown = frame
            times.append(time)
        if not pictures:
            raise DecodingError(f"there is no frame at {begin:.2f} s of {duration:.2f}")
        fps = self.fps or (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else rate
        info = {"times": times, "fps": fps, "seconds": duration, "frames": stream.frames or round(duration * rate)}
        return stacked(torch, pictures), info

    def _times(self, duration: float, rate: float) -> tuple[float, Iterator[float]]:
        """The first of the seconds at which frames are wanted, and all of them: a header may claim any number."""
        length = self.seconds
        if length is None and self.frames is not None and self.fps is not None:
            length = self.frames / self.fps
        begin = self.begin(duration, length)
        length = max(duration - begin, 0.0) if length is None else min(length, max(duration - begin, 0.0))
        if self.fps is not None or self.frames is None:
            step = 1.0 / (self.fps or rate)
            count = max(int(length / step + 1e-6), 1)
            return begin, (begin + n * step for n in range(count if self.frames is None else min(count, self.frames)))
        # the middle of each of as many equal parts, so that neither the first nor the last frame is favoured
        step = length / self.frames
        return begin + step / 2, (begin + (n + 0.5) * step for n in range(self.frames))

    def __repr__(self) -> str:
        return f"video(frames={self.frames}, fps={self.fps}, start={self.start}, seconds={self.seconds})"


class AudioClip(Clip):
    """Decodes a part of a sound, at another rate: what `audio` makes."""

    def __init__(self, *, rate: int | None, mono: bool, start: float | str, seconds: float | None, seed: int) -> None:
        super().__init__(start, seconds, seed)
        if rate is not None and rate < 1:
            raise ValueError(f"rate must be at least 1, got {rate}")
        self.rate = rate
        self.mono = mono

    def __call__(self, key: str, data: bytes) -> Any:
        if key.rpartition(".")[2].lower() not in AUDIO_EXTENSIONS:
            return None
        torch = torch_package()
        soundfile = package("soundfile", extra="audio", purpose="for audio fields")
        try:
            samples, rate = self._read(soundfile, data)
        except soundfile.LibsndfileError:
            samples, rate = self._read_container(data)  # m4a and wma are containers that soundfile does not know
        if self.mono:
            samples = samples.mean(0, keepdims=True)
        if self.rate is not None and self.rate != rate:
            samples, rate = _resampled(samples, rate, self.rate), self.rate
        return torch.from_numpy(samples), rate

    def _read(self, soundfile: ModuleType, data: bytes) -> tuple[Any, int]:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            rate, total = int(sound.samplerate), int(sound.frames)
            begin = min(round(self.begin(total / rate, self.seconds) * rate), total)
            count = total - begin if self.seconds is None else min(round(self.seconds * rate), total - begin)
            sound.seek(begin)
            return sound_samples(sound, count), rate

    def _read_container(self, data: bytes) -> tuple[Any, int]:
        import numpy as np

        from .media import decode_audio

        sound, rate = decode_audio(data)
        samples = sound.numpy()
        begin = round(self.begin(samples.shape[1] / rate, self.seconds) * rate)
        end = None if self.seconds is None else begin + round(self.seconds * rate)
        return np.ascontiguousarray(samples[:, begin:end]), rate

    def __repr__(self) -> str:
        return f"audio(rate={self.rate}, mono={self.mono}, start={self.start}, seconds={self.seconds})"


def _frames(container: InputContainer, stream: VideoStream, begin: float) -> Iterator[tuple[float, Any]]:
    """Frames with their times, from the last key frame before a time on."""
    first = float((stream.start_time or 0) * stream.time_base)
    if begin > 1.0:
        container.seek(int((begin + first) / stream.time_base), stream=stream)
    for frame in container.decode(stream):
        if frame.time is not None:
            yield float(frame.time) - first, frame


def _nearest(frames: Iterator[tuple[float, Any]], wanted: Iterator[float]) -> Iterator[tuple[float, Any]]:
    """For each time, the frame that is shown then; after the end, the last one."""
    shown, place = None, next(wanted, None)
    for time, frame in frames:
        while shown is not None and place is not None and place < time - 1e-6:
            yield shown
            place = next(wanted, None)
        if place is None:
            return
        shown = time, frame
    while shown is not None and place is not None:
        yield shown
        place = next(wanted, None)


def _resampled(samples: np.ndarray[Any, Any], rate: int, wanted: int) -> np.ndarray[Any, Any]:
    import numpy as np

    av = package("av", extra="video", purpose="to resample sounds")
    layout = {1: "mono", 2: "stereo"}.get(samples.shape[0], f"{samples.shape[0]} channels")
    resampler = av.AudioResampler(format="fltp", layout=layout, rate=wanted)
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="fltp", layout=layout)
    frame.rate = rate
    parts = [part.to_ndarray() for part in (*resampler.resample(frame), *resampler.resample(None))]
    return np.concatenate(parts, 1) if parts else np.zeros((samples.shape[0], 0), np.float32)
