"""What docs/notifications.md says of who is told, and of what, is so."""

from __future__ import annotations

import re
from pathlib import Path

from connectors.notify import Message
from mappings.row_key import FeedName
from pipelines.notifications.causes import Cause, Concern
from pipelines.notifications.notices import MOST_AN_HOUR, MOST_FEEDS, FeedNews, message_of
from pipelines.orchestration.automation import LOST_AFTER, NOTICES_SENSOR
from pipelines.settings import read_channels

PAGE = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text("utf-8")
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _cells(heading: str) -> list[list[str]]:
    """The rows of the table that begins with a heading."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _title(cause: Cause) -> str:
    message: Message = message_of([FeedNews(FeedName("f"), "", (Concern(cause, "told", ""),))], "")
    return message.title.removeprefix("eventsync: f: ")


def test_every_cause_stands_there_with_its_title_in_the_order_of_their_gravity() -> None:
    assert [(cells[0].strip("`"), cells[1]) for cells in _cells("cause")] == [(cause.value, _title(cause)) for cause in Cause]


def test_the_file_of_addresses_tells_whom_the_table_says(tmp_path: Path) -> None:
    (tmp_path / "notify").write_text(BLOCKS[0], "utf-8")
    problems: list[str] = []
    channels = read_channels({"EVENTSYNC_NOTIFY_FILE": "notify"}, tmp_path, problems)
    assert problems == []
    for owner, notify, told in _cells("`owner`"):
        names = re.findall(r"`([^`]+)`", told)
        wanted = [word for word in notify.strip("`").split(", ") if word]
        assert [one.name for one in channels.recipients(owner.strip("`"), wanted)] == names


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"At most {MOST_AN_HOUR} messages an hour" in PAGE
    assert f"Of more than {MOST_FEEDS} feeds" in PAGE
    assert "three minutes" in PAGE
    assert LOST_AFTER == 3
    assert f"`{NOTICES_SENSOR}`" in PAGE
