"""What headers say of a pause or a limit is read in all its spellings, and left where it makes no sense."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import EPOCH

from connectors.event_api.answers import HttpAnswer, RateHint, interpret, rate_hint
from connectors.retry import retry_after_s

YEAR_S = 366 * 86_400
IN_A_MINUTE = format_datetime(EPOCH + timedelta(seconds=60), usegmt=True)
FORMS = {
    "0": 0.0,
    "7": 7.0,
    " 7 ": 7.0,
    "0.25": 0.25,
    ".5": 0.5,
    "3.": 3.0,
    IN_A_MINUTE: 60.0,
    format_datetime(EPOCH - timedelta(days=1), usegmt=True): 0.0,
    "Sun, 01 Mar 2026 13:01:00 +0100": 60.0,
    "9" * 400: YEAR_S,
    "Fri, 31 Dec 9999 23:59:59 GMT": YEAR_S,
    "Sunday, 01-Mar-26 12:01:00 GMT": 60.0,
    "Sun Mar  1 12:01:00 2026": 60.0,
    "5, 10": 10.0,
    "5, 5": 5.0,
    **dict.fromkeys(["5, soon", "-1, 5", ",", "", "-1", "-0.5", "+5", "5 s", "5;10", "1 000", "1e3", "inf", "nan", "٣", "0x10"]),
    **dict.fromkeys(["soon", "1 minute", "Mon, 99 Foo 2026", "Sun, 01 Mar 2026 25:61:00 GMT"]),
}


@pytest.mark.parametrize(("text", "seconds"), FORMS.items(), ids=[repr(form)[:24] for form in FORMS])
def test_each_form_of_retry_after_is_read_or_left(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}, EPOCH) == seconds


@pytest.mark.parametrize("ours", [EPOCH, None])
def test_a_date_is_measured_from_the_answers_own_date(ours: datetime | None) -> None:
    theirs = EPOCH + timedelta(hours=3)
    headers = {"date": format_datetime(theirs, usegmt=True), "retry-after": format_datetime(theirs + timedelta(seconds=30))}
    assert retry_after_s(headers, ours) == 30


def test_without_any_clock_a_date_says_nothing() -> None:
    assert retry_after_s({}) is retry_after_s({"retry-after": IN_A_MINUTE}) is None
    assert retry_after_s({"retry-after": "7"}) == 7


@given(st.text())
def test_no_text_is_too_strange_for_retry_after(text: str) -> None:
    wait = retry_after_s({"retry-after": text, "date": text}, EPOCH)
    assert wait is None or 0 <= wait <= YEAR_S


MEMBERS = st.sampled_from(["error", "code", "message", "requestId", "details", "field", "issue"])
ATOMS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(ATOMS, lambda kids: st.lists(kids) | st.dictionaries(MEMBERS, kids)))
def test_no_envelope_is_too_strange_to_be_interpreted(envelope: object) -> None:
    assert interpret(HttpAnswer(400, {}, json.dumps(envelope).encode()), EPOCH).answer.status == 400


NOW_S = EPOCH.timestamp()


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ({"x-ratelimit-limit": "20", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "30"}, RateHint(20, None, 30, 0)),
        ({"x-ratelimit-limit": "20", "x-ratelimit-reset": f"{NOW_S + 30:.0f}"}, RateHint(20, None, 30, 0)),
        ({"x-ratelimit-limit": "20", "x-ratelimit-reset": f"{(NOW_S + 30) * 1000:.0f}"}, RateHint(20, None, 30, 0)),
        ({"x-rate-limit-limit": "20", "x-rate-limit-reset": "30"}, RateHint(20, None, 30, 0)),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "0", "ratelimit-reset": "12"},
            RateHint(100, 60, 12, 12),
        ),
        ({"ratelimit-policy": '"default";q=20;w=1', "ratelimit": '"default";r=3;t=1'}, RateHint(20, 1, 1, 0)),
        (
            {"ratelimit-policy": '"burst";q=100;w=1, "day";q=3600;w=3600', "ratelimit": '"burst";r=9;t=1, "day";r=5;t=90'},
            RateHint(3600, 3600, 90, 0),
        ),
        ({"ratelimit-policy": '"default";q=20;w=1'}, RateHint(20, 1, None, 0)),
        ({"ratelimit": '"default";r=3;t=1'}, None),
        ({"x-ratelimit-limit": "plenty", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-limit": "0", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-limit": "-5", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-limit": "20", "x-ratelimit-remaining": "21", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-limit": "20"}, None),
        ({"x-ratelimit-limit": "20", "x-ratelimit-reset": "999999"}, None),
        ({"retry-after": "3"}, None),
    ],
)
def test_every_common_spelling_is_read_and_what_makes_no_sense_is_left(headers: dict[str, str], read: RateHint | None) -> None:
    assert rate_hint(headers, EPOCH) == read


NAMES = ["ratelimit", "ratelimit-policy", "ratelimit-limit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]


@given(st.dictionaries(st.sampled_from(NAMES), st.text('0123456789;,=qwrt."-² ', max_size=20)))
def test_garbage_never_raises(headers: dict[str, str]) -> None:
    hint = rate_hint(headers, EPOCH)
    assert hint is None or hint.limit > 0


@pytest.mark.parametrize(("retry_after", "is_heeded"), [("1", False), ("30", True), ("31", True), ("soon", True), ("-1", True)])
def test_a_limit_used_up_for_longer_than_the_pause_asked_for_is_not_believed(retry_after: str, *, is_heeded: bool) -> None:
    headers = {"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "30", "retry-after": retry_after}
    assert (rate_hint(headers, EPOCH) is not None) is is_heeded
