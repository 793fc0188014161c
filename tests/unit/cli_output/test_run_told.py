"""A run as it is watched and told: a bar that ends when the run does, no line without words, bold where it is meant."""

from __future__ import annotations

import io

from rich.console import Console

from pipelines.cli.output.console import Output, Progress
from pipelines.cli.output.drawing import drawn_table
from pipelines.cli.run import watcher_of
from pipelines.cli.run_report import RunReport, show_accounts

NOTHING_SENT = {"rows_per_s": 0.0, "limited": 0, "pauses": 0, "paused_s": 0.0, "most_under_way": 0, "workers": 1}


class Bar(Progress):
    done = 0
    total = 0

    def advance(self, count: int = 1) -> None:
        self.done += count

    def expect(self, total: int) -> None:
        self.total = total


def test_the_bar_is_full_when_every_row_is_read_and_every_row_owed_is_settled() -> None:
    bar = Bar()
    watcher = watcher_of(bar)
    watcher.read(500)
    watcher.read(100)
    watcher.owed(40)
    assert (bar.done, bar.total) == (600, 640)
    watcher.settled(40)
    assert bar.done == bar.total


def test_a_run_that_sends_nothing_has_no_empty_line_where_its_pace_would_stand() -> None:
    out = io.StringIO()
    report = RunReport("town-hall", "1", "done", 0, "", "", publish={"new": 0}, pace=NOTHING_SENT)
    show_accounts(Output(stdout=out), report)
    assert out.getvalue().splitlines() == ["town-hall: done (run 1)", "  new 0"]


def test_of_rows_told_as_paragraphs_only_the_title_is_bold() -> None:
    console = Console(width=40, file=io.StringIO())
    told = drawn_table("town-hall: refused", ["state", "problem"], [["refused", "too long: " + "x" * 60]], console)
    assert "".join(char for place, char in enumerate(str(told)) if told.get_style_at_offset(console, place).bold).strip() == (
        "town-hall: refused"
    )
