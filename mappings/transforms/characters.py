"""Steps that look at single characters of a text: their Unicode form, which stay, what stands for them in a name.

Capitals are `cases`'; which characters count as space is `text`'s.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from mappings.measures import Text, mistake
from mappings.refusals import Refusal
from mappings.tables import normaliser
from mappings.transforms.step import Run, Shown, Step
from mappings.vocabulary import ReasonCode

_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
"""Letters that Unicode does not take apart, as they are written where they are not known."""
_BETWEEN = re.compile(r"[\W_]+")
_QUOTES = re.compile(r"['’`]")
_without_accents = normaliser(("accents",))


class StripChars(Step):
    """Remove these characters from both ends of a text, as often as they stand there."""

    name: ClassVar[str] = "strip_chars"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{strip_chars: "*-# "}', "*** Jazz -- live #", "Jazz -- live"),)
    chars: Text = Field(alias="strip_chars", min_length=1, description="The characters, one after the other.")

    def function(self) -> Run:
        """Return the step's function."""
        chars = self.chars
        return lambda text: text.strip(chars)


class MapCharacters(Step):
    """Replace single characters wherever they stand; one that becomes nothing is removed."""

    name: ClassVar[str] = "map_characters"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("""{map_characters: {"“": '"', "”": '"', "•": ""}}""", "• “Jazz”", ' "Jazz"'),)
    table: dict[str, Text] = Field(alias="map_characters", min_length=1, description="The characters, and what each becomes.")

    @model_validator(mode="after")
    def _check_single(self) -> Self:
        for char in self.table:
            if len(char) != 1:
                raise mistake(f'"{char}" is not one character', "the step replace replaces longer texts")
        return self

    def function(self) -> Run:
        """Return the step's function."""
        table = str.maketrans(self.table)
        return lambda text: text.translate(table)


class Normalize(Step):
    """Bring a text to a Unicode form: NFKC also replaces full-width letters, ligatures and circled digits by plain ones."""

    name: ClassVar[str] = "normalize"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{normalize: NFKC}", "Ｊａｚｚ ﬁnale ①", "Jazz finale 1"),
        Shown("{normalize: NFC}", "Ｊａｚｚ", "Ｊａｚｚ"),
    )
    form: Literal["NFC", "NFKC"] = Field(alias="normalize", description="The form; every text is sent in NFC anyway.")

    def function(self) -> Run:
        """Return the step's function."""
        form = self.form
        return lambda text: text if text.isascii() else unicodedata.normalize(form, text)


class Slugify(Step):
    """Write a text as a name for an address or an identifier: small letters and digits without accents, joined by a sign.

    Letters of other scripts stay as they are.
    """

    name: ClassVar[str] = "slugify"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("slugify", "Ópera & Łódź: l'été!", "opera-lodz-lete"),
        Shown('{slugify: "_"}', "Große Halle", "grosse_halle"),
        Shown("slugify", "!?", ReasonCode.BAD_TEXT),
    )
    separator: Literal["-", "_"] = Field(default="-", alias="slugify", description="What joins the words: - or _.")

    def function(self) -> Run:
        """Return the step's function."""
        sign = self.separator

        def slugify(text: str) -> str:
            plain = _without_accents(_QUOTES.sub("", text).casefold()).translate(_PLAIN)
            slug = _BETWEEN.sub(sign, plain).strip(sign)
            if not slug:
                raise Refusal(ReasonCode.BAD_TEXT, "a text with letters or digits would be accepted")
            return slug

        return slugify


class Hash(Step):
    """Digest a text to so many hexadecimal digits: a short name for a long text, the same on every machine and for ever."""

    name: ClassVar[str] = "hash"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("{hash: 12}", "Jazz and the blues", "e90d6ff8629f"),)
    digits: int = Field(alias="hash", ge=8, le=64, description="How many digits, 8 to 64; fewer than 16 may meet by chance.")

    def function(self) -> Run:
        """Return the step's function."""
        digits = self.digits

        def digest(text: str) -> str:
            encoded = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
            return hashlib.blake2b(encoded, digest_size=32).hexdigest()[:digits]

        return digest
