"""Video and audio, made by the real libraries and decoded again."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
import soundfile
import torch

from webdataset.autodecode import Decoder, torch_audio, torch_video
from webdataset.errors import DecodingError

FRAMES, HEIGHT, WIDTH, RATE = 8, 24, 32, 16000


def film(kind: str = "mp4", codec: str = "mpeg4", *, sound: str | None = "aac", title: str = "a film") -> bytes:
    stream = io.BytesIO()
    with av.open(stream, "w", format=kind) as container:
        container.metadata["title"] = title
        video = container.add_stream(codec, rate=10)
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        audio = container.add_stream(sound, rate=RATE, layout="stereo") if sound else None
        for index in range(FRAMES):
            gray = np.full((HEIGHT, WIDTH, 3), 20 * index, np.uint8)
            container.mux(video.encode(av.VideoFrame.from_ndarray(gray, format="rgb24")))
        container.mux(video.encode())
        if audio is not None:
            for start in range(0, 8 * 1024, 1024):
                wave = np.sin(np.arange(start, start + 1024) / 20).astype(np.float32)
                part = av.AudioFrame.from_ndarray(np.stack([wave, wave]), format="fltp", layout="stereo")
                part.rate, part.pts = RATE, start
                container.mux(audio.encode(part))
            container.mux(audio.encode())
    return stream.getvalue()


def wave(kind: str, *, channels: int = 2, length: int = 100_000) -> tuple[np.ndarray, bytes]:
    samples = np.stack([np.sin(np.arange(length) / (10 + c)) for c in range(channels)], 1).astype(np.float32) / 2
    stream = io.BytesIO()
    soundfile.write(stream, samples, RATE, format=kind)
    return samples, stream.getvalue()


@pytest.mark.parametrize(("kind", "key"), [("mp4", ".mp4"), ("mov", ".mov"), ("avi", ".avi"), ("matroska", ".x.webm")])
def test_a_video_is_frames_sound_and_rates(kind, key):
    video, audio, info = torch_video(key, film(kind))
    assert (video.shape, video.dtype) == ((FRAMES, HEIGHT, WIDTH, 3), torch.uint8)
    assert [abs(int(frame.float().mean()) - 20 * index) <= 3 for index, frame in enumerate(video)] == [True] * FRAMES
    assert (audio.shape[0], audio.dtype) == (2, torch.float32)
    assert audio.shape[1] >= 7 * 1024
    assert audio.abs().max() > 0.5
    assert info == {"video_fps": 10.0, "audio_fps": RATE}


def test_a_video_without_sound():
    video, audio, info = torch_video(".mp4", film(sound=None))
    assert (len(video), audio.shape, info) == (FRAMES, (1, 0), {"video_fps": 10.0})


def test_a_title_that_is_not_utf8_does_not_matter():
    data = film("matroska", title="XYZ").replace(b"XYZ", b"\xe9\xff\xfe")
    assert len(torch_video(".webm", data)[0]) == FRAMES


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_lossless_sound_comes_back(kind):
    samples, data = wave(kind)
    sound, rate = torch_audio(f".{kind.lower()}", data)
    assert (rate, sound.dtype, sound.shape) == (RATE, torch.float32, (2, len(samples)))
    assert np.allclose(sound.numpy().T, samples, atol=1e-4)


@pytest.mark.parametrize("kind", ["OGG", "MP3"])
def test_lossy_sound_comes_back(kind):
    sound, rate = torch_audio(f".{kind.lower()}", wave(kind, channels=1)[1])
    assert (rate, sound.shape) == (RATE, (1, 100_000))


def test_sound_in_a_video_container():
    sound, rate = torch_audio(".m4a", film())
    assert (rate, sound.shape[0]) == (RATE, 2)


def test_other_fields_are_not_theirs():
    assert torch_video(".png", b"") is None
    assert torch_audio(".mp4", b"") is None


def test_both_are_handlers_of_a_decoder():
    sample = Decoder([torch_video, torch_audio])({"__key__": "a", "mp4": film(), "wav": wave("WAV")[1], "cls": b"1"})
    assert [len(sample["mp4"]), len(sample["wav"]), sample["cls"]] == [3, 2, 1]


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, film()[:300], bytes(4096)])
@pytest.mark.parametrize("field", ["mp4", "wav", "flac", "m4a"])
def test_damaged_media_are_decoding_errors(field, data):
    with pytest.raises(DecodingError) as caught:
        Decoder([torch_video, torch_audio])({"__key__": "a", field: data})
    assert caught.value.__cause__ is not None


def test_a_playlist_cannot_name_other_files(tmp_path):
    other = tmp_path / "other.mp4"
    other.write_bytes(film())
    attacks = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10.0,\nfile://{other}\n#EXT-X-ENDLIST\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10.0,\n{other}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile {other}\n",
    ]
    for attack in attacks:
        with pytest.raises(DecodingError):
            Decoder([torch_video])({"__key__": "a", "mp4": attack.encode()})


def test_a_video_may_not_expand_without_limit(monkeypatch):
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", "10000")
    with pytest.raises(DecodingError, match="WDS_MAX_DECODED_BYTES"):
        Decoder([torch_video])({"__key__": "a", "mp4": film()})
    with pytest.raises(DecodingError, match="WDS_MAX_DECODED_BYTES"):
        Decoder([torch_audio])({"__key__": "a", "flac": wave("FLAC")[1]})


def test_a_flac_that_claims_hours_of_sound_needs_no_memory_for_them():
    data = bytearray(wave("FLAC", length=1000)[1])
    data[8 + 13] |= 0x0F  # the upper bits of the number of samples in the stream's first block
    data[8 + 14 : 8 + 18] = b"\xff\xff\xff\xff"
    try:
        sound, _ = torch_audio(".flac", bytes(data))
    except soundfile.LibsndfileError:
        return
    assert sound.shape[1] <= 1000
