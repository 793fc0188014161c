"""A text file in pieces of any length, for readers to whom lines mean nothing.

Lines are `text_file`'s.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from connectors.sources.errors import BadSourceError, EmptySourceError, as_bad_source
from connectors.sources.opened_file import OpenedFile
from connectors.sources.text_file import NOT_DECODED, chosen_encoding, refuse_other_kinds

PIECE = 64 * 1024
"""Characters."""


class TextPieces:
    """The text of an open file, once, without byte order marks at its start; undecodable bytes as surrogates."""

    def __init__(self, file: OpenedFile, encodings: Sequence[str]) -> None:
        self.name = file.name
        self._encoding = chosen_encoding(file.stream, encodings)
        self._text = io.TextIOWrapper(file.stream, encoding=self._encoding, errors="surrogateescape", newline="")
        self._is_begun = False

    def read(self, size: int = PIECE) -> str:
        """Return the next characters, "" at the end.

        Raises:
            EmptySourceError: there is nothing at all.
            BadSourceError: the file is of another kind, or of another encoding from here on.
            SourceUnavailableError: the disk failed.
        """
        with as_bad_source(lambda: self.name, f"the file is not {self._encoding} throughout", hint=NOT_DECODED):
            piece = self._text.read(size)
        return piece if self._is_begun else self._first(piece)

    def release(self) -> None:
        """Let go of the file, so that it can be read again."""
        self._text.detach()

    def _first(self, piece: str) -> str:
        self._is_begun = True
        if not piece.strip("\ufeff \t\r\n"):
            raise EmptySourceError(self.name, "the file is empty", hint="ask the partner for the whole file")
        piece = piece.lstrip("\ufeff")
        refuse_other_kinds(piece, self.name)
        if "\0" in piece[:100]:
            hint = "if it is a text file, it is UTF-16: set `source.encoding` to utf-16-le or utf-16-be"
            raise BadSourceError(self.name, f"this is not {self._encoding} text: it begins with NUL bytes", hint=hint)
        return piece
