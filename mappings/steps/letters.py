"""Steps on the letters of a text: upper and lower case, single characters, Unicode forms, slugs, hashes."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Literal, Self

from pydantic import Field, model_validator

from mappings.lookup_table import normaliser
from mappings.reasons import ReasonCode, Refusal
from mappings.steps.step import Family, Run, Step
from mappings.strict import Switch, Text, mistake

Turkic = Literal["az", "tr"]
"""The languages whose letters i and ı are two, each with its own capital; all others share Unicode's rules."""
_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_BEGINNING = re.compile(r"(?:^|[.!?…]\s)\W{0,5}[^\W\d_]")
_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
"""Letters that Unicode does not take apart, as they are written where they are not known."""
_BETWEEN = re.compile(r"[\W_]+")
_QUOTES = re.compile(r"['’`]")
_without_accents = normaliser(("accents",))


class _Case(Step):
    locale: Turkic | None = Field(default=None, description="Only for languages with a dotless i: tr or az.")

    def lowered(self, text: str) -> str:
        """Return a text in the small letters of the language."""
        return (text.translate(_TO_LOWER) if self.locale else text).lower()

    def uppered(self, text: str) -> str:
        """Return a text in the capitals of the language."""
        return (text.translate(_TO_UPPER) if self.locale else text).upper()


class Lower(_Case, name="lower", family=Family.LETTERS):
    """Write in lower case.

    Examples:
        lower: "JAZZ" -> "jazz"
        {lower: true, locale: tr}: "IŞIK" -> "ışık"
    """

    switch: Switch = Field(default=True, alias="lower")

    def function(self) -> Run:
        return self.lowered if self.locale else str.lower


class Upper(_Case, name="upper", family=Family.LETTERS):
    """Write in upper case.

    Examples:
        upper: "jazz" -> "JAZZ"
        {upper: true, locale: tr}: "izmir" -> "İZMİR"
    """

    switch: Switch = Field(default=True, alias="upper")

    def function(self) -> Run:
        return self.uppered if self.locale else str.upper


class Title(_Case, name="title", family=Family.LETTERS):
    """Begin every word with a capital, the rest in lower case; apostrophes do not begin a word.

    Examples:
        title: "THE DEVIL'S VIOLIN" -> "The Devil's Violin"
        {title: true, locale: tr}: "İSTANBUL ŞENLİĞİ" -> "İstanbul Şenliği"
    """

    switch: Switch = Field(default=True, alias="title")

    def apply(self, text: str) -> str:
        return _WORD.sub(self._capitalised, text)

    def _capitalised(self, word: re.Match[str]) -> str:
        return self.uppered(word[0][0]) + self.lowered(word[0][1:]) if self.locale else word[0].capitalize()


class Sentence(_Case, name="sentence", family=Family.LETTERS):
    """Begin every sentence with a capital, the rest in lower case: for texts that are written in capitals throughout.

    Examples:
        sentence: "JAZZ AND BLUES. «LIVE» ON STAGE!" -> "Jazz and blues. «Live» on stage!"
    """

    switch: Switch = Field(default=True, alias="sentence")

    def apply(self, text: str) -> str:
        return _BEGINNING.sub(lambda found: self.uppered(found[0]), self.lowered(text))


class StripChars(Step, name="strip_chars", family=Family.LETTERS):
    """Remove these characters from both ends of a text, as often as they stand there.

    Examples:
        {strip_chars: "*-# "}: "*** Jazz -- live #" -> "Jazz -- live"
    """

    chars: Text = Field(alias="strip_chars", min_length=1, description="The characters, one after the other.")

    def apply(self, text: str) -> str:
        return text.strip(self.chars)


class MapCharacters(Step, name="map_characters", family=Family.LETTERS):
    r"""Replace single characters wherever they stand; one that becomes nothing is removed.

    Examples:
        {map_characters: {"“": '"', "”": '"', "•": ""}}: "• “Jazz”" -> " \"Jazz\""
    """

    table: dict[str, Text] = Field(alias="map_characters", min_length=1, description="The characters, and what each becomes.")

    @model_validator(mode="after")
    def _check_single(self) -> Self:
        for char in self.table:
            if len(char) != 1:
                raise mistake(f'"{char}" is not one character', "the step replace replaces longer texts")
        return self

    def function(self) -> Run:
        table = str.maketrans(self.table)
        return lambda text: text.translate(table)


class Normalize(Step, name="normalize", family=Family.LETTERS):
    """Bring a text to a Unicode form: NFKC also replaces full-width letters, ligatures and circled digits by plain ones.

    Examples:
        {normalize: NFKC}: "Ｊａｚｚ ﬁnale ①" -> "Jazz finale 1"
        {normalize: NFC}: "Ｊａｚｚ" -> "Ｊａｚｚ"
    """

    form: Literal["NFC", "NFKC"] = Field(alias="normalize", description="The form; every text is sent in NFC anyway.")

    def apply(self, text: str) -> str:
        return text if text.isascii() else unicodedata.normalize(self.form, text)


class Slugify(Step, name="slugify", family=Family.LETTERS):
    """Write a text as a name for an address or an identifier: small letters and digits without accents, joined by a sign.

    Letters of other scripts stay as they are.

    Examples:
        slugify: "Ópera & Łódź: l'été!" -> "opera-lodz-lete"
        {slugify: "_"}: "Große Halle" -> "grosse_halle"
        slugify: "!?" -> bad_text
    """

    separator: Literal["-", "_"] = Field(default="-", alias="slugify", description="What joins the words: - or _.")

    def apply(self, text: str) -> str:
        plain = _without_accents(_QUOTES.sub("", text).casefold()).translate(_PLAIN)
        slug = _BETWEEN.sub(self.separator, plain).strip(self.separator)
        if not slug:
            raise Refusal(ReasonCode.BAD_TEXT, "a text with letters or digits would be accepted")
        return slug


class Hash(Step, name="hash", family=Family.LETTERS):
    """Digest a text to so many hexadecimal digits: a short name for a long text, the same on every machine and for ever.

    Examples:
        {hash: 12}: "Jazz and the blues" -> "e90d6ff8629f"
    """

    digits: int = Field(alias="hash", ge=8, le=64, description="How many digits, 8 to 64; fewer than 16 may meet by chance.")

    def apply(self, text: str) -> str:
        encoded = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(encoded, digest_size=32).hexdigest()[: self.digits]
