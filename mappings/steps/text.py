"""Steps that tidy one text: spaces, characters, letters, damaged encodings, hashes."""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

import nh3
from pydantic import Field, model_validator

from mappings.lookup_table import Ignorable, normaliser
from mappings.measures import OneOrMany, Switch, Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal, Repair
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.zones import EndOfDay

INVISIBLE = "\u200b\u200c\u2060\ufeff\u180e\u00ad"
_BLANKS = re.compile(rf"[\s{INVISIBLE}]+")
_LINES = re.compile(rf"(?<![ \t])[ \t]*+(?:\r\n|[\n\r\v\f\x85\u2028\u2029])[\s{INVISIBLE}]*")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + INVISIBLE
"""Every Unicode space, and the invisible characters that look like none."""


class Trim(Step, name="trim", refuses=False):
    """Remove white space of every kind (also no-break and zero-width) from both ends."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("trim", " \u00a0Jazz\u200b ", "Jazz"),)
    switch: Switch = Field(default=True, alias="trim")

    def function(self) -> Run:
        return lambda text: text.strip(SPACES)


class Collapse(Step, name="collapse", refuses=False):
    """Turn every run of white space, line ends included, into one space, and trim."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("collapse", "Jazz \u00a0 &\n blues ", "Jazz & blues"),)
    switch: Switch = Field(default=True, alias="collapse")

    def function(self) -> Run:
        return collapse


def collapse(text: str) -> str:
    """Turn every run of white space into one space, and trim."""
    if text.isprintable() and "  " not in text:  # then a single space is all the white space there is
        return text.strip(" ")
    if text.isascii():
        return " ".join(text.split())
    return _BLANKS.sub(" ", text).strip()


class Newlines(Step, name="newlines", refuses=False):
    """Replace every line end (with the space around it) by a text."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{newlines: ", "}', "Rua A\r\nLisboa\n", "Rua A, Lisboa"),)
    by: Text = Field(alias="newlines", description="What stands between the lines instead.")

    def function(self) -> Run:
        by = self.by.replace("\\", "\\\\")
        return lambda text: _LINES.sub(by, text.strip(SPACES))


class StripPrefix(Step, name="strip_prefix", refuses=False):
    """Remove the first of these texts that the value begins with."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{strip_prefix: ["Local: ", "Sala: "]}', "Sala: Azul", "Azul"),)
    prefixes: Texts = Field(alias="strip_prefix", description="The beginnings to remove.")

    def function(self) -> Run:
        prefixes = self.prefixes

        def strip_prefix(text: str) -> str:
            return next((text.removeprefix(prefix) for prefix in prefixes if text.startswith(prefix)), text)

        return strip_prefix


class StripSuffix(Step, name="strip_suffix", refuses=False):
    """Remove the first of these texts that the value ends with."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{strip_suffix: " (repeat)"}', "Hamlet (repeat)", "Hamlet"),)
    suffixes: Texts = Field(alias="strip_suffix", description="The endings to remove.")

    def function(self) -> Run:
        suffixes = self.suffixes

        def strip_suffix(text: str) -> str:
            return next((text.removesuffix(suffix) for suffix in suffixes if text.endswith(suffix)), text)

        return strip_suffix


class Replace(Step, name="replace", refuses=False):
    """Replace every occurrence of a text by another."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{replace: ' - ', with: ' – '}", "Hamlet - premiere", "Hamlet – premiere"),
    )
    old: Text = Field(alias="replace", min_length=1, description="The text to look for, taken literally.")
    new: Text = Field(default="", alias="with", description="What stands there instead (default: nothing).")

    def function(self) -> Run:
        old, new = self.old, self.new
        return lambda text: text.replace(old, new)


class StripControl(Step, name="strip_control", refuses=False):
    """Remove control characters, except tab and line ends."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("strip_control", "Ja\u0007zz", "Jazz"),)
    switch: Switch = Field(default=True, alias="strip_control")

    def function(self) -> Run:
        return lambda text: _CONTROLS.sub("", text)


class Truncate(Step, name="truncate", refuses=False):
    """Shorten to at most so many characters, at a word's end where there is one, with an ellipsis."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{truncate: 14}", "Jazz and the blues", "Jazz and the…"),
        StepExample("{truncate: 40}", "Jazz and the blues", "Jazz and the blues"),
    )
    length: int = Field(alias="truncate", ge=2, le=100_000, description="The most characters, the ellipsis included.")
    ellipsis: Text = Field(default="…", max_length=10, description="What marks the cut.")

    def function(self) -> Run:
        length, ellipsis = self.length, self.ellipsis

        def truncate(text: str) -> str:
            if len(text) <= length:
                return text
            head = text[: max(length - len(ellipsis), 0) + 1]
            whole_words = head.rsplit(None, 1)[0] if len(head.split()) > 1 else head[:-1]
            return (whole_words.rstrip(" ,;:-–") + ellipsis)[:length]

        return truncate


