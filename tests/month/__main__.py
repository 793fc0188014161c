"""`make month`: a month of schedules played anew, and the table of docs/a-month.md written from it.

How it is played is `play`'s, how the page looks `page`'s.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import date
from time import monotonic

from month.folder import empty_folder
from month.page import table_of, write_table
from month.play import Span, played
from month.story import the_month


def main() -> int:
    """Write the table."""
    span, began = Span(date(2026, 3, 1), 31), monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(empty_folder())
        log = stack.enter_context((folder / "log").open("w", encoding="utf-8"))
        stack.enter_context(redirect_stdout(log))
        stack.enter_context(redirect_stderr(log))
        (folder / "played").mkdir()
        month = stack.enter_context(played(folder / "played", span, the_month(span.first, span.days)))
        table = table_of(month)
        write_table(month)
    sys.stdout.write(f"{table}\n{monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
