"""Images: the same pixels whichever library decodes them, and every way to store one."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from webdataset.autodecode import imagehandler
from webdataset.codecs import encode, images
from webdataset.errors import DecodingError, EncodingError


def picture(height: int = 37, width: int = 53, *, seed: int = 0, channels: int = 3) -> np.ndarray:
    """A smooth picture with some noise, as photos are."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(1, height // 8), max(1, width // 8), channels), dtype=np.uint8)
    layers = [
        Image.fromarray(small[:, :, c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(channels)
    ]
    smooth = np.stack([np.asarray(layer, dtype=int) for layer in layers], -1)
    return np.clip(smooth + rng.integers(-9, 9, smooth.shape), 0, 255).astype(np.uint8)


def stored(image: np.ndarray | Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, kind, **options)
    return stream.getvalue()


def by_pillow(data: bytes, mode: str) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(1, 100),
    st.sampled_from([{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"keep_rgb": True}]),
    st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)),
)
def test_a_jpeg_gives_exactly_pillows_pixels(height, width, quality, sampling, coding):
    progressive, optimize, restart = coding
    data = stored(
        picture(height, width, seed=quality),
        quality=quality,
        progressive=progressive,
        optimize=optimize,
        restart_marker_blocks=restart,
        **sampling,
    )
    assert images._jpeg_pixels(data, "rgb") is not None
    for spec, mode in (("rgb8", "RGB"), ("l8", "L"), ("rgba8", "RGBA")):
        assert np.array_equal(imagehandler(spec)(".jpg", data), by_pillow(data, mode))


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_every_colour_space_of_jpeg_gives_exactly_pillows_pixels(mode):
    data = stored(Image.fromarray(picture()).convert(mode))
    for spec, target in (("rgb8", "RGB"), ("l8", "L"), ("rgba8", "RGBA")):
        assert np.array_equal(imagehandler(spec)(".jpg", data), by_pillow(data, target))


def test_an_inverted_cmyk_with_adobe_marker_is_left_to_pillow():
    plain = stored(Image.fromarray(picture()).convert("CMYK"))
    ycck = plain.replace(b"Adobe\x00d\x00\x00\x00\x00\x00", b"Adobe\x00d\x00\x00\x00\x00\x02")
    assert ycck != plain
    for data in (plain, ycck):
        assert images._jpeg_pixels(data, "rgb") is None
        assert np.array_equal(imagehandler("rgb8")(".jpg", data), by_pillow(data, "RGB"))


def test_the_exif_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = stored(picture(), exif=exif)
    assert imagehandler("rgb8")(".jpg", data).shape == (37, 53, 3)
    assert imagehandler("pil")(".jpg", data).getexif()[0x0112] == 6


def test_a_pil_image_is_what_pillow_itself_gives():
    exif = Image.Exif()
    exif[0x0112] = 3
    for image in (Image.fromarray(picture()), Image.fromarray(picture()).convert("L")):
        data = stored(image, exif=exif, dpi=(72, 72), icc_profile=b"profile", comment=b"hello")
        for spec, mode in (("pil", "RGB"), ("pill", "L"), ("pilrgba", "RGBA")):
            found = imagehandler(spec)(".jpg", data)
            with Image.open(io.BytesIO(data)) as opened:
                expected = opened.convert(mode)
            assert found.info == expected.info
            assert dict(found.getexif()) == dict(expected.getexif()) == {0x0112: 3}
            assert (found.mode, found.size, found.format) == (expected.mode, expected.size, expected.format)
            assert np.array_equal(np.asarray(found), np.asarray(expected))
            found.putpixel((0, 0), 0)
            assert found.getpixel((0, 0)) in (0, (0, 0, 0), (0, 0, 0, 255), (0, 0, 0, 0))


def test_an_image_is_known_by_its_content_not_its_name():
    data = stored(picture(), "PNG")
    assert np.array_equal(imagehandler("rgb8")(".jpg", data), picture())


