from __future__ import annotations

import json
from datetime import timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import EPOCH

from connectors.event_api.answers import HttpAnswer, interpret
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
    "5, soon": None,
    "-1, 5": None,
    ",": None,
    "": None,
    "-1": None,
    "-0.5": None,
    "+5": None,
    "5 s": None,
    "5;10": None,
    "Sun, 01 Mar 2026 25:61:00 GMT": None,
    "1 000": None,
    "1e3": None,
    "inf": None,
    "nan": None,
    "٣": None,
    "soon": None,
    "1 minute": None,
    "Mon, 99 Foo 2026": None,
    "0x10": None,
}


@pytest.mark.parametrize(("told", "seconds"), FORMS.items(), ids=[repr(form)[:24] for form in FORMS])
def test_each_form_of_retry_after_is_read_or_left(told: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": told}, EPOCH) == seconds


def test_an_absent_retry_after_asks_for_nothing() -> None:
    assert retry_after_s({}, EPOCH) is None


def test_a_date_is_measured_from_the_answers_own_date() -> None:
    theirs = EPOCH + timedelta(hours=3)
    headers = {
        "date": format_datetime(theirs, usegmt=True),
        "retry-after": format_datetime(theirs + timedelta(seconds=30), usegmt=True),
    }
    assert retry_after_s(headers, EPOCH) == 30


def test_without_a_clock_of_ours_a_date_is_worth_what_the_answers_own_date_makes_of_it() -> None:
    headers = {"retry-after": IN_A_MINUTE}
    assert retry_after_s(headers) is None
    assert retry_after_s({**headers, "date": format_datetime(EPOCH, usegmt=True)}) == 60
    assert retry_after_s({"retry-after": "7"}) == 7


@given(st.text())
def test_no_text_is_too_strange_for_retry_after(text: str) -> None:
    wait = retry_after_s({"retry-after": text, "date": text}, EPOCH)
    assert wait is None or 0 <= wait <= YEAR_S


@given(
    st.integers(200, 599),
    st.binary(max_size=200) | st.sampled_from([b"null", b"[]", b'{"error":1}', b'{"error":{"code":null}}', b'{"doc":{}}']),
)
def test_no_body_is_too_strange_to_be_interpreted(status: int, body: bytes) -> None:
    assert interpret(HttpAnswer(status, {}, body), EPOCH).answer.status == status


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda kids: (
            st.lists(kids)
            | st.dictionaries(st.sampled_from(["error", "code", "message", "requestId", "details", "field", "issue"]), kids)
        ),
    )
)
def test_no_envelope_is_too_strange_to_be_interpreted(envelope: object) -> None:
    assert interpret(HttpAnswer(400, {}, json.dumps(envelope).encode()), EPOCH).answer.status == 400
