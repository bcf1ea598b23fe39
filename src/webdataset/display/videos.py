"""A video's facts, and one of its frames as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webdataset.codecs.media import opened_media
from webdataset.errors import DecodingError, LimitError

from .rasters import MOST_PIXELS, Picture, heat_map

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream


def video_facts(data: bytes) -> dict[str, Any]:
    """Size, frames per second, number of frames, seconds, and codec, as far as the container says them."""
    with opened_media(data) as container:
        stream = _stream(container)
        facts: dict[str, Any] = {"width": stream.width, "height": stream.height, "codec": stream.codec_context.name}
        if stream.average_rate:
            facts["fps"] = round(float(stream.average_rate), 3)
        if stream.frames:
            facts["frames"] = int(stream.frames)
        if container.duration:
            facts["seconds"] = round(container.duration / 1e6, 3)
        facts["sound"] = bool(container.streams.audio)
        return facts


def video_picture(data: bytes, size: int) -> Picture:
    """The first frame."""
    with opened_media(data) as container:
        stream = _stream(container)
        if stream.width * stream.height > MOST_PIXELS:
            raise LimitError(f"{stream.width} x {stream.height} pixels are too many to be shown")
        for frame in container.decode(stream):
            return heat_map(frame.to_ndarray(format="rgb24"), size)
    raise DecodingError("the video has no frames")


def _stream(container: InputContainer) -> VideoStream:
    if not container.streams.video:
        raise DecodingError("there is no video in it")
    return container.streams.video[0]