class Default(Step, name="default", refuses=False):
    """Use this text where the value is empty by now."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{default: Bilhetes}", "", "Bilhetes"),
        StepExample("{default: x}", "5 €", "5 €"),
    )
    text: Text = Field(alias="default", min_length=1, description="The text to use.")

    def function(self) -> Run:
        fallback = self.text
        return lambda text: fallback if not text or text.isspace() else text

    @property
    def works_on_empty(self) -> bool:
        """It is the one step meant for empty values."""
        return True


class EmptyIf(Step, name="empty_if", refuses=False):
    """Take these texts for an empty value: how this partner writes that there is nothing."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{empty_if: [NA, "-"]}', " - ", ""),
        StepExample("{empty_if: n/a, ignore: [case]}", "N/A", ""),
        StepExample("{empty_if: NA}", "NA ja", "NA ja"),
    )
    texts: Texts = Field(alias="empty_if", min_length=1, description="The texts that mean nothing.")
    ignore: Annotated[tuple[Ignorable, ...], OneOrMany()] = Field(default=(), description="Differences that do not count.")

    def function(self) -> Run:
        same = normaliser(self.ignore)
        empty = frozenset(map(same, self.texts))
        return lambda text: "" if same(text) in empty else text


Turkic = Literal["az", "tr"]
"""The languages whose letters i and ı are two, each with its own capital; all others share Unicode's rules."""
_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_BEGINNING = re.compile(r"(?:^|[.!?…]\s)\W{0,5}[^\W\d_]")
_LOCALE = "Only for languages with a dotless i: tr or az."


class _Case(Step):
    """What the four share: the language, where it matters."""

    locale: Turkic | None = Field(default=None, description=_LOCALE)

    @property
    def _lower(self) -> Callable[[str], str]:
        return str.lower if self.locale is None else _turkic_lower

    @property
    def _upper(self) -> Callable[[str], str]:
        return str.upper if self.locale is None else _turkic_upper


class Lower(_Case, name="lower", refuses=False):
    """Write in lower case."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("lower", "JAZZ", "jazz"),
        StepExample("{lower: true, locale: tr}", "IŞIK", "ışık"),
    )
    switch: Switch = Field(default=True, alias="lower")

    def function(self) -> Run:
        return self._lower


class Upper(_Case, name="upper", refuses=False):
    """Write in upper case."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("upper", "jazz", "JAZZ"),
        StepExample("{upper: true, locale: tr}", "izmir", "İZMİR"),
    )
    switch: Switch = Field(default=True, alias="upper")

    def function(self) -> Run:
        return self._upper


class Title(_Case, name="title", refuses=False):
    """Begin every word with a capital, the rest in lower case; apostrophes do not begin a word."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("title", "THE DEVIL'S VIOLIN", "The Devil's Violin"),
        StepExample("{title: true, locale: tr}", "İSTANBUL ŞENLİĞİ", "İstanbul Şenliği"),
    )
    switch: Switch = Field(default=True, alias="title")

    def function(self) -> Run:
        if self.locale is None:
            return lambda text: _WORD.sub(lambda word: word[0].capitalize(), text)
        return lambda text: _WORD.sub(lambda word: _turkic_upper(word[0][0]) + _turkic_lower(word[0][1:]), text)


class Sentence(_Case, name="sentence", refuses=False):
    """Begin every sentence with a capital, the rest in lower case: for texts that are written in capitals throughout."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("sentence", "JAZZ AND BLUES. «LIVE» ON STAGE!", "Jazz and blues. «Live» on stage!"),
    )
    switch: Switch = Field(default=True, alias="sentence")

    def function(self) -> Run:
        lower, upper = self._lower, self._upper
        return lambda text: _BEGINNING.sub(lambda found: upper(found[0]), lower(text))


def _turkic_lower(text: str) -> str:
    return text.translate(_TO_LOWER).lower()


def _turkic_upper(text: str) -> str:
    return text.translate(_TO_UPPER).upper()


_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
"""Letters that Unicode does not take apart, as they are written where they are not known."""
_BETWEEN = re.compile(r"[\W_]+")
_QUOTES = re.compile(r"['’`]")
_without_accents = normaliser(("accents",))


