"""Texts written so that YAML, and every editor's YAML, reads them back as the same text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_PLAIN = re.compile(r"[^\W\d_][\w./+%$ -]*[\w.%/-]|[^\W\d_]|\$[A-Za-z_]\w*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar(text: str) -> str:
    """Write one text: plain where no reader can take it for anything else, in double quotes otherwise."""
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def column_text(name: str) -> str:
    """Write a column's name behind `from`, where a dollar sign would mean a named value."""
    return scalar(f"${name}" if name.startswith("$") else name)


def listed(texts: Iterable[str]) -> str:
    """Write a list of texts on one line."""
    return f"[{', '.join(map(scalar, texts))}]"


def one_or_list(texts: tuple[str, ...]) -> str:
    """Write one text as itself, several as a list."""
    return scalar(texts[0]) if len(texts) == 1 else listed(texts)


def block(entries: Mapping[str, str | int]) -> str:
    """Write texts and numbers by name on one line."""
    told = (f"{scalar(name)}: {value if isinstance(value, int) else scalar(value)}" for name, value in entries.items())
    return f"{{{', '.join(told)}}}"


def comment(text: str) -> str:
    """Return a text that can stand behind `# `: on one line, nothing but printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
