"""Clips of videos and sounds, of files that the real libraries made."""

from __future__ import annotations

import io
import pickle
from typing import Any

import av
import numpy as np
import pytest
import soundfile

import webdataset as wds
from webdataset.codecs.media import sound_info, video_info
from webdataset.errors import DecodingError

FPS, FRAMES, RATE = 10, 40, 16000


@pytest.fixture(scope="module")
def film() -> bytes:
    """Four seconds in which every frame is brighter than the one before."""
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        video = container.add_stream("mpeg4", rate=FPS, options={"g": "5"})
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        for index in range(FRAMES):
            gray = np.full((24, 32, 3), 5 * index + 20, np.uint8)
            container.mux(video.encode(av.VideoFrame.from_ndarray(gray, format="rgb24")))
        container.mux(video.encode())
    return stream.getvalue()


def sound(seconds: float = 2.0, channels: int = 2) -> bytes:
    times = np.arange(round(seconds * RATE)) / RATE
    stream = io.BytesIO()
    soundfile.write(stream, np.stack([np.sin(2 * np.pi * 440 * times)] * channels, 1) / 2, RATE, format="WAV")
    return stream.getvalue()


def numbers(frames: Any) -> list[int]:
    """Which frames these are, by their brightness."""
    return [round((float(frame.float().mean()) - 20) / 5) for frame in frames]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"frames": 4}, [5, 15, 25, 35]),
        ({"fps": 2}, [0, 5, 10, 15, 20, 25, 30, 35]),
        ({"fps": 2, "frames": 3}, [0, 5, 10]),
        ({"fps": 5, "start": 2.0, "seconds": 1.0}, [20, 22, 24, 26, 28]),
        ({"frames": 2, "start": 3.0}, [32, 37]),
        ({"frames": 1}, [20]),
        ({}, list(range(FRAMES))),
    ],
)
def test_frames_are_those_of_their_times(film: bytes, options: dict[str, Any], expected: list[int]) -> None:
    frames, info = wds.video(**options)(".mp4", film)
    assert frames.shape == (len(expected), 24, 32, 3)
    assert all(abs(found - number) <= 1 for found, number in zip(numbers(frames), expected, strict=True))
    assert [round(time * FPS) for time in info["times"]] == expected
    assert (info["frames"], round(info["seconds"], 1)) == (FRAMES, 4.0)


def test_frames_are_scaled_while_they_are_decoded(film: bytes) -> None:
    assert wds.video(frames=2, size=(12, 8))(".mp4", film)[0].shape == (2, 12, 8, 3)


def test_a_random_clip_depends_on_seed_epoch_and_sample(film: bytes) -> None:
    samples = [{"__key__": key, "__url__": "a.tar", "mp4": film} for key in "abc"]

    def starts(seed: int = 0) -> list[list[float]]:
        stage = wds.decode(wds.video(frames=2, fps=10, start="random", seed=seed))
        pipeline = wds.DataPipeline([samples], stage)
        return [[sample["mp4"][1]["times"][0] for sample in pipeline] for _ in range(2)]

    one, other = starts(), starts()
    assert one == other
    assert one[0] != one[1]
    assert len({*one[0]}) == 3
    assert starts(seed=1) != one
    assert all(0 <= time <= 3.8 for times in one for time in times)


@pytest.mark.parametrize("rate", [8000, 16000, 22050])
def test_sounds_are_cut_mixed_and_resampled(rate: int) -> None:
    samples, found = wds.audio(rate=rate, mono=True, start=0.5, seconds=1.0)(".wav", sound())
    assert (found, samples.shape[0]) == (rate, 1)
    assert abs(samples.shape[1] - rate) <= 64
    spectrum = np.abs(np.fft.rfft(samples[0].numpy()))
    assert abs(spectrum.argmax() * rate / samples.shape[1] - 440) < 5


def test_a_sound_without_options_is_all_of_it() -> None:
    samples, rate = wds.audio()(".wav", sound(channels=2))
    assert (samples.shape, rate) == ((2, 2 * RATE), RATE)


def test_other_fields_are_left_to_others(film: bytes) -> None:
    assert wds.video()(".txt", b"") is None
    assert wds.audio()(".mp4", film) is None
    (sample,) = wds.decode(wds.video(frames=2), wds.audio())(
        [{"__key__": "a", "mp4": film, "wav": sound(), "cls": b"3"}]
    )
    assert (sample["mp4"][0].shape[0], sample["wav"][1], sample["cls"]) == (2, RATE, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wds.video(frames=0), "frames"),
        (lambda: wds.video(start="middle"), "middle"),
        (lambda: wds.audio(rate=0), "rate"),
        (lambda: wds.audio(seconds=-1.0), "seconds"),
    ],
)
def test_wrong_options_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_clip_behind_the_end_is_an_error(film: bytes) -> None:
    frames, _ = wds.video(frames=1, start=100.0)(".mp4", film)
    assert numbers(frames)[0] >= 38
    with pytest.raises(DecodingError):
        list(wds.decode(wds.video(frames=1))([{"__key__": "a", "mp4": b"no film"}]))


def test_they_pickle() -> None:
    assert (
        repr(pickle.loads(pickle.dumps(wds.video(frames=8, fps=2))))
        == "video(frames=8, fps=2, start=0.0, seconds=None)"
    )


def test_lengths_are_known_from_the_headers(film: bytes) -> None:
    info = video_info(film)
    assert info is not None
    assert (info.width, info.height, info.fps, info.frames, round(info.seconds, 1)) == (32, 24, 10.0, FRAMES, 4.0)
    assert sound_info(sound()) == (RATE, 2, 2.0)