class StripChars(Step, name="strip_chars", refuses=False):
    """Remove these characters from both ends of a text, as often as they stand there."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{strip_chars: "*-# "}', "*** Jazz -- live #", "Jazz -- live"),)
    chars: Text = Field(alias="strip_chars", min_length=1, description="The characters, one after the other.")

    def function(self) -> Run:
        chars = self.chars
        return lambda text: text.strip(chars)


class MapCharacters(Step, name="map_characters", refuses=False):
    """Replace single characters wherever they stand; one that becomes nothing is removed."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("""{map_characters: {"“": '"', "”": '"', "•": ""}}""", "• “Jazz”", ' "Jazz"'),
    )
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


class Normalize(Step, name="normalize", refuses=False):
    """Bring a text to a Unicode form: NFKC also replaces full-width letters, ligatures and circled digits by plain ones."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{normalize: NFKC}", "Ｊａｚｚ ﬁnale ①", "Jazz finale 1"),
        StepExample("{normalize: NFC}", "Ｊａｚｚ", "Ｊａｚｚ"),
    )
    form: Literal["NFC", "NFKC"] = Field(alias="normalize", description="The form; every text is sent in NFC anyway.")

    def function(self) -> Run:
        form = self.form
        return lambda text: text if text.isascii() else unicodedata.normalize(form, text)


class Slugify(Step, name="slugify"):
    """Write a text as a name for an address or an identifier: small letters and digits without accents, joined by a sign.

    Letters of other scripts stay as they are.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("slugify", "Ópera & Łódź: l'été!", "opera-lodz-lete"),
        StepExample('{slugify: "_"}', "Große Halle", "grosse_halle"),
        StepExample("slugify", "!?", ReasonCode.BAD_TEXT),
    )
    separator: Literal["-", "_"] = Field(default="-", alias="slugify", description="What joins the words: - or _.")

    def function(self) -> Run:
        sign = self.separator

        def slugify(text: str) -> str:
            plain = _without_accents(_QUOTES.sub("", text).casefold()).translate(_PLAIN)
            slug = _BETWEEN.sub(sign, plain).strip(sign)
            if not slug:
                raise Refusal(ReasonCode.BAD_TEXT, "a text with letters or digits would be accepted")
            return slug

        return slugify


class Hash(Step, name="hash", refuses=False):
    """Digest a text to so many hexadecimal digits: a short name for a long text, the same on every machine and for ever."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("{hash: 12}", "Jazz and the blues", "e90d6ff8629f"),)
    digits: int = Field(alias="hash", ge=8, le=64, description="How many digits, 8 to 64; fewer than 16 may meet by chance.")

    def function(self) -> Run:
        digits = self.digits

        def digest(text: str) -> str:
            encoded = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
            return hashlib.blake2b(encoded, digest_size=32).hexdigest()[:digits]

        return digest


_MOST_ROUNDS = 3
_SUSPECT = re.compile(r"[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u2122]")


class FixMojibake(Step, name="fix_mojibake"):
    """Undo UTF-8 that was read as windows-1252, up to three times over.

    Only a text that becomes UTF-8 as a whole is changed; any other is left as it is. A row whose text was changed is
    counted and shown; with `on_error: draft` it is also sent as a draft, with omit, reject or {use: X} the text is not used.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("fix_mojibake", "St. Patrickâ€™s CafÃ©", "St. Patrick’s Café"),
        StepExample("fix_mojibake", "«CAFÉ»", "«CAFÉ»"),
    )
    switch: Switch = Field(default=True, alias="fix_mojibake")

    @property
    def leaves_refusals(self) -> bool:
        """A text that was changed is used, unless the step itself says otherwise."""
        return False

    def function(self) -> Run:
        return _told_if_fixed


def _told_if_fixed(text: str) -> str:
    fixed = fix_mojibake(text)
    if fixed is not text:
        raise Repair(fixed, "save the file in the encoding that is agreed for it")
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


class ToText(Step, name="to_text", takes=Kind.ANY):
    """Write a number, a date, a time or yes and no as a text: plain digits with a point, ISO 8601, true and false."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("to_text", "jazz", "jazz"),)
    switch: Switch = Field(default=True, alias="to_text")

    def function(self) -> Run:
        return text_of


class Part(Step, name="part", takes=Kind.OBJECT, gives=Kind.UNKNOWN, refuses=False):
    """Take one part of what a lookup or a price has found."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{part: zone}", "placeId: pt-lisboa, zone: Europe/Lisbon", "Europe/Lisbon"),
        StepExample("{part: name}", "placeId: pt-lisboa", ""),
    )
    part: Text = Field(alias="part", min_length=1, description="The part's name: a column of the lookup, or a part of the price.")

    def function(self) -> Run:
        part = self.part
        return lambda found: found.get(part, "")


def text_of(value: Any) -> str:
    """Return a value as a text that reads the same everywhere.

    Raises:
        Refusal: it is a list or an object, which have many texts.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case int():
            return str(value)
        case date() | time() | EndOfDay():
            return value.isoformat()
        case _:
            raise Refusal(ReasonCode.BAD_TEXT, "one text, number, date or time is needed here; `part` takes one of an object")


