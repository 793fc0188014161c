"""`make month`: a month of schedules played anew, and the table of docs/a-month.md written from it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import date
from pathlib import Path
from time import monotonic

from empty_books import folder_in_memory
from month.page import HEAD, TABLE, days_of
from month.play import Span, played
from month.story import the_month


def main() -> int:
    """Write the table."""
    span, began = Span(date(2026, 3, 1), 31), monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(folder_in_memory()))
        log = stack.enter_context((folder / "log").open("w", encoding="utf-8"))
        stack.enter_context(redirect_stdout(log))
        stack.enter_context(redirect_stderr(log))
        (folder / "played").mkdir()
        month = stack.enter_context(played(folder / "played", span, the_month(span.first, span.days)))
        table = TABLE.write(HEAD, days_of(month))
    sys.stdout.write(f"{table}\n{monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