@pytest.mark.parametrize("cut", [3, 20, 200, 700, -10])
@pytest.mark.parametrize("spec", ["rgb8", "l8", "pil"])
def test_a_cut_jpeg_is_an_error(cut, spec):
    data = stored(picture())
    with pytest.raises(OSError, match=r"(?i)truncated|cannot identify|broken"):
        imagehandler(spec)(".jpg", data[:cut])


def test_damage_inside_a_jpeg_ends_as_with_pillow():
    data = bytearray(stored(picture(seed=3)))
    for position in range(700, len(data) - 2, 97):
        damaged = bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        try:
            expected = by_pillow(damaged, "RGB")
        except OSError:
            with pytest.raises(OSError, match=r"."):
                imagehandler("rgb8")(".jpg", damaged)
        else:
            assert np.array_equal(imagehandler("rgb8")(".jpg", damaged), expected)


def test_pillow_alone_gives_the_same(monkeypatch):
    data = stored(picture())
    fast = imagehandler("rgb8")(".jpg", data)
    monkeypatch.setattr(images, "simplejpeg_package", lambda: None)
    assert np.array_equal(imagehandler("rgb8")(".jpg", data), fast)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_specs(kind):
    data = stored(picture(4, 5), kind)
    expected = by_pillow(data, "RGB")
    gray, clear = by_pillow(data, "L"), by_pillow(data, "RGBA")
    scaled = {name: array.astype("f") / 255.0 for name, array in (("rgb", expected), ("l", gray), ("rgba", clear))}

    def decoded(spec: str) -> object:
        return imagehandler(spec)(".png", data)

    for spec, array in (("rgb8", expected), ("l8", gray), ("rgba8", clear), *scaled.items()):
        found = decoded(spec)
        assert isinstance(found, np.ndarray)
        assert found.dtype == array.dtype
        assert found.flags.writeable
        assert found.flags.c_contiguous
        assert np.array_equal(found, array)
        tensor = decoded(f"torch{spec}")
        assert tensor.is_contiguous()
        assert np.array_equal(tensor.numpy(), array.transpose(2, 0, 1) if array.ndim == 3 else array)
    for alias in ("torch", "rgbtorch"):
        assert torch.equal(decoded(alias), decoded("torchrgb"))
    modes = {spec: decoded(spec).mode for spec in ("pil", "pilrgb", "pill", "pilrgba")}
    assert modes == {"pil": "RGB", "pilrgb": "RGB", "pill": "L", "pilrgba": "RGBA"}


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA", "L"])
def test_every_shallow_mode_of_png_is_converted_as_pillow_does(mode):
    data = stored(Image.fromarray(picture()).convert(mode), "PNG")
    assert np.array_equal(imagehandler("rgb8")(".png", data), by_pillow(data, "RGB"))


def test_an_unknown_spec_says_which_there_are():
    with pytest.raises(ValueError, match="rgb8"):
        imagehandler("rgbx")
    with pytest.raises(ValueError, match="'pixels'"):
        imagehandler("pixel")


def test_postscript_is_not_run():
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) (w) file\n%%EOF\n"
    for key in (".eps", ".png"):
        with pytest.raises(DecodingError, match="PostScript"):
            imagehandler("rgb8")(key, data)


@pytest.mark.parametrize("size", [30_000, 65_500])
def test_an_image_that_claims_to_be_enormous_is_refused(size):
    jpeg = bytearray(stored(picture()))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = size.to_bytes(2, "big") * 2
    png = bytearray(stored(picture(), "PNG"))
    png[16:24] = size.to_bytes(4, "big") * 2
    with pytest.raises(Image.DecompressionBombError):
        imagehandler("rgb8")(".jpg", bytes(jpeg))
    with pytest.raises((Image.DecompressionBombError, OSError, SyntaxError)):
        imagehandler("rgb8")(".png", bytes(png))


@pytest.mark.parametrize("kind", ["png", "tiff", "tif", "webp", "ppm"])
def test_lossless_kinds_keep_every_pixel(kind):
    for array in (picture(), picture()[:, :, 0]):
        spec = "rgb8" if array.ndim == 3 else "l8"
        assert np.array_equal(imagehandler(spec)(f".{kind}", encode(kind, array)), array)


