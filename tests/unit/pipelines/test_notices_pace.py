"""How often one recipient is told: a few times an hour, less and less where nobody listens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.notifications.notices import MOST_AN_HOUR, SentMessages, sent_messages_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def _at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_so_many_messages_go_in_an_hour_and_no_more() -> None:
    post = SentMessages()
    for minute in range(MOST_AN_HOUR):
        assert post.may_go(_at(minute))
        post = post.with_accepted(_at(minute))
    assert not post.may_go(_at(59))
    assert post.may_go(_at(60))
    assert not post.with_accepted(_at(60)).may_go(_at(60.5))


def test_who_cannot_be_reached_is_left_alone_for_longer_and_longer() -> None:
    post, waits = SentMessages(), []
    for _ in range(6):
        post = post.with_failure(NOON)
        waits.append(next(minute for minute in range(200) if post.may_go(_at(minute))))
    assert waits == [5, 10, 20, 40, 60, 60]
    assert post.with_accepted(NOON).may_go(NOON)


def test_messages_of_a_clock_that_went_wrong_do_not_count() -> None:
    post = SentMessages(tuple(_at(60 * 24 * 365) for _ in range(MOST_AN_HOUR)))
    assert post.may_go(NOON)


@pytest.mark.parametrize(
    "post",
    [
        SentMessages(),
        SentMessages().with_failure(NOON),
        SentMessages().with_accepted(NOON).with_accepted(_at(1)).with_failure(_at(2)).with_failure(_at(8)),
    ],
)
def test_it_is_read_as_it_was_written(post: SentMessages) -> None:
    assert sent_messages_of(str(post)) == post


@pytest.mark.parametrize("text", [None, "", "no json", "[]", '{"accepted": [3]}', '{"failed_at": "yesterday"}'])
def test_what_cannot_be_read_holds_nobody_back(text: str | None) -> None:
    assert sent_messages_of(text).may_go(NOON)


def test_a_failure_of_a_clock_that_was_set_back_since_holds_nothing_up() -> None:
    post = SentMessages().with_failure(_at(60 * 24))
    assert post.may_go(NOON)
