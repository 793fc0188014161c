"""What is sent to a sandbox with these switches, one after the other, and what it answers: keys, scopes, limits, images."""

from __future__ import annotations

import httpx
import pytest
from unit.sandbox.bench import PNG, READER, STARTER, Bench, Event, Open

EVENTS = {
    "event": {},
    "other": {"title": "other"},
    "untitled": {"title": ""},
    "barred": {"channelId": 105},
    "unknown": {"channelId": 999},
    "open": {"status": ...},
}
IMAGES = {"image": PNG, "nothing": b"", "svg": b"<svg/>", "sound": b"RIFF....WAVE", "pdf": b"%PDF-1.7"}
STORIES = """
| event@k event@k untitled@l untitled@l event@l | 201 =201 400:title =400 409:conflict | 1
| event@k other@k | 201 409:conflict | 1
idempotency_other_body=replay | event@k other@k | 201 =201 | 1
| event@k starter:event@k image@k | 201 201 201 | 2
idempotency=refuse | event@k event@k | 201 409:conflict | 1
idempotency=ignore | event@k event@k | 201 201 | 2
idempotency_memory_s=60 | event@k +59 event@k +1 other@k other@k | 201 =201 201 =201 | 2
stored_refusals=none | untitled@k event@k barred@l event@l | 400 201 403 201 | 2
stored_refusals=validation | untitled@k event@k barred@l event@l | 400 409 403 201 | 1
stored_refusals=all | untitled@k event@k barred@l event@l | 400 409 403 409 | 0
stored_refusals=all rate_events=1/m | wrong:event@k event event@k +60 event@k | 401:invalid_api_key 201 429:rate_limited 201 | 2
key_max_chars=9 | event@123456789 event@1234567890 event@_ | 201 400:Idempotency-Key 400:Idempotency-Key | 1
default_status=draft | open | 201 | draft
default_status=published | open | 201 | published
channel_denied=forbidden | barred | 403:forbidden | 0
channel_denied=insufficient_scope | barred | 403:insufficient_scope | 0
channel_denied=not_found | barred | 404:not_found | 0
channel_unknown=not_found | unknown | 404:not_found | 0
channel_unknown=forbidden | unknown | 403:forbidden | 0
channel_unknown=invalid_request | unknown | 400:invalid_request | 0
missing_scope=insufficient_scope | reader:event | 403:insufficient_scope | 0
missing_scope=forbidden | reader:event reader:channels | 403:forbidden 200 | 0
list_scope=events:read | starter:events | 403:insufficient_scope | 0
media_scope=media:create | starter:image | 403:insufficient_scope | 0
media_scope=events:create | starter:image | 201 | 0
media_scope=none | starter:image | 201 | 0
classifications_auth=ignored | wrong:classifications | 200 | 0
classifications_auth=required | wrong:classifications reader:classifications | 401:invalid_api_key 200 | 0
classifications_auth=rejected | reader:classifications | 400:invalid_request | 0
rate_events=2/s rate_burst=3 | event event event event +0.5 event event | 201 201 201 429~1 201 429~1 | 4
rate_events=2/m rate_kind=window | +59 event event event +1 event event event | 201 201 429~1 201 201 429~60 | 4
rate_events=2/m rate_kind=sliding | event +30 event event +30 event event | 201 201 429~30 201 429~30 | 3
rate_events=1/m rate_lists=1/m | event event starter:event channels channels | 201 429:rate_limited 201 200 429:rate_limited | 2
rate_lists=1/m | classifications classifications events events | 200 429 200 429 | 0
rate_events=24/m rate_burst=1 retry_after=seconds | event event | 201 429~3 | 1
rate_events=24/m rate_burst=1 retry_after=fraction | event event | 201 429~2.500 | 1
rate_events=24/m rate_burst=1 retry_after=absent | event event | 201 429~ | 1
rate_events=24/m rate_burst=1 retry_after=garbage | event event | 201 429~soon | 1
rate_events=24/m rate_burst=1 retry_after=negative | event event | 201 429~-1 | 1
rate_events=24/m rate_burst=1 retry_after=absurd | event event | 201 429~31536000 | 1
rate_events=24/m rate_burst=1 retry_after=several | event event | 201 429~0,3 | 1
| image file-image svg file-svg nothing file-nothing sound file-sound pdf file-pdf | 201 201 400 400 400 400 400 400 400 400 | 0
media_encoding=raw | image file-image | 201 415 | 0
media_encoding=multipart | image file-image | 415 201 | 0
max_image_bytes=10 | image file-image | 413 413 | 0
media_field=image | image-image file-image | 201 400:image | 0
"""


def _answer(bench: Bench, event: Event, step: str) -> httpx.Response:
    """Answer to `who:what@key`; an image may be `field-image`, in a form."""
    who, _, rest = step.rpartition(":")
    what, _, key = rest.partition("@")
    secret, field = {"reader": READER, "starter": STARTER}.get(who, who), what.rpartition("-")[0]
    if what in EVENTS:
        payload = {name: value for name, value in (event | EVENTS[what]).items() if value is not ...}
        return bench.create(payload, key=key.replace("_", " "), secret=secret)
    if field:
        return bench.form(IMAGES[what.rpartition("-")[2]], field)
    return bench.upload(IMAGES[what], secret=secret, key=key) if what in IMAGES else bench.get(what, secret)


@pytest.mark.parametrize("story", STORIES.strip().splitlines())
def test_what_is_answered_is_a_switch(open_bench: Open, event: Event, story: str) -> None:
    words, steps, expected, kept = (part.strip() for part in story.split("|"))
    bench, answers = open_bench(*words.split()), list[httpx.Response]()
    for step in steps.split():
        if step.startswith("+"):
            bench.clock.now += float(step)
        else:
            answers.append(_answer(bench, event, step))
    for number, (answer, word) in enumerate(zip(answers, expected.split(), strict=True)):
        status, colon, code = word.removeprefix("=").partition(":")
        status, tilde, wait = status.partition("~")
        assert answer.status_code == int(status), (number, answer.text)
        assert not word.startswith("=") or answer.content == answers[number - 1].content
        if colon:
            error = answer.json()["error"]
            assert code in (error["code"], error.get("details", {}).get("field"))
        assert not tilde or ",".join(answer.headers.get_list("retry-after")) == wait
    assert kept in (str(len(bench.stored())), *(one["status"] for one in bench.stored()))
