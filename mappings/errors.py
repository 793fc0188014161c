"""The root of every error eventsync raises, sorted by what to do next. Leaves live in the room that raises them.

SyncError                 .hint: what would help
├── ConfigError           wrong before we start: fix the file, the environment or the command; never retried
│   └── MappingFileError  every problem of one mapping file, each with line and column
├── TransientError        another attempt may clear it; .retry_after_s where the other side named one
└── PermanentError        another attempt cannot clear it; a person must act elsewhere (key, scope, sharing)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class SyncError(Exception):
    """What we tried and what came back (`str(error)`), and what would help (`hint`)."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(SyncError):
    """The configuration, the command or a file of ours is wrong; nothing was read or sent."""


class TransientError(SyncError):
    """Another attempt may clear it. `retry_after_s`: seconds the other side asked us to wait, if it did."""

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class PermanentError(SyncError):
    """Another attempt cannot clear it: a person must change something outside of this run."""


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
    """One mapping file with all of its problems, in the order of the file; `warnings` are what is merely unwise in it."""

    def __init__(self, path: Path, problems: tuple[FileProblem, ...], warnings: tuple[FileProblem, ...] = ()) -> None:
        super().__init__("\n".join(map(str, problems)), hint=f"mend {path.name}, then run `eventsync check`")
        self.path = path
        self.problems = problems
        self.warnings = warnings
