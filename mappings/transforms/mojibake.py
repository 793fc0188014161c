"""The step that undoes a wrong decoding. Which encoding a file is read with is its source's matter."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from mappings.measures import Switch
from mappings.refusals import Repaired
from mappings.transforms.step import Run, Shown, Step

_MOST_ROUNDS = 3
_SUSPECT = re.compile(r"[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u2122]")


class FixMojibake(Step):
    """Undo UTF-8 that somebody read as windows-1252, up to three times over.

    Only a text that becomes UTF-8 as a whole is changed; any other is left as it is. A row whose text was changed is
    counted and shown; with `on_error: draft` it is also sent as a draft, with omit, reject or {use: X} the text is not used.
    """

    name: ClassVar[str] = "fix_mojibake"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("fix_mojibake", "St. Patrickâ€™s CafÃ©", "St. Patrick’s Café"),
        Shown("fix_mojibake", "«CAFÉ»", "«CAFÉ»"),
    )
    switch: Switch = Field(default=True, alias="fix_mojibake")

    @property
    def leaves_refusals(self) -> bool:
        """A text that was changed is used, unless the step itself says otherwise."""
        return False

    def function(self) -> Run:
        """Return the step's function."""
        return _told_if_fixed


def _told_if_fixed(text: str) -> str:
    fixed = fix_mojibake(text)
    if fixed is not text:
        raise Repaired(fixed, "save the file in the encoding that is agreed for it")
    return text


def fix_mojibake(text: str) -> str:
    """Return the text as it was before it was decoded wrongly, or the text itself."""
    for _ in range(_MOST_ROUNDS):
        if text.isascii() or not _SUSPECT.search(text):
            return text
        try:
            text = b"".join(map(_byte, text)).decode("utf-8")
        except UnicodeError:
            return text
    return text


def _byte(char: str) -> bytes:
    """Return the byte that windows-1252 reads as this character; browsers read its five holes as control characters."""
    return char.encode("latin-1" if "\x80" <= char <= "\x9f" else "windows-1252")