"""Characters a pattern may look at: collecting all its matches can take the square of the length."""


"""A pattern of which all matches are wanted."""
_MOST_LAYERS = 8
_REFERENCE = re.compile("&[#A-Za-z]")
"""How every character reference begins."""
_BREAKS = re.compile(r"<\s*(?:br\s*/?|/(?:p|div|li|tr|h[1-6]|ul|ol|table|blockquote|section|article))\s*>", re.IGNORECASE)
_LINE_SPACE = re.compile(r"[^\S\n]+")
_BACKSLASHED = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\([nNrt\"'\\/,;])")
_LETTERS = {"n": "\n", "N": "\n", "r": "\r", "t": "\t"}
_LONGEST_MARKDOWN = 50_000
_MANY_LINES = re.compile(r"(?<![^\S\n])[^\S\n]*+\n\s*")


def unescape(text: str) -> str:
    """Undo HTML's character references until nothing changes: exports often escape twice."""
    if "&" not in text:
        return text
    for _ in range(_MOST_LAYERS):
        plain = text.replace("&amp;", "&")  # nearly all there is to undo, found much sooner
        if not _REFERENCE.search(plain):
            return plain
        plain = html.unescape(plain)
        if plain == text:
            return text
        text = plain
    return text


class HtmlUnescape(Step, name="html_unescape", refuses=False):
    """Undo HTML's character references, however many times over they were escaped."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("html_unescape", "Jazz &amp;amp; blues &#8211; live", "Jazz & blues – live"),
    )
    switch: Switch = Field(default=True, alias="html_unescape")

    def function(self) -> Run:
        return unescape


class Unescape(Step, name="unescape", refuses=False):
    """Undo one more way of writing characters that another program would misread.

    `percent`: as in web addresses; `backslash`: as in JSON and calendars. What is no escape stays as it is.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{unescape: percent}", "Caf%C3%A9%20Central 100%", "Café Central 100%"),
        StepExample("{unescape: backslash}", r"Caf\u00e9\, Rua A\nLisboa", "Café, Rua A\nLisboa"),
    )
    form: Literal["percent", "backslash"] = Field(alias="unescape", description="How the characters are written.")

    def function(self) -> Run:
        return unquote if self.form == "percent" else _without_backslashes


class HtmlToText(Step, name="html_to_text", refuses=False):
    """Keep the words of an HTML text: tags, scripts and comments go, paragraphs become lines."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("html_to_text", "<p>Jazz &amp; <b>blues</b></p><p>Live</p><script>x()</script>", "Jazz & blues\nLive"),
        StepExample("html_to_text", "5 < 7 €", "5 < 7 €"),
    )
    switch: Switch = Field(default=True, alias="html_to_text")

    def function(self) -> Run:
        return html_to_text


class MarkdownToText(Step, name="markdown_to_text"):
    """Keep the words of a Markdown text: marks and addresses of links go, paragraphs and list items become lines."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("markdown_to_text", "# Jazz\n\n**Live** at [Blå](https://example.org)\n\n* free", "Jazz\nLive at Blå\nfree"),
        StepExample("markdown_to_text", "5 * 3 _ok", "5 * 3 _ok"),
    )
    switch: Switch = Field(default=True, alias="markdown_to_text")

    def function(self) -> Run:
        from markdown_it import MarkdownIt  # noqa: PLC0415  # sixty modules, for the few feeds that read Markdown

        render = MarkdownIt("commonmark").render

        def markdown_to_text(text: str) -> str:
            if len(text) > _LONGEST_MARKDOWN:
                raise Refusal(ReasonCode.TOO_LONG, f"at most {_LONGEST_MARKDOWN} characters of Markdown can be read")
            return html_to_text(render(text.encode("utf-8", "replace").decode()))

        return markdown_to_text


def _without_backslashes(text: str) -> str:
    return _BACKSLASHED.sub(_written, text)


def _written(escape: re.Match[str]) -> str:
    if escape[1]:
        return escape[1].encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LETTERS.get(escape[2], escape[2])


def html_to_text(text: str) -> str:
    """Keep the words of an HTML text, one line a paragraph."""
    if "<" not in text and "&" not in text:
        return text
    whole = text.encode("utf-8", "replace").decode()  # half a character of an escape is none
    clean = nh3.clean(_BREAKS.sub("\n", whole), tags=set(), strip_comments=True)
    lines = _LINE_SPACE.sub(" ", unescape(clean))
    return _MANY_LINES.sub("\n", lines).strip(SPACES)