@pytest.mark.parametrize("kind", ["png", "webp", "tiff"])
def test_four_channels_are_kept_where_the_format_has_them(kind):
    array = picture(channels=4)
    assert np.array_equal(imagehandler("rgba8")(f".{kind}", encode(kind, array)), array)


@pytest.mark.parametrize("kind", ["jpg", "jpeg", "ppm"])
@pytest.mark.parametrize("image", [picture(channels=4), Image.new("RGBA", (3, 3)), Image.new("LA", (3, 3))])
def test_transparency_in_a_format_without_it_is_an_error_with_the_cure(kind, image):
    with pytest.raises(EncodingError, match="png"):
        encode(kind, image)


def test_jpegs_are_written_at_the_best_quality():
    for name in ("jpg", "jpeg", "img", "image"):
        with Image.open(io.BytesIO(encode(name, picture()))) as image:
            assert image.format == "JPEG"
            assert set(image.quantization[0]) == {1}


def test_pbm_and_pgm_and_ppm():
    gray = picture()[:, :, 0]
    assert encode("pgm", gray)[:2] == b"P5"
    assert encode("pbm", gray > 100)[:2] == b"P4"
    assert encode("ppm", picture())[:2] == b"P6"
    assert np.array_equal(imagehandler("l8")(".pgm", encode("pgm", gray)), gray)
    assert np.array_equal(imagehandler("l8")(".pbm", encode("pbm", gray > 100)), (gray > 100) * np.uint8(255))


def test_floats_are_scaled_and_cut_off():
    array = np.array([[0.0, 0.5, 0.999, 1.0, 1.0005, -0.0005]])
    for kind in (np.float64, np.float32):
        assert imagehandler("l8")(".png", encode("png", array.astype(kind))).tolist() == [[0, 127, 254, 255, 255, 0]]


def test_tensors_have_their_channels_first():
    array = picture()
    tensor = torch.from_numpy(array.transpose(2, 0, 1).copy())
    assert encode("png", tensor) == encode("png", array)
    assert encode("png", tensor[:1]) == encode("png", tensor[0]) == encode("png", array[:, :, 0])
    assert encode("png", tensor.float() / 255) == encode("png", array.astype("f") / 255)
    with pytest.raises(EncodingError, match="H, W"):
        encode("png", torch.from_numpy(array))


@pytest.mark.parametrize(
    "value",
    [
        np.full((2, 2), 1.5),
        np.full((2, 2), -0.1),
        np.full((2, 2), np.nan),
        np.zeros((2, 2), np.int64),
        np.zeros((2, 2, 5), np.uint8),
        np.zeros((2, 2, 2, 3), np.uint8),
        np.zeros((0, 0), np.uint8),
        np.zeros((0, 3)),
        np.zeros(5, np.uint8),
        [[1, 2]],
        None,
        Image.new("F", (2, 2)),
    ],
)
def test_what_is_not_an_image_is_an_error(value):
    for kind in ("png", "jpg"):
        with pytest.raises(EncodingError):
            encode(kind, value)


def test_pixels_of_a_jpeg_are_its_colours_or_its_gray():
    colour, gray = stored(picture()), stored(picture()[:, :, 0])
    assert np.array_equal(imagehandler("pixels")(".jpg", colour), by_pillow(colour, "RGB"))
    assert np.array_equal(imagehandler("pixels")(".jpg", gray), by_pillow(gray, "L"))
    assert imagehandler("torchpixels")(".jpg", colour).shape == (3, 37, 53)


@pytest.mark.parametrize("spec", ["pixels", "torchpixels"])
def test_pixels_of_a_jpeg_are_the_same_without_simplejpeg(monkeypatch, spec):
    files = [stored(picture()), stored(picture()[:, :, 0]), stored(Image.fromarray(picture()).convert("CMYK"))]
    fast = [np.asarray(imagehandler(spec)(".jpg", data)) for data in files]
    monkeypatch.setattr(images, "simplejpeg_package", lambda: None)
    for data, found in zip(files, fast, strict=True):
        assert np.array_equal(imagehandler(spec)(".jpg", data), found)


def test_the_image_libraries_agree_on_their_jpeg_code():
    assert features.check_feature("libjpeg_turbo")
