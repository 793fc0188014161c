"""What a partner's editor is told whose text is no date or time: how to write it, in plain words and never in strptime notation.

Words that say that there is no date yet get an answer of their own: such a date is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mappings.transforms.calendar_names import names_of

_OPEN_WORDS = (
    "tba", "tbc", "tbd", "to be announced", "to be confirmed", "to be determined", "n/a",
    "ongoing", "on going", "permanent", "always", "all year", "year round", "daily", "weekly", "various", "varies", "soon",
    "a definir", "a confirmar", "por confirmar", "por determinar", "permanente", "diario", "todo el año", "todo o ano",
    "à confirmer", "à définir", "en cours", "offen", "laufend", "ganzjährig", "dauerausstellung", "wird noch bekannt gegeben",
    "da definire", "da confermare", "w trakcie", "未定", "常設", "通年", "상설", "미정", "待定",
)  # fmt: skip
"""How people write that there is no date, or no end of it."""
_LASTING = frozenset(
    ("tba", "tbc", "tbd", "ongoing", "permanent", "permanente", "permanentny", "stałe", "stały", "stała", "laufend", "dauernd")
)
"""Words that say so wherever they stand in a text without digits: permanent exhibition, wydarzenie stałe."""
_POLICY = "or let the feed say what becomes of such rows, with on_error or a skip rule"
_YEAR = re.compile(r"(?:(?:19|20)[0-9]{2})")
_SHOWN = 3
_LONGEST = 80


def written_like(examples: Iterable[str]) -> str:
    """Say how to write it: `write it like "31/12/2026" or "2026-12-31"`."""
    return "write it like " + " or ".join(f'"{example}"' for example in list(dict.fromkeys(examples))[:_SHOWN])


def no_date_hint(text: str, examples: Iterable[str], language: str) -> str:
    """Say why a text is no date, as far as can be seen, and how one is written."""
    wanted = written_like(examples)
    if _is_open(text):
        return f'"{text}" says that there is no date yet: {wanted}, {_POLICY}'
    if _is_month(text, language):
        return f"the day of the month is missing: {wanted}, {_POLICY}"
    return wanted


def no_time_hint(text: str, examples: Iterable[str]) -> str:
    """Say why a text is no time of day, as far as can be seen, and how one is written."""
    wanted = written_like(examples)
    return f'"{text}" says that there is no time yet: {wanted}, {_POLICY}' if _is_open(text) else wanted


def _is_open(text: str) -> bool:
    folded = text.casefold().strip(" .!?()")
    if any(folded == word or folded.startswith(word + " ") for word in _OPEN_WORDS):
        return True
    words = re.findall(r"\w+", folded[:_LONGEST])
    return not _LASTING.isdisjoint(words) and not any(word.isdigit() for word in words)


def _is_month(text: str, language: str) -> bool:
    """True for `May`, `maio de 2026`, `2026`: with nothing that could be a day."""
    words = re.findall(r"[^\W\d_]+|[0-9]+", text.casefold()[:_LONGEST])
    if not words or len(words) > 3:
        return False
    numbers = [word for word in words if word.isdigit()]
    if any(not _YEAR.fullmatch(number) for number in numbers):
        return False
    months = {name for letter in "Bb" for tongue in (language, "en") for name in names_of(letter, tongue)}
    names = [word for word in words if not word.isdigit() and word not in ("de", "del")]
    return all(name in months for name in names) and bool(names or numbers)
