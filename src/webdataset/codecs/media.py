"""Video and audio fields as tensors."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.packages import package
from webdataset.errors import DecodingError, MissingPackageError

from .compression import Budget, check_decoded, check_expansion
from .packages import torch_package

if TYPE_CHECKING:
    import numpy as np
    import torch
    from av.container import InputContainer

VIDEO_EXTENSIONS = frozenset(["mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"])
AUDIO_EXTENSIONS = frozenset(["flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"])

# Containers that hold media themselves. Playlists and the like, which name other files and urls, are not among
# them; nor may a container open anything else: no protocol is allowed.
CONTAINERS = "mov,mp4,m4a,3gp,matroska,webm,avi,mpeg,mpegts,mpegvideo,m4v,h264,hevc,ogg,mjpeg,asf,flac,mp3,wav,aac"
OPTIONS = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}

AUDIO_BLOCK = 1 << 16
FRAME_BYTES = 1024
"""That a frame takes besides its pixels: those of a film may be tiny, and millions."""
INDEX_BYTES = 40
"""That FFmpeg takes for each sample that an MP4 says it has."""
_COUNTS = re.compile(rb"stsz|trun|elst")


def decode_video(data: bytes) -> tuple[Any, Any, dict[str, Any]]:
    """The frames (T x H x W x 3, uint8), the sound (channels x samples, float32) and the rates of a video."""
    torch = torch_package()
    av = package("av", extra="video", purpose="for video fields")
    with open_container(av, data) as container:
        info = _rates(container)
        video = _torchcodec_frames(data)
        frames, sounds = _decode(torch, av, container, with_video=video is None)
    if video is None:
        video = stacked(torch, frames) if frames else torch.empty((0, 1, 1, 3), dtype=torch.uint8)
    audio = torch.cat(sounds, 1) if sounds else torch.empty((1, 0), dtype=torch.float32)
    return video, audio, info


def decode_audio(data: bytes) -> tuple[Any, int]:
    """The sound (channels x samples, float32) and its sample rate."""
    torch = torch_package()
    soundfile = package("soundfile", extra="audio", purpose="for audio fields")
    try:
        samples, rate = _soundfile_samples(soundfile, data)
    except soundfile.LibsndfileError:
        _, sound, info = decode_video(data)  # m4a and wma are containers that soundfile does not know
        if "audio_fps" not in info:
            raise
        return sound, int(info["audio_fps"])
    return torch.from_numpy(samples), rate


def open_container(av: ModuleType, data: bytes) -> InputContainer:
    """A container to read from; a title or comment that is not UTF-8 is no reason to fail."""
    check_index(data)
    # PyAV 19 reads such text without being asked, and has no argument for it any more
    is_old = int(av.__version__.partition(".")[0]) < 19
    return av.open(io.BytesIO(data), options=OPTIONS, **({"metadata_errors": "replace"} if is_old else {}))


def check_index(data: bytes) -> None:
    """Refuse an MP4 that claims far more samples than it has bytes: FFmpeg lists them all when it opens the file."""
    if b"moov" not in data and b"moof" not in data:
        return
    samples, edits = 0, 1
    for start, stop in _described(data):
        for found in _COUNTS.finditer(data, start, stop):
            facts = data[found.end() : found.end() + 12].ljust(12, b"\0")
            size, count = struct.unpack(">4xII", facts)
            if found[0] == b"elst":
                edits = max(edits, size)
            elif found[0] == b"trun":
                samples += size
            else:
                samples += count if size else min(count, len(data) // 4)
    check_expansion(INDEX_BYTES * samples * min(edits, len(data)), len(data))


def _described(data: bytes) -> Iterator[tuple[int, int]]:
    """The boxes of an MP4 that say what is in the others, `mdat`; where that ends is as FFmpeg has it."""
    at = 0
    while at + 16 <= len(data):
        size, kind, large = struct.unpack_from(">I4sQ", data, at)
        size = {0: len(data) - at, 1: large}.get(size, size)
        if kind != b"mdat":
            yield at, min(at + size, len(data))
        if size < 8:
            yield at, len(data)
            break
        at += size


def stacked(torch: ModuleType, frames: list[Any]) -> torch.Tensor:
    """The frames as one tensor; the list is emptied meanwhile, or all would be in memory twice."""
    if any(frame.shape != frames[0].shape for frame in frames):
        raise DecodingError("the size of its frames changes", hint="say which it should be: wds.video(size=...)")
    video = torch.empty((len(frames), *frames[0].shape), dtype=torch.uint8)
    for number in reversed(range(len(frames))):
        video[number] = frames.pop()
    return video


def _soundfile_samples(soundfile: ModuleType, data: bytes) -> tuple[Any, int]:
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        return sound_samples(sound), int(sound.samplerate)


def sound_samples(sound: Any, count: int | None = None) -> np.ndarray[Any, Any]:
    """The next samples of a sound, channels x samples, read block by block: its length is only a claim."""
    import numpy as np

    blocks, budget, left = [], Budget(), float("inf") if count is None else count
    while len(block := sound.read(int(min(AUDIO_BLOCK, left)), dtype="float32", always_2d=True)):
        budget.spend(block.nbytes)
        blocks.append(block.T)
        left -= len(block)
    return np.concatenate(blocks, 1) if blocks else np.zeros((sound.channels, 0), np.float32)


def _rates(container: InputContainer) -> dict[str, Any]:
    info: dict[str, Any] = {}
    if container.streams.video and container.streams.video[0].average_rate:
        info["video_fps"] = float(container.streams.video[0].average_rate)
    if container.streams.audio:
        info["audio_fps"] = int(container.streams.audio[0].rate)
    return info


def _torchcodec_frames(data: bytes) -> torch.Tensor | None:
    """The frames by torchcodec, which is several times faster, where it is installed and decodes them alike; else None.

    It cannot be told to open no other files, so it gets only formats that do not name any.
    """
    decoder_class = _torchcodec_decoder()
    if decoder_class is None or not (data[4:8] == b"ftyp" or data[:4] == b"\x1aE\xdf\xa3"):
        return None
    try:
        decoder = decoder_class(data, dimension_order="NHWC")
        if decoder.metadata.rotation:  # torchcodec turns the frames, PyAV and torchvision do not
            return None
        check_decoded((3 * decoder.metadata.width * decoder.metadata.height + FRAME_BYTES) * len(decoder))
        return decoder.get_frames_in_range(0, len(decoder)).data
    except (RuntimeError, ValueError, IndexError):
        return None


@cache
def _torchcodec_decoder() -> Any:
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, RuntimeError, OSError):  # its libraries need a matching ffmpeg
        return None
    return VideoDecoder


def _decode(
    torch: ModuleType, av: ModuleType, container: InputContainer, *, with_video: bool
) -> tuple[list[Any], list[Any]]:
    frames: list[Any] = []
    sounds: list[Any] = []
    if not container.streams.video and not container.streams.audio:
        raise DecodingError("neither video nor audio is in it")
    streams = [*(container.streams.video[:1] if with_video else []), *container.streams.audio[:1]]
    if not streams:
        return frames, sounds
    budget = Budget()
    resampler = av.AudioResampler(format="fltp") if container.streams.audio else None
    for frame in container.decode(*streams):
        if isinstance(frame, av.VideoFrame):
            budget.spend(3 * frame.width * frame.height + FRAME_BYTES)
            frames.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
        elif resampler is not None:
            budget.spend(8 * frame.samples)
            sounds += [torch.from_numpy(part.to_ndarray()) for part in resampler.resample(frame)]
    if resampler is not None and sounds:
        sounds += [torch.from_numpy(part.to_ndarray()) for part in resampler.resample(None)]
    return frames, sounds


class SoundInfo(NamedTuple):
    """What the header of a sound says."""

    rate: int
    channels: int
    seconds: float


class VideoInfo(NamedTuple):
    """What the header of a video says."""

    width: int
    height: int
    fps: float
    frames: int
    seconds: float


def sound_info(data: bytes) -> SoundInfo | None:
    """Rate, channels and duration of a sound, without decoding it; WAV needs no package. None if that is not known."""
    import wave

    try:
        with wave.open(io.BytesIO(data)) as sound:
            return SoundInfo(sound.getframerate(), sound.getnchannels(), sound.getnframes() / sound.getframerate())
    except (wave.Error, EOFError, ZeroDivisionError):
        pass
    try:
        soundfile = package("soundfile", extra="audio", purpose="for audio fields")
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            return SoundInfo(int(sound.samplerate), int(sound.channels), sound.frames / sound.samplerate)
    except MissingPackageError:
        return None
    except Exception:
        return _sound_in_container(data)


def _sound_in_container(data: bytes) -> SoundInfo | None:
    try:
        av = package("av", extra="video", purpose="for video fields")
        with open_container(av, data) as container:
            stream = container.streams.audio[0]
            seconds = float(container.duration or 0) / av.time_base
            return SoundInfo(int(stream.rate), int(stream.channels), seconds)
    except (MissingPackageError, IndexError, OSError, ValueError):
        return None


def video_info(data: bytes) -> VideoInfo | None:
    """Size, frame rate, number of frames and duration of a video, without decoding it; None if that is not known."""
    try:
        av = package("av", extra="video", purpose="for video fields")
        with open_container(av, data) as container:
            stream = container.streams.video[0]
            fps = float(stream.average_rate or 0)
            seconds = float(container.duration or 0) / av.time_base
            return VideoInfo(stream.width, stream.height, fps, stream.frames or round(seconds * fps), seconds)
    except (MissingPackageError, IndexError, OSError, ValueError):
        return None


def opened_media(data: bytes) -> InputContainer:
    """A container with video or sound, opened by PyAV, nothing decoded yet."""
    return open_container(package("av", extra="video", purpose="for video fields"), data)
