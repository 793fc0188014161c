from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.event_api.media import Picture, recognise


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\x00" * 10)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    thumbnail = b"Exif\x00\x00" + b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x01\x00\x01"
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    before = segment(0xE1, thumbnail) + segment(0xC4, b"\x00" * 20)
    return b"\xff\xd8" + before + b"\xff" + segment(0xC2, frame) + segment(0xDA, b"\x00" * 8)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00;"


def webp_lossy(width: int, height: int) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)


def webp_lossless(width: int, height: int) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)


def webp_extended(width: int, height: int) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8X" + b"\x00" * 8 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")


WEBP = dict.fromkeys([webp_lossy, webp_lossless, webp_extended], "image/webp")
MAKERS = {png: "image/png", jpeg: "image/jpeg", gif: "image/gif"} | WEBP


@given(st.sampled_from(list(MAKERS)), st.integers(1, 16_000), st.integers(1, 16_000))
def test_a_picture_is_known_by_its_first_bytes(make: object, width: int, height: int) -> None:
    assert recognise(make(width, height)) == Picture(MAKERS[make], width, height)  # type: ignore[operator,index]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7", b"BM" + b"\x00" * 60, png(0, 5), gif(5, 0)],
)
def test_what_is_no_picture_of_a_size_is_not_recognised(content: bytes) -> None:
    assert recognise(content) is None


@given(st.sampled_from(list(MAKERS)), st.integers(0, 60))
def test_a_cut_off_picture_is_never_misread_as_another_kind(make: object, length: int) -> None:
    picture = recognise(make(640, 480)[:length])  # type: ignore[operator]
    assert picture is None or picture.content_type == MAKERS[make]  # type: ignore[index]


def animated_png(frames: int) -> bytes:
    still = png(10, 10)
    control = struct.pack(">I", 8) + b"acTL" + struct.pack(">II", frames, 0) + b"\x00" * 4
    return still[:33] + control + still[33:]


def animated_gif(frames: int, width: int = 10, height: int = 10) -> bytes:
    frame = b"\x2c" + b"\x00" * 8 + b"\x80" + b"\x00" * 6 + b"\x02\x02\x4c\x01\x00"
    return gif(width, height)[:10] + b"\x80\x00\x00" + b"\x00" * 6 + (b"\x21\xf9\x04\x00\x00\x00\x00\x00" + frame) * frames + b";"


def animated_webp(frames: int) -> bytes:
    return webp_extended(10, 10) + b"ANMF\x10\x00\x00\x00" * frames


@pytest.mark.parametrize("make", [animated_png, animated_gif, animated_webp])
@pytest.mark.parametrize("frames", [1, 2, 77])
def test_the_frames_of_a_moving_picture_are_counted(make: Callable[[int], bytes], frames: int) -> None:
    picture = recognise(make(frames))
    assert picture is not None
    assert picture.frames == frames
