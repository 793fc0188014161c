"""Steps on one text: spaces, beginnings and ends, length, damaged encodings, HTML, Markdown, and letter case."""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal
from urllib.parse import unquote

import nh3
from pydantic import Field

from mappings.lookup_table import INVISIBLE, SPACES, normaliser
from mappings.reasons import ReasonCode, Refusal, Repair, wrong_length
from mappings.steps.step import Family, Ignore, Kind, Run, Step, plain_step
from mappings.strict import Strict, Switch, Text, Texts, mistake

_BLANKS = re.compile(rf"[\s{INVISIBLE}]+")
_LINES = re.compile(rf"(?<![ \t])[ \t]*+(?:\r\n|[\n\r\v\f\x85\u2028\u2029])[\s{INVISIBLE}]*")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MOST = 100_000
_MOJIBAKE_ROUNDS = 3
_MOJIBAKE = re.compile(r"[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u2122]")
_MOST_LAYERS = 8
_REFERENCE = re.compile("&[#A-Za-z]")
"""The beginning of every HTML character reference."""
_ENDLESS = re.compile("&#[0-9]{100,};?")
"""A reference by a number that Python refuses to parse."""
_BREAKS = re.compile(r"<\s*(?:br\s*/?|/(?:p|div|li|tr|h[1-6]|ul|ol|table|blockquote|section|article))\s*>", re.IGNORECASE)
_LINE_SPACE = re.compile(r"[^\S\n]+")
_BACKSLASHED = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\([nNrt\"'\\/,;])")
_LETTERS = {"n": "\n", "N": "\n", "r": "\r", "t": "\t"}
_LONGEST_MARKDOWN = 50_000
_MANY_LINES = re.compile(r"(?<![^\S\n])[^\S\n]*+\n\s*")


@plain_step("trim", Family.TEXT, refuses=False)
def trim(text: str) -> str:
    r"""Remove all white space (including no-break and zero-width) from both ends.

    Examples:
        trim: " \u00a0Jazz\u200b " -> "Jazz"
    """
    return text.strip(SPACES)


@plain_step("collapse", Family.TEXT, refuses=False)
def collapse(text: str) -> str:
    r"""Turn every run of white space, line ends included, into one space, and trim.

    Examples:
        collapse: "Jazz \u00a0 &\n blues " -> "Jazz & blues"
    """
    if text.isprintable() and "  " not in text:  # then a single space is all the white space there is
        return text.strip(" ")
    if text.isascii():
        return " ".join(text.split())
    return _BLANKS.sub(" ", text).strip()


class Newlines(Step, name="newlines", family=Family.TEXT, refuses=False):
    r"""Replace every line break (with the space around it) by a text.

    Examples:
        {newlines: ", "}: "Rua A\r\nLisboa\n" -> "Rua A, Lisboa"
    """

    by: Text = Field(alias="newlines", description="The replacement of each line break.")

    def function(self) -> Run:
        by = self.by.replace("\\", "\\\\")
        return lambda text: _LINES.sub(by, text.strip(SPACES))


class StripPrefix(Step, name="strip_prefix", family=Family.TEXT, refuses=False):
    """Remove the first of these texts that the value begins with.

    Examples:
        {strip_prefix: ["Local: ", "Sala: "]}: "Sala: Azul" -> "Azul"
    """

    prefixes: Texts = Field(alias="strip_prefix", description="The beginnings to remove.")

    def apply(self, text: str) -> str:
        return next((text.removeprefix(prefix) for prefix in self.prefixes if text.startswith(prefix)), text)


class StripSuffix(Step, name="strip_suffix", family=Family.TEXT, refuses=False):
    """Remove the first of these texts that the value ends with.

    Examples:
        {strip_suffix: " (repeat)"}: "Hamlet (repeat)" -> "Hamlet"
    """

    suffixes: Texts = Field(alias="strip_suffix", description="The endings to remove.")

    def apply(self, text: str) -> str:
        return next((text.removesuffix(suffix) for suffix in self.suffixes if text.endswith(suffix)), text)


@plain_step("strip_control", Family.TEXT, refuses=False)
def strip_control(text: str) -> str:
    r"""Remove control characters, except tab and line ends.

    Examples:
        strip_control: "Ja\u0007zz" -> "Jazz"
    """
    return _CONTROLS.sub("", text)


class Replace(Step, name="replace", family=Family.TEXT, refuses=False):
    """Replace every occurrence of a text by another.

    Examples:
        {replace: ' - ', with: ' – '}: "Hamlet - premiere" -> "Hamlet – premiere"
    """

    old: Text = Field(alias="replace", min_length=1, description="The text to look for, taken literally.")
    new: Text = Field(default="", alias="with", description="The replacement (default: nothing).")

    def apply(self, text: str) -> str:
        return text.replace(self.old, self.new)


class Truncate(Step, name="truncate", family=Family.TEXT, refuses=False):
    """Shorten to at most so many characters with an ellipsis, at the end of a word if possible.

    Examples:
        {truncate: 14}: "Jazz and the blues" -> "Jazz and the…"
        {truncate: 40}: "Jazz and the blues" -> "Jazz and the blues"
    """

    length: int = Field(alias="truncate", ge=2, le=100_000, description="The most characters, the ellipsis included.")

    def apply(self, text: str) -> str:
        if len(text) <= self.length:
            return text
        head = text[: self.length]
        whole_words = head.rsplit(None, 1)[0] if len(head.split()) > 1 else head[:-1]
        return whole_words.rstrip(" ,;:-–") + "…"


class Default(Step, name="default", family=Family.TEXT, refuses=False):
    """Use this text if the value is empty at this step.

    Examples:
        {default: Bilhetes}: "" -> "Bilhetes"
        {default: x}: "5 €" -> "5 €"
    """

    text: Text = Field(alias="default", min_length=1, description="The text to use.")

    def apply(self, text: str) -> str:
        return self.text if not text or text.isspace() else text

    @property
    def works_on_empty(self) -> bool:
        """True: the step replaces empty values."""
        return True


class EmptyIf(Step, name="empty_if", family=Family.TEXT, refuses=False):
    """Treat these texts as an empty value: words of this partner for nothing.

    Examples:
        {empty_if: [NA, "-"]}: " - " -> ""
        {empty_if: n/a, ignore: [case]}: "N/A" -> ""
        {empty_if: NA}: "NA ja" -> "NA ja"
    """

    texts: Texts = Field(alias="empty_if", min_length=1, description="The texts that mean nothing.")
    ignore: Ignore = ()

    def function(self) -> Run:
        same = normaliser(self.ignore)
        empty = frozenset(map(same, self.texts))
        return lambda text: "" if same(text) in empty else text


class FixMojibake(Step, name="fix_mojibake", family=Family.TEXT):
    """Repair UTF-8 that was decoded as windows-1252, up to three times.

    A text is changed only if all of it becomes valid UTF-8. A row whose text was changed is
    counted and shown; with `on_error: draft` it is also sent as a draft, with omit, reject or {use: X} the text is not used.

    Examples:
        fix_mojibake: "St. Patrickâ€™s CafÃ©" -> "St. Patrick’s Café"
        fix_mojibake: "«CAFÉ»" -> "«CAFÉ»"
    """

    switch: Switch = Field(default=True, alias="fix_mojibake")

    @property
    def leaves_refusals(self) -> bool:
        """False: a repaired text is used unless the step has its own policy."""
        return False

    def apply(self, text: str) -> str:
        fixed = fix_mojibake(text)
        if fixed is not text:
            raise Repair(fixed, "save the file in the encoding that is agreed for it")
        return text


def fix_mojibake(text: str) -> str:
    """Return the text with a wrong decoding undone, or the text itself if there is none."""
    for _ in range(_MOJIBAKE_ROUNDS):
        if text.isascii() or not _MOJIBAKE.search(text):
            return text
        try:  # browsers read the five holes of windows-1252 as control characters
            text = b"".join(char.encode("latin-1" if "\x80" <= char <= "\x9f" else "windows-1252") for char in text).decode()
        except UnicodeError:
            return text
    return text


class Prefix(Step, name="prefix", family=Family.TEXT, refuses=False):
    """Put a text before the value, unless it begins with it already.

    Examples:
        {prefix: "Sala "}: "Azul" -> "Sala Azul"
        {prefix: "#"}: "#jazz" -> "#jazz"
    """

    text: Text = Field(alias="prefix", min_length=1, description="The text to add at the beginning.")

    def apply(self, text: str) -> str:
        return text if text.startswith(self.text) else self.text + text


class Suffix(Step, name="suffix", family=Family.TEXT, refuses=False):
    """Put a text after the value, unless it ends with it already.

    Examples:
        {suffix: " (repeat)"}: "Hamlet" -> "Hamlet (repeat)"
    """

    text: Text = Field(alias="suffix", min_length=1, description="The text to add at the end.")

    def apply(self, text: str) -> str:
        return text if text.endswith(self.text) else text + self.text


class Pad(Step, name="pad", family=Family.TEXT, refuses=False):
    """Pad a text on the left to so many characters, for example with zeros that a spreadsheet removed from an identifier.

    Examples:
        {pad: 5}: "2134" -> "02134"
        {pad: 4, with: "."}: "ab" -> "..ab"
        {pad: 3}: "1234" -> "1234"
    """

    length: int = Field(alias="pad", ge=1, le=1000, description="The least number of characters of the result.")
    filler: Text = Field(default="0", alias="with", min_length=1, max_length=1, description="The character to fill up with.")

    def apply(self, text: str) -> str:
        return text.rjust(self.length, self.filler)


class Bounds(Strict):
    """The bounds of a text's length, in characters."""

    at_least: int = Field(default=0, ge=0, le=_MOST, description="The fewest characters.")
    at_most: int = Field(default=_MOST, ge=0, le=_MOST, description="The most characters.")

    def check(self) -> None:
        if self.at_least > self.at_most:
            message = f"no text has at least {self.at_least} and at most {self.at_most} characters"
            raise mistake(message, f"swap them: {{at_least: {self.at_most}, at_most: {self.at_least}}}")


class Length(Step, name="length", family=Family.TEXT):
    """Refuse a text that is too short or too long; `truncate` shortens instead.

    Examples:
        {length: {at_least: 3, at_most: 80}}: "Jazz" -> "Jazz"
        {length: {at_least: 3}}: "x" -> bad_text
        {length: {at_most: 5}}: "Jazz and the blues" -> too_long
    """

    bounds: Bounds = Field(alias="length", description="`at_least` and `at_most`, in characters.")

    def apply(self, text: str) -> str:
        if self.bounds.at_least <= len(text) <= self.bounds.at_most:
            return text
        raise wrong_length(text, least=self.bounds.at_least, most=self.bounds.at_most)


@plain_step("html_unescape", Family.MARKUP, refuses=False)
def unescape(text: str) -> str:
    """Decode HTML character references, even if they were escaped several times.

    Examples:
        html_unescape: "Jazz &amp;amp; blues &#8211; live" -> "Jazz & blues – live"
    """
    if "&" not in text:
        return text
    for _ in range(_MOST_LAYERS):
        plain = text.replace("&amp;", "&")  # nearly all there is to undo, found much sooner
        if not _REFERENCE.search(plain):
            return plain
        plain = html.unescape(_ENDLESS.sub("\ufffd", plain))
        if plain == text:
            return text
        text = plain
    return text


@plain_step("html_to_text", Family.MARKUP, refuses=False)
def html_to_text(text: str) -> str:
    r"""Convert HTML to plain text: tags, scripts and comments are removed, paragraphs become lines.

    Examples:
        html_to_text: "<p>Jazz &amp; <b>blues</b></p><p>Live</p><script>x()</script>" -> "Jazz & blues\nLive"
        html_to_text: "5 < 7 €" -> "5 < 7 €"
    """
    if "<" not in text and "&" not in text:
        return text
    whole = text.encode("utf-8", "replace").decode()  # a lone surrogate is not a character
    clean = nh3.clean(_BREAKS.sub("\n", whole), tags=set(), strip_comments=True)
    lines = _LINE_SPACE.sub(" ", unescape(clean))
    return _MANY_LINES.sub("\n", lines).strip(SPACES)


@plain_step("markdown_to_text", Family.MARKUP)
def markdown_to_text(text: str) -> str:
    r"""Convert Markdown to plain text: marks and addresses of links are removed, paragraphs and list items become lines.

    Examples:
        markdown_to_text: "# Jazz\n\n**Live** at [Blå](https://example.org)\n\n* free" -> "Jazz\nLive at Blå\nfree"
        markdown_to_text: "5 * 3 _ok" -> "5 * 3 _ok"
    """
    if len(text) > _LONGEST_MARKDOWN:
        raise Refusal(ReasonCode.TOO_LONG, f"at most {_LONGEST_MARKDOWN} characters of Markdown can be read")
    return html_to_text(_markdown_renderer()(text.encode("utf-8", "replace").decode()))


@cache
def _markdown_renderer() -> Callable[[str], str]:
    from markdown_it import MarkdownIt  # noqa: PLC0415  # sixty modules, for the few feeds that read Markdown

    return MarkdownIt("commonmark").render


class Unescape(Step, name="unescape", family=Family.MARKUP, refuses=False):
    r"""Decode escaped characters: percent or backslash escapes.

    `percent`: as in web addresses; `backslash`: as in JSON and calendars. Anything else is unchanged.

    Examples:
        {unescape: percent}: "Caf%C3%A9%20Central 100%" -> "Café Central 100%"
        {unescape: backslash}: "Caf\\u00e9\\, Rua A\\nLisboa" -> "Café, Rua A\nLisboa"
    """

    form: Literal["percent", "backslash"] = Field(alias="unescape", description="How the characters are written.")

    def apply(self, text: str) -> str:
        return unquote(text) if self.form == "percent" else _BACKSLASHED.sub(_unescaped, text)


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return escape[1].encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LETTERS.get(escape[2], escape[2])


class Part(Step, name="part", family=Family.KINDS, takes=Kind.OBJECT, gives=Kind.UNKNOWN, refuses=False):
    """Take one part of the result of a lookup or a price.

    Examples:
        {part: zone}: "placeId: pt-lisboa, zone: Europe/Lisbon" -> "Europe/Lisbon"
        {part: name}: "placeId: pt-lisboa" -> ""
    """

    part: Text = Field(alias="part", min_length=1, description="The part's name: a column of the lookup, or a part of the price.")

    def apply(self, found: Mapping[str, Any]) -> Any:
        return found.get(self.part, "")


Turkic = Literal["az", "tr"]
"""Languages with two letters i and ı that have different capitals; all other languages follow Unicode's rules."""
_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_BEGINNING = re.compile(r"(?:^|[.!?…]\s)\W{0,5}[^\W\d_]")
_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
"""Plain spellings of letters that Unicode does not decompose."""
_BETWEEN = re.compile(r"[\W_]+")
_QUOTES = re.compile(r"['’`]")
_without_accents = normaliser(("accents",))


class _Case(Step):
    locale: Turkic | None = Field(default=None, description="Only for languages with a dotless i: tr or az.")

    def lowered(self, text: str) -> str:
        """Return a text in lower case, by the rules of the language."""
        return (text.translate(_TO_LOWER) if self.locale else text).lower()

    def uppered(self, text: str) -> str:
        """Return a text in upper case, by the rules of the language."""
        return (text.translate(_TO_UPPER) if self.locale else text).upper()


class Lower(_Case, name="lower", family=Family.LETTERS, refuses=False):
    """Write in lower case.

    Examples:
        lower: "JAZZ" -> "jazz"
        {lower: true, locale: tr}: "IŞIK" -> "ışık"
    """

    switch: Switch = Field(default=True, alias="lower")

    def function(self) -> Run:
        return self.lowered if self.locale else str.lower


class Upper(_Case, name="upper", family=Family.LETTERS, refuses=False):
    """Write in upper case.

    Examples:
        upper: "jazz" -> "JAZZ"
        {upper: true, locale: tr}: "izmir" -> "İZMİR"
    """

    switch: Switch = Field(default=True, alias="upper")

    def function(self) -> Run:
        return self.uppered if self.locale else str.upper


class Title(_Case, name="title", family=Family.LETTERS, refuses=False):
    """Write each word with a capital first letter, the rest in lower case; an apostrophe does not begin a word.

    Examples:
        title: "THE DEVIL'S VIOLIN" -> "The Devil's Violin"
        {title: true, locale: tr}: "İSTANBUL ŞENLİĞİ" -> "İstanbul Şenliği"
    """

    switch: Switch = Field(default=True, alias="title")

    def apply(self, text: str) -> str:
        return _WORD.sub(self._capitalised, text)

    def _capitalised(self, word: re.Match[str]) -> str:
        return self.uppered(word[0][0]) + self.lowered(word[0][1:]) if self.locale else word[0].capitalize()


class Sentence(_Case, name="sentence", family=Family.LETTERS, refuses=False):
    """Write each sentence with a capital first letter, the rest in lower case: for texts that are all in capitals.

    Examples:
        sentence: "JAZZ AND BLUES. «LIVE» ON STAGE!" -> "Jazz and blues. «Live» on stage!"
    """

    switch: Switch = Field(default=True, alias="sentence")

    def apply(self, text: str) -> str:
        return _BEGINNING.sub(lambda found: self.uppered(found[0]), self.lowered(text))


class StripChars(Step, name="strip_chars", family=Family.LETTERS, refuses=False):
    """Remove all of these characters from both ends of a text.

    Examples:
        {strip_chars: "*-# "}: "*** Jazz -- live #" -> "Jazz -- live"
    """

    chars: Text = Field(alias="strip_chars", min_length=1, description="The characters, one after the other.")

    def apply(self, text: str) -> str:
        return text.strip(self.chars)


class MapCharacters(Step, name="map_characters", family=Family.LETTERS, refuses=False):
    r"""Replace single characters everywhere; one with an empty replacement is removed.

    Examples:
        {map_characters: {"“": '"', "”": '"', "•": ""}}: "• “Jazz”" -> " \"Jazz\""
    """

    table: dict[str, Text] = Field(alias="map_characters", min_length=1, description="The characters, and what each becomes.")

    def check(self) -> None:
        for char in self.table:
            if len(char) != 1:
                raise mistake(f'"{char}" is not one character', "the step replace replaces longer texts")

    def function(self) -> Run:
        table = str.maketrans(self.table)
        return lambda text: text.translate(table)


class Normalize(Step, name="normalize", family=Family.LETTERS, refuses=False):
    """Convert a text to a Unicode form: NFKC also replaces full-width letters, ligatures and circled digits by plain ones.

    Examples:
        {normalize: NFKC}: "Ｊａｚｚ ﬁnale ①" -> "Jazz finale 1"
        {normalize: NFC}: "Ｊａｚｚ" -> "Ｊａｚｚ"
    """

    form: Literal["NFC", "NFKC"] = Field(alias="normalize", description="The form; every text is sent in NFC anyway.")

    def apply(self, text: str) -> str:
        return text if text.isascii() else unicodedata.normalize(self.form, text)


class Slugify(Step, name="slugify", family=Family.LETTERS):
    """Convert a text to a slug, for an address or identifier: lower-case letters and digits without accents, joined by a sign.

    Letters of other scripts are unchanged.

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
            raise Refusal(ReasonCode.BAD_TEXT, "expected a text with letters or digits")
        return slug


class Hash(Step, name="hash", family=Family.LETTERS, refuses=False):
    """Hash a text to so many hexadecimal digits; the result is the same on every machine and never changes.

    Examples:
        {hash: 12}: "Jazz and the blues" -> "e90d6ff8629f"
    """

    digits: int = Field(alias="hash", ge=8, le=64, description="How many digits, 8 to 64; fewer than 16 may meet by chance.")

    def apply(self, text: str) -> str:
        encoded = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(encoded, digest_size=32).hexdigest()[: self.digits]
