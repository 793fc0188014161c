"""Korean, Japanese and Chinese bytes told from each other by what they read as, a few broken places among them.

Whether bytes are of that kind at all is asked by `infer_dialect`.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from charset_normalizer import from_bytes

_BROKEN = re.compile("[\ufffd\uf8f0-\uf8f3]")
"""What bytes become that are no text; Python's cp932 makes letters of nobody's of them."""
_WORDS = {
    "cp949": re.compile("[가-힣]{2,}"),
    "cp932": re.compile("[\u3041-\u30fe\u4e00-\u9fff々]{2,}"),
    "gb18030": re.compile("[\u4e00-\u9fff]{2,}"),
    "big5": re.compile("[\u4e00-\u9fff]{2,}"),
}
"""What a text is made of that is written in an encoding: letters that stand beside each other, as in words."""
_OWN = {
    "cp949": re.compile("[가-힣]"),
    "cp932": re.compile("[\u3041-\u30fe]"),
    "gb18030": re.compile("[的一是不了在有中大为上个国我以要他时来们年生到地出活动日月音乐会演场节市馆区艺术文化展览]"),
    "big5": re.compile("[的一是不了在有中大為上個國我以要他時來們年生到地出活動日月音樂會演場節市館區藝術文化展覽]"),
}
"""Letters that stand in every longer text of the language: hangul, kana, and the commonest of the Chinese ones."""
_OWN_SHARE = {"cp949": 0.9, "cp932": 0.15, "gb18030": 0.12, "big5": 0.12}
_WORDS_SHARE = 0.75
_LEAST = 8


def guess_east_asian(content: bytes) -> tuple[str, int]:
    """Return the East Asian encoding that the bytes read as words in, and how many places are broken; "" if there is none."""
    read = {name: _reading(content.decode(name, "replace"), name) for name in _WORDS}
    name = max(read, key=lambda one: read[one][0])
    return (name, read[name][1]) if read[name][0] > 0 else ("", 0)


def _reading(text: str, name: str) -> tuple[float, int]:
    """Return how much a text reads as its language does, 0 if it does not, and its broken places."""
    broken = len(_BROKEN.findall(text))
    odd = sum(not char.isascii() for char in text) - broken
    letters = sum(map(len, _WORDS[name].findall(text)))
    own = len(_OWN[name].findall(text))
    is_text = letters >= max(_LEAST, odd * _WORDS_SHARE) and own >= letters * _OWN_SHARE[name]
    if not is_text or broken > max(8, letters // 20):
        return 0.0, broken
    return letters / (odd + 20 * broken) * (1 + own / max(1, letters)), broken


_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LIKELY = ("windows-1252", "windows-1250", "cp932", "cp949", "gb18030", "big5", "windows-1251", "iso-8859-2", "koi8-r")
_NAMES = {
    "cp1252": "windows-1252",
    "cp1250": "windows-1250",
    "cp1251": "windows-1251",
    **dict.fromkeys(("shift_jis", "shift_jis_2004", "shift_jisx0213"), "cp932"),
}
"""The encodings that files are in, for what resembles them: a later standard's Shift-JIS makes another letter of 髙, silently."""
_LATIN = ("windows-125", "iso", "latin", "mac", "cp4", "cp7", "cp8", "cp10", "hp")
_WESTERN = frozenset("€‚„…‘’“”•–—™«»·°§©®´¡¿\u00a0")
_FOUR_ODD_LETTERS = re.compile(r"[^\W\d_A-Za-z]{4}")
_MARKS = (",", ";", "\t", "|")
_LOOKED_AT = 200
_HINT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text file seems to be written. `why` tells the evidence by the source's key; `is_sure` is about the encoding."""

    encoding: str
    delimiter: str
    quote: str
    header_row: int
    why: dict[str, str]
    is_sure: bool


