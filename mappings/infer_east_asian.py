"""Korean, Japanese and Chinese bytes told from each other by what they read as, a few broken places among them.

Whether bytes are of that kind at all is asked by `infer_dialect`.
"""

from __future__ import annotations

import re

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
