r"""Regular expressions of mapping files: Python's syntax and meaning, matched by RE2 in linear time.

RE2 has fewer constructs than Python, and is limited to ASCII where Python covers Unicode (`\d`, `\w`, `\s`, `\b`, `(?i)`). So
each pattern is translated: a set of characters becomes the ranges that `re` matches in all of Unicode. Matches are those of
`re`; a construct without a translation is a `PatternError`.

Two constructs cannot be spelt in RE2 and change the searched text instead: for `$` before a last line break, every other line
break is replaced by a stand-in, so that RE2's end of line fits; for `\b`, each letter beyond ASCII gets an underscore before
and after it. Stand-ins are private-use characters, U+10F7FE and above. Lone surrogates, which UTF-8 lacks, count as `?`.
"""

from __future__ import annotations

import re
import sys
import warnings
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import re2

_MOST_TIMES = 1_000
_UNDERSCORE, _NEWLINE = "\U0010f7fe", "\U0010f7ff"
_FAR_LETTER = re.compile(r"[^\W\x00-\x7f]|_")
_TIMES = r"(?:[*+?]|\{(?:\d+(?:,\d*)?|,\d*)\})"
_CLASSES = "write the characters that are meant, such as [0-9] or [A-Za-z]"
_LACKING = (
    (r"\(\?=", "a look-ahead, (?=...)", r"find what follows too, and put the part to keep into a group: (\d+)€"),
    (r"\(\?!", "a negative look-ahead, (?!...)", "name the characters that may follow, [^...], or use `not` in a condition"),
    (r"\(\?<=", "a look-behind, (?<=...)", r"find what stands before too, and put the part to keep into a group: €(\d+)"),
    (r"\(\?<!", "a negative look-behind, (?<!...)", "name the characters that may stand before: (?:^|[^...])"),
    (r"\(\?>", "an atomic group, (?>...)", "write a plain group, (?:...): no pattern can take long"),
    (r"\(\?\(", "a conditional group, (?(1)...)", "write both cases out: (?:first|second)"),
    (r"\(\?P=\w+\)", "a back-reference, (?P=name)", "write each case out: \"[^\"]*\"|'[^']*'"),
    (r"\\(?![0-7]{3})[1-9]", r"a back-reference, \1", "write each case out: \"[^\"]*\"|'[^']*'"),
    (_TIMES + r"\+", "a possessive repetition, ++ or *+", "leave the last + out: no pattern can take long"),
    (r"\\Z", r"\Z", r"write \z for the end of the text, or $, which a last line break may follow"),
    (r"\(\?[aimsuxL]*x", "the flag x", "write the pattern without spaces and comments"),
    (r"\(\?[aimsuxL]*[auL]", "the flags a, u and L", _CLASSES),
)
_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<comment>\(\?\#[^)]*\))",
            rf"(?P<lacking>{'|'.join(spelling for spelling, _, _ in _LACKING)})",
            r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDsSwW]|\.)",
            r"(?P<place>\\[AbBz]|[\^$])",
            r"(?P<group>\((?:\?P<\w+>|\?[ims]*(?:-[ims]+)?[:)])?)",
            r"(?P<close>\))",
            r"(?P<either>\|)",
            rf"(?P<times>{_TIMES}\??)",
            r"(?P<one>\\(?:N\{[^}]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{3}|0[0-7]?|.)?|[^\\])",
        )
    ),
    re.DOTALL,
)
_PLAIN_SET = re.compile(r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 ,;:.!?'\"/()])+\]")
_LAST_CASED = 0x20000
_LINE_START, _LINE_END, _END = "(?m:^)", "(?m:(?:$))", "(?m:$)"
_PLACES = {("^", False): r"\A", ("^", True): _LINE_START, ("$", False): _END, ("$", True): _LINE_END}
_NOTHING = r"[^\x{0}-\x{10ffff}]"


class PatternError(ValueError):
    """A pattern that cannot be used, with a hint for another way to write it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """One match: its start and end, its text, and the text of each group (None for a group that did not match)."""

    start: int
    end: int
    groups: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A compiled pattern; create it with `compile_pattern`.

    `prefers_nothing`: it may match the empty text although a longer match begins there, as `a*?` does. After such a match `re`
    continues with its second choice and RE2 with the longest match, so the results would differ.
    """

    python: re.Pattern[str]
    source: str
    matcher: Any
    has_edges: bool
    has_end: bool
    prefers_nothing: bool

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.python.groups

    def finds(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in the text."""
        return self.search(text) is not None

    def search(self, text: str) -> PatternMatch | None:
        """Return the first match."""
        return next(self.finditer(text), None)

    def finditer(self, text: str) -> Iterator[PatternMatch]:
        """Yield the matches from left to right, as `re` does: after an empty match, a longer one may begin at its place."""
        encoded, offsets = self._encoded(text)
        index, was_empty = 0, False
        while index < len(offsets):
            found = self._not_empty(encoded, offsets[index]) if was_empty else None
            if was_empty and found is None:
                index += 1
            if found is None and index < len(offsets):
                found = self.matcher.search(encoded, offsets[index])
            if found is None:
                return
            start, end = found.span()
            index = bisect_left(offsets, start)
            was_empty = start == end and start == offsets[index]
            if start != offsets[index]:  # not between a letter and its added underscores
                continue
            index = bisect_left(offsets, end)
            spans = [found.span(group) for group in range(self.groups + 1)]
            places = [(bisect_left(offsets, first), bisect_left(offsets, last)) if first >= 0 else None for first, last in spans]
            texts = [None if place is None else text[slice(*place)] for place in places]
            yield PatternMatch(bisect_left(offsets, start), index, tuple(texts))

    def replacing(self, template: str) -> Callable[[str], str]:
        r"""Return a function that replaces each match by `template`, in which `\1` and `\g<name>` are groups.

        Raises:
            re.error, IndexError: the template is not valid for this pattern.
        """
        pieces = _template(self.python, template)

        def replaced(text: str) -> str:
            parts, done = [], 0
            for found in self.finditer(text):
                parts.append(text[done : found.start])
                parts += [piece if isinstance(piece, str) else found.groups[piece] or "" for piece in pieces]
                done = found.end
            return "".join((*parts, text[done:]))

        return replaced

    def _encoded(self, text: str) -> tuple[bytes, Sequence[int]]:
        """Return the encoded text to search, and the byte offset of each character and of the end."""
        if self.has_end and "\n" in text:
            text = text[:-1].replace("\n", _NEWLINE) + text[-1]
        if text.isascii() and not (self.has_edges and "_" in text):
            return text.encode(), range(len(text) + 1)
        chars = [char.encode("utf-8", "replace") for char in text]
        if self.has_edges:
            far = {char: b"_%b_" % char.replace("_", _UNDERSCORE).encode() for char in set(_FAR_LETTER.findall(text))}
            chars = [far.get(char, coded) for char, coded in zip(text, chars, strict=True)]
        return b"".join(chars), [0, *accumulate(map(len, chars))]

    def _not_empty(self, encoded: bytes, offset: int) -> Any:
        """Return the longest match at an offset, None if it is empty. RE2 cannot be asked for a shorter one."""
        longest = _matcher(self.source, is_longest=True).match(encoded, offset)
        if longest is None or longest.end() == offset:
            return None
        return self.matcher.fullmatch(encoded, offset, longest.end())


@lru_cache(maxsize=1_000)
def compile_pattern(text: str, *, ignore_case: bool = False) -> CompiledPattern:
    """Compile a pattern.

    Raises:
        PatternError: it is not a regular expression, or RE2 lacks something in it.
    """
    tokens = list(_TOKEN.finditer(text))
    for token in tokens:
        if token["lacking"]:
            _, name, hint = next(lacking for lacking in _LACKING if re.fullmatch(lacking[0], token[0]))
            raise PatternError(f"has {name}, which RE2 lacks: patterns are matched in linear time", hint)
    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):  # "possible nested set": it may change its meaning
            python = re.compile("".join(r"\Z" if token[0] == r"\z" else token[0] for token in tokens))
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        hint = r"a special character that is meant literally needs a backslash before it: \(, \[, \., \+, \?, \*, \|, \$"
        raise PatternError(f"is not a regular expression: {error}", hint) from None
    has_edges = any(token["place"] in (r"\b", r"\B") for token in tokens)
    source = _translated(tokens, "i" if ignore_case else "", has_edges=has_edges)
    has_end = _END in source
    if has_end and (_LINE_END in source or _LINE_START in source):
        raise PatternError("has the flag m, and a $ that the flag does not apply to", r"write \z for the end of the text")
    try:
        matcher = _matcher(source, is_longest=False)
    except re2.error:
        hint = "repeat without counting, * or +, or write smaller numbers"
        raise PatternError("is too large a pattern: its counted repetitions are multiplied", hint) from None
    return CompiledPattern(python, source, matcher, has_edges, has_end, _prefers_nothing(tokens))


@lru_cache(maxsize=1_000)
def _matcher(source: str, *, is_longest: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.longest_match = is_longest
    return re2.compile(source, options)


def _translated(tokens: list[re.Match[str]], flags: str, *, has_edges: bool) -> str:
    """Return the pattern in RE2's syntax. `flags`: those of `ims` that apply at its beginning."""
    parts, around = [], list[str]()
    for token in tokens:
        part = token[0]
        match token.lastgroup:
            case "group":
                around += [] if part.endswith(")") else [flags]
                if part.startswith("(?P"):
                    part = "("
                elif part.startswith("(?"):
                    on, _, off = part[2:-1].partition("-")
                    flags = "".join(sorted({*flags, *on} - {*off}))
                    part = "(?:" if part.endswith(":") else ""
            case "close":
                flags = around.pop()
            case "set":
                part = _set(part, "".join(flag for flag in "is" if flag in flags), has_edges=has_edges)
            case "place":
                part = _PLACES.get((part, "m" in flags), f"(?:{part})")
            case "times":
                if any(int(number) > _MOST_TIMES for number in re.findall("[0-9]+", part)):
                    message = f"has a repetition of more than {_MOST_TIMES:,} times, {part}, which RE2 lacks"
                    raise PatternError(message, "repeat without counting, * or +")
                part = part.replace("{,", "{0,")
            case "one":
                part = _one(part, ignore_case="i" in flags, has_edges=has_edges)
            case "comment":
                part = ""
            case _:
                pass
        parts.append(part)
    return "".join(parts)


def _prefers_nothing(tokens: list[re.Match[str]]) -> bool:
    """Return whether a lazy repetition may match nothing, with nothing after it that makes it match more."""
    if not any(token["times"] and token[0].endswith("?") and token[0] != "?" for token in tokens):
        return False
    has_end = any(token[0] in ("$", r"\z") for token in tokens if token["place"])
    return not has_end and re.fullmatch("".join("(?:)" if token["place"] else token[0] for token in tokens), "") is not None


@lru_cache(maxsize=1_000)
def _one(written: str, *, ignore_case: bool, has_edges: bool) -> str:
    """Translate one character, possibly an escape, to all characters that `re` matches for it."""
    is_escape = len(written) > 1 and written[1].isascii() and written[1].isalnum()
    char = written.encode().decode("unicode_escape") if is_escape else written[-1]
    if not ignore_case or char.lower() == char.upper() == char:
        return _char(char, has_edges=has_edges)
    alike = re.findall(re.escape(char), _unicode()[:_LAST_CASED], re.IGNORECASE)
    return f"(?:{'|'.join(_char(each, has_edges=has_edges) for each in alike)})"


def _char(char: str, *, has_edges: bool) -> str:
    if char == "\n":
        return rf"[\n{_NEWLINE}]"
    if has_edges and _FAR_LETTER.match(char):
        return f"(?:_{char.replace('_', _UNDERSCORE)}_)"
    return char if char.isascii() and char.isalnum() else rf"\x{{{ord(char):x}}}"


@lru_cache(maxsize=1_000)
def _set(written: str, flags: str, *, has_edges: bool) -> str:
    """Translate a character set to the ranges that `re` matches in all of Unicode, unless it is plain ASCII."""
    if _PLAIN_SET.fullmatch(written) and not flags and not (has_edges and written[1] == "^"):
        return written
    one = f"(?{flags}:{written})" if flags else f"(?:{written})"
    found = [(run.start(), run.end() - 1) for run in re.finditer(f"(?:{one})+", _unicode())]
    if not has_edges:
        return _ranges(found)
    plain = [pair for first, last in found for pair in ((first, min(last, ord("_") - 1)), (max(first, ord("_") + 1), last))]
    return f"(?:{_ranges(plain)}|_{_ranges(found)}_)"


def _ranges(found: Iterable[tuple[int, int]]) -> str:
    ranges = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in found if first <= last)
    return f"[{ranges}]" if ranges else _NOTHING


@cache
def _unicode() -> str:
    """Return all characters, each at the index of its code point; a stand-in's index holds the character that it replaces."""
    codes = array("I", range(sys.maxunicode + 1))
    codes[ord(_UNDERSCORE)], codes[ord(_NEWLINE)] = ord("_"), ord("\n")
    return codes.tobytes().decode(f"utf-32-{sys.byteorder[0]}e", "surrogatepass")


def _template(python: re.Pattern[str], template: str) -> list[str | int]:
    """Split a replacement template into texts and group numbers, by expanding it with `re` for a match whose groups are
    markers.
    """
    marks = [chr(0xF0000 + group) for group in range(python.groups + 1)]
    names = {group: f"?P<{name}>" for name, group in python.groupindex.items()}
    groups = "".join(f"({names.get(group, '')}{mark})" for group, mark in enumerate(marks[1:], start=1))
    expanded = re.sub(marks[0] + groups, template, "".join(marks)).replace("".join(marks), marks[0])
    pieces = re.split(f"([{marks[0]}-{marks[-1]}])", expanded)
    return [marks.index(piece) if position % 2 else piece for position, piece in enumerate(pieces)]
