r"""Regular expressions of mapping files: RE2 as its documentation says, matched in linear time.

`\d`, `\w`, `\s` and `\b` are ASCII, and `$` is the end of the text. Lone surrogates, which UTF-8 lacks, count as `?`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

_CASES = "write each case out: \"[^\"]*\"|'[^']*'"
_CHARACTER = r"write the character itself, or its number in hexadecimal, \x{e9}"
_LACKING = {
    "(?=": ("a look-ahead, (?=...)", r"find what follows too, and put the part to keep into a group: (\d+)€"),
    "(?!": ("a negative look-ahead, (?!...)", "name the characters that may follow, [^...], or use `not` in a condition"),
    "(?<=": ("a look-behind, (?<=...)", r"find what stands before too, and put the part to keep into a group: €(\d+)"),
    "(?<!": ("a negative look-behind, (?<!...)", "name the characters that may stand before: (?:^|[^...])"),
    "(?>": ("an atomic group, (?>...)", "write a plain group, (?:...): no pattern can take long"),
    "(?P": ("a back-reference, (?P=name)", _CASES),
    "(?#": ("a comment, (?#...)", "write it into a line of its own, behind a #"),
    "(?x": ("the flag x", "write the pattern without spaces and comments"),
    r"\Z": (r"\Z", r"write $ or \z for the end of the text"),
    **{rf"\{letter}": (rf"\{letter}", _CHARACTER) for letter in "uUN"},
    **{rf"\{digit}": (rf"a back-reference, \{digit}", _CASES) for digit in range(1, 10)},
}
"""What Python's `re` has and RE2 lacks, as RE2's error spells it: its name, and what to write instead."""
_PLACE = re.compile(r"\\(?:([0-9]{1,2})|g<(\w+)>|\\)")


class PatternError(ValueError):
    """A pattern or a replacement that cannot be used, with a hint for another way to write it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A compiled pattern; create it with `compile_pattern`."""

    matcher: Any

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.matcher.groups)

    def finds(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in the text."""
        return self.search(text) is not None

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        return next(self.finditer(text), None)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches from left to right; google-re2 gives them the methods of those of `re`."""
        yield from self.matcher.finditer(_encodable(text))

    def replacing(self, template: str) -> Callable[[str], str]:
        r"""Return a function that replaces each match by `template`: `\1`, `\g<1>` and `\g<name>` are groups, `\\` a backslash.

        Not by google-re2's `expand`, which garbles characters beyond ASCII.

        Raises:
            PatternError: the template is not valid for this pattern.
        """
        hint = r"\1 is what the first group of the pattern found, \\ a backslash; write \n and \t in double quotes"
        if "\\" in _PLACE.sub("", template):
            raise PatternError("a backslash stands before a character that is not a group", hint)
        known = {*map(str, range(self.groups + 1)), *self.matcher.groupindex}
        for place in _PLACE.finditer(template):
            if (name := place[1] or place[2]) and name not in known:
                raise PatternError(f"there is no group {name}", hint)

        def expanded(found: re.Match[str]) -> str:
            def text_at(place: re.Match[str]) -> str:
                name = place[1] or place[2] or ""
                return found[int(name) if name.isdecimal() else name] or "" if name else "\\"

            return _PLACE.sub(text_at, template)

        def replaced(text: str) -> str:
            parts, done = [], 0
            for found in self.finditer(text):
                parts += [text[done : found.start()], expanded(found)]
                done = found.end()
            return "".join((*parts, text[done:]))

        return replaced


@lru_cache(maxsize=1_000)
def compile_pattern(text: str, *, ignore_case: bool = False) -> CompiledPattern:
    """Compile a pattern.

    Raises:
        PatternError: RE2 cannot read it, or lacks something in it.
    """
    options = re2.Options()
    options.log_errors, options.case_sensitive = False, not ignore_case
    try:
        return CompiledPattern(re2.compile(text, options))
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
    except UnicodeEncodeError as error:
        reason = str(error)
    if reason.startswith(("invalid repetition size", "pattern too large")):
        hint = "repeat without counting, * or +, or write smaller numbers: those of nested repetitions are multiplied"
        raise PatternError("has counted repetitions of more than 1,000 times, which RE2 lacks", hint)
    name, hint = _LACKING.get(reason.rpartition(": ")[2], ("", ""))
    if name:
        raise PatternError(f"has {name}, which RE2 lacks: patterns are matched in linear time", hint)
    hint = r"a special character that is meant literally needs a backslash before it: \(, \[, \., \+, \?, \*, \|, \$"
    raise PatternError(f"is not a regular expression (RE2): {reason}", hint)


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
