"""Sound as a waveform, by whatever can read it."""

from __future__ import annotations

import io
import sys
import wave

import numpy as np
import pytest
from PIL import Image

from shapes import tone
from webdataset.display.sounds import waveform, waveform_picture
from webdataset.errors import DecodingError


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("missing", [(), ("soundfile",), ("soundfile", "av")])
def test_a_tone_that_fades_has_its_shape(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, *missing)
    found = waveform(tone(440, seconds=2.0))
    assert (found["rate"], found["channels"], found["seconds"], found["format"]) == (8000, 1, 2.0, "WAV")
    highest = [high for _, high in found["shape"]]
    assert highest[0] > 0.6
    assert highest[0] > highest[len(highest) // 2] > highest[-1] >= 0


@pytest.mark.parametrize("width", [1, 2, 4])
def test_python_itself_reads_all_widths(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "soundfile", "av")
    kind = {1: "u1", 2: "<i2", 4: "<i4"}[width]
    top = 255 if width == 1 else np.iinfo(kind).max
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setparams((2, width, 100, 0, "NONE", ""))
        sound.writeframes(np.array([[top, top]] * 64, kind).tobytes())
    found = waveform(stream.getvalue())
    assert found["channels"] == 2
    assert found["shape"][0][1] == pytest.approx(1, abs=0.01)


def test_what_is_no_sound_is_refused() -> None:
    for data in (b"", b"RIFF" + bytes(50), bytes(1000)):
        with pytest.raises(Exception, match=r".") as caught:
            waveform(data)
        assert not isinstance(caught.value, (TypeError, AttributeError))
    with pytest.raises(DecodingError, match="sound"):
        waveform(tone(440, seconds=0))


def test_formats_that_only_av_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    av = pytest.importorskip("av")
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        track = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        for packet in [*track.encode(frame), *track.encode(None)]:
            container.mux(packet)
    assert waveform(stream.getvalue())["rate"] == 16000


def test_a_picture_of_it() -> None:
    with Image.open(io.BytesIO(waveform_picture(tone(440), 200).data)) as image:
        assert (image.size, image.mode) == ((200, 100), "RGBA")
        assert np.asarray(image)[:, :, 3].any()
