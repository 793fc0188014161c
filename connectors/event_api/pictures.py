"""What a picture is, by its own bytes: its type, its width and its height, read from the first of them.

Neither file names nor declared types are believed here; nothing is decoded, so nothing can explode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers that begin a frame (ITU-T T.81, table B.1); the three left out define tables instead."""

_GIF_EXTENSION, _GIF_FRAME = 0x21, 0x2C


@dataclass(frozen=True, slots=True)
class Picture:
    """A recognised picture; `width` and `height` in pixels, `frames` more than one where it moves."""

    content_type: str
    extension: str
    width: int
    height: int
    frames: int = 1


def recognise(content: bytes) -> Picture | None:
    """Return what `content` is, None where it is no JPEG, PNG, GIF or WebP with a size. Never raises."""
    try:
        return _recognise(content)
    except IndexError:
        return None


def _recognise(content: bytes) -> Picture | None:
    if content.startswith(b"\xff\xd8\xff"):
        return _sized("image/jpeg", "jpg", _jpeg_size(content))
    if content.startswith(_PNG) and content[12:16] == b"IHDR":
        return _sized("image/png", "png", (_big(content[16:20]), _big(content[20:24])), _png_frames(content))
    if content[:6] in {b"GIF87a", b"GIF89a"}:
        return _sized("image/gif", "gif", (_little(content[6:8]), _little(content[8:10])), _gif_frames(content))
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _sized("image/webp", "webp", _webp_size(content), content.count(b"ANMF"))
    return None


def _sized(content_type: str, extension: str, size: tuple[int, int], frames: int = 1) -> Picture | None:
    width, height = size
    return Picture(content_type, extension, width, height, max(frames, 1)) if width > 0 and height > 0 else None


def _png_frames(content: bytes) -> int:
    """Return how many frames an animated PNG declares: in a chunk that comes before the first image data."""
    at = content.find(b"acTL", 8, content.find(b"IDAT"))
    return _big(content[at + 4 : at + 8]) if at > 0 else 1


def _gif_frames(content: bytes) -> int:
    """Count the frames of a GIF, block by block; what follows a block that is no block is not looked at."""
    at, frames = 13 + _colours(content[10]), 0
    while at < len(content) and content[at] in {_GIF_EXTENSION, _GIF_FRAME}:
        if content[at] == _GIF_FRAME:
            frames += 1
            at += 11 + _colours(content[at + 9])
        else:
            at += 2
        at = _after_gif_blocks(content, at)
    return frames


def _colours(flags: int) -> int:
    """Return the bytes of a GIF's colour table, 0 where its flags announce none."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_gif_blocks(content: bytes, at: int) -> int:
    while content[at]:
        at += content[at] + 1
    return at + 1


def _jpeg_size(content: bytes) -> tuple[int, int]:
    for marker, at in _jpeg_segments(content):
        if marker in _JPEG_FRAMES:
            return _big(content[at + 5 : at + 7]), _big(content[at + 3 : at + 5])
    return 0, 0


def _jpeg_segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield each marker with the place of its length, up to the first scan."""
    at = 2
    while at < len(content) - 1 and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        else:
            yield marker, at + 2
            at += 2 + max(_big(content[at + 2 : at + 4]), 2)


def _webp_size(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":
            return 1 + _little(content[24:27]), 1 + _little(content[27:30])
        case b"VP8L":
            bits = _little(content[21:25])
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return _little(content[26:28]) & 0x3FFF, _little(content[28:30]) & 0x3FFF
        case _:
            return 0, 0


def _big(number: bytes) -> int:
    return int.from_bytes(number, "big")


def _little(number: bytes) -> int:
    return int.from_bytes(number, "little")