def guess_encoding(head: bytes, *, is_whole: bool) -> tuple[str, str, bool]:
    """Return an encoding, why, and whether that is proof: bytes that decode as UTF-8 are UTF-8, others are only likely."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding, "the file begins with a byte order mark", True
    if not _breaks(head, "utf-8", is_whole=is_whole):
        return "utf-8", "every byte decodes as UTF-8", True
    name, broken = guess_east_asian(head[:_HINT_BYTES])
    best = None if name else from_bytes(head[:_HINT_BYTES]).best()
    if name and broken:
        return name, f"all but {broken} places are text in {name}: what stands there must be mended at the source", False
    if name:
        return name, f"every byte is text in {name}, and reads as such", False
    hinted = _NAMES.get(best.encoding, best.encoding.replace("_", "-")) if best is not None else "windows-1252"
    if hinted.startswith(_LATIN) and _reads_western(head):
        hinted = "windows-1252"
    fitting = [name for name in dict.fromkeys((hinted, *_LIKELY)) if not _breaks(head, name, is_whole=is_whole)]
    chosen = fitting[0] if fitting else hinted
    return chosen, f"the bytes are no UTF-8 and look like {chosen}: compare letters with accents", False


def _reads_western(head: bytes) -> bool:
    """Whether every byte beyond ASCII is a letter or a mark that Western European texts use: few bytes tell code pages apart.

    No Western word has four such letters in a row; nearly every Cyrillic or Greek one has.
    """
    try:
        text = head[:_HINT_BYTES].decode("windows-1252")
    except UnicodeDecodeError:
        return False
    is_western = all(char.isalpha() or char in _WESTERN for char in set(text) if not char.isascii())
    return is_western and _FOUR_ODD_LETTERS.search(text) is None


def guess_dialect(head: bytes, *, is_whole: bool) -> Dialect:
    """Return how a delimited text seems to be written; `is_whole`: these bytes are the whole file."""
    encoding, why, is_sure = guess_encoding(head, is_whole=is_whole)
    text = head.decode(encoding, "replace").lstrip("\ufeff")
    counts = {mark: _widths(text, mark) for mark in _MARKS}
    delimiter = max(_MARKS, key=lambda mark: _evenness(counts[mark]))
    rows = _rows(text, delimiter)
    row = header_row(rows)
    width = len(rows[row - 1]) if rows else 0
    same = sum(count for size, count in Counter(counts[delimiter]).items() if size == width)
    told = {
        "encoding": why,
        "delimiter": f"{same} of {len(counts[delimiter])} rows have {width} cells each",
        "header": "" if row == 1 else f"row {row} is the first that is as wide as those below",
    }
    return Dialect(encoding, delimiter, _quote(text, delimiter), row, told, is_sure)


def _breaks(head: bytes, encoding: str, *, is_whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head, is_whole)
    except (UnicodeDecodeError, LookupError):
        return True
    return False


def _rows(text: str, mark: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    rows: list[list[str]] = []
    try:
        for cells in reader:
            rows.append(cells)
            if len(rows) == _LOOKED_AT:
                break
    except csv.Error:
        pass
    return rows


def _widths(text: str, mark: str) -> list[int]:
    return [len(cells) for cells in _rows(text, mark) if any(cell.strip() for cell in cells)]


def _evenness(widths: Sequence[int]) -> float:
    """Rows that are equally wide, and wider than one cell, speak for a delimiter; a few cells more speak a little louder."""
    if not widths:
        return 0.0
    width, count = Counter(widths).most_common(1)[0]
    return count / len(widths) * (1 + min(width, 40) / 100) if width > 1 else 0.0


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """Return the first row that has as many filled cells as a header of this file needs."""
    full = [sum(bool(cell.strip()) for cell in cells) for cells in rows]
    usual = Counter(len(cells) for cells, filled in zip(rows, full, strict=True) if filled).most_common(1)
    width = usual[0][0] if usual else 0
    for position, (cells, filled) in enumerate(zip(rows, full, strict=True), start=1):
        if len(cells) >= width > 1 and filled * 2 >= width:
            return position
    return 1


def _quote(text: str, delimiter: str) -> str:
    doubles, singles = (text.count(f"{delimiter}{quote}") + text.count(f"\n{quote}") for quote in ('"', "'"))
    return "'" if singles > 3 and not doubles else '"'
