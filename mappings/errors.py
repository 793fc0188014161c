"""The root of all errors of eventsync, sorted by what to do next; more specific errors are defined where they are raised.

SyncError                 .hint: what to do
├── ConfigError           a wrong file, environment or command; never retried
│   └── MappingFileError  every problem of one mapping file, each with line and column
├── TransientError        another attempt may succeed; .retry_after_s if the other side gave a time
└── PermanentError        another attempt cannot succeed; a person must change something (key, scope, sharing)
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error numbers of a disk without room, of a quota and of a limit of file sizes; no later attempt helps by itself."""


class SyncError(Exception):
    """An expected failure: `str(error)` says what happened, `hint` what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(SyncError):
    """The configuration, the command or a local file is wrong; nothing was read or sent."""


class TransientError(SyncError):
    """A failure that another attempt may clear. `retry_after_s`: seconds that the other side asked to wait, or None."""

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class PermanentError(SyncError):
    """A failure that a person must clear outside of this run, such as a missing right."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One mistake in a mapping file. `line` and `column` count from 1; `snippet` is that line's text."""

    path: Path
    line: int
    column: int
    message: str
    hint: str = ""
    snippet: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}: {self.message}"
        return f"{where}, {self.hint}" if self.hint else where


class MappingFileError(ConfigError):
    """All problems of one mapping file, in the order of the file; `warnings`: what is allowed but unwise."""

    def __init__(self, path: Path, problems: tuple[FileProblem, ...], warnings: tuple[FileProblem, ...] = ()) -> None:
        super().__init__("\n".join(map(str, problems)), hint=f"correct {path.name}, then run `eventsync check`")
        self.path = path
        self.problems = problems
        self.warnings = warnings
