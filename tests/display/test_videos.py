"""Videos: their facts, and a frame as a picture."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
from PIL import Image

from webdataset.display.videos import video_facts, video_picture
from webdataset.errors import DecodingError


def video(frames: int = 12, width: int = 64, height: int = 48, *, format: str = "mp4", codec: str = "mpeg4") -> bytes:
    stream = io.BytesIO()
    with av.open(stream, "w", format=format) as container:
        track = container.add_stream(codec, rate=12)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        for number in range(frames):
            pixels = np.full((height, width, 3), 20 * number, np.uint8)
            for packet in track.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in track.encode(None):
            container.mux(packet)
    return stream.getvalue()


def test_the_container_says_size_rate_and_length() -> None:
    facts = video_facts(video())
    assert (facts["width"], facts["height"], facts["fps"], facts["frames"], facts["seconds"]) == (64, 48, 12.0, 12, 1.0)
    assert (facts["codec"], facts["sound"]) == ("mpeg4", False)


def test_the_first_frame_is_the_picture() -> None:
    with Image.open(io.BytesIO(video_picture(video(), 32).data)) as image:
        assert image.size == (32, 24)
        assert np.asarray(image.convert("L")).max() < 20


def test_what_is_no_video_is_refused() -> None:
    sound = io.BytesIO()
    with av.open(sound, "w", format="mp4") as container:
        track = container.add_stream("aac", rate=16000)
        for packet in track.encode(None):
            container.mux(packet)
    with pytest.raises((DecodingError, av.error.FFmpegError)):
        video_facts(sound.getvalue())
    with pytest.raises(av.error.FFmpegError):
        video_picture(bytes(1000), 32)
