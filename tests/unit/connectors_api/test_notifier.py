"""Messages over real sockets: what arrives, what is said where it does not, and no secret in either."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from lookalikes.notices import Inbox, closed_port, post_office, webhook
from pydantic import SecretStr

from connectors.masking import Mask
from connectors.notify import Message, Tone, deliver_over, find_fault

TOKEN = "tok-8Kx2vLm9Zq4RtW"
MESSAGE = Message("eventsync: agenda: paused", "agenda\n- the service <b>answered</b> 503 & no more", Tone.WARNING)


@pytest.fixture
def hook() -> Iterator[Inbox]:
    with webhook() as inbox:
        yield inbox


def _send(address: str, message: Message = MESSAGE, secret: str = TOKEN) -> str:
    return deliver_over(Mask([secret]))(SecretStr(address), message)


@pytest.mark.parametrize(("tone", "kind"), [(Tone.ALARM, "failure"), (Tone.WARNING, "warning"), (Tone.RELIEF, "success")])
def test_a_webhook_gets_the_words_as_they_are(hook: Inbox, tone: Tone, kind: str) -> None:
    address = hook.address("a/hook")
    assert find_fault(SecretStr(address), Mask()) == ""
    assert hook.told == []
    assert _send(address, Message(MESSAGE.title, MESSAGE.body, tone)) == ""
    (told,) = hook.told
    assert (told.path, told.title, told.body, told.tone) == ("/a/hook", MESSAGE.title, MESSAGE.body, kind)


def test_a_mail_arrives() -> None:
    with post_office() as post:
        assert _send(f"mailto://127.0.0.1:{post.port}/?from=sync@example.org&to=agenda@example.org&mode=insecure") == ""
    (told,) = post.told
    assert (told.path, told.title) == ("agenda@example.org", MESSAGE.title)
    assert "503" in told.body


@pytest.mark.parametrize("status", [302, 401, 404, 429, 500, 503, None], ids=lambda status: str(status or "no server"))
def test_what_is_turned_away_is_a_problem_without_the_secrets_in_its_address(
    hook: Inbox, status: int | None, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = status or 200
    port = hook.port if status else closed_port()
    problem = _send(f"json://user:{TOKEN}@127.0.0.1:{port}/{TOKEN}?+X-Key={TOKEN}")
    assert (bool(problem), TOKEN in problem, hook.told) == (True, False, [])
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


@pytest.mark.parametrize("address", ["nosuch://host", f"slack://{TOKEN}", "json://"])
def test_an_address_that_means_nothing_is_a_problem_that_does_not_repeat_it(address: str) -> None:
    problem = _send(address)
    assert (bool(problem), TOKEN in problem) == (True, False)
    assert find_fault(SecretStr(address), Mask([TOKEN]))


def test_a_secret_in_the_words_does_not_leave_and_the_librarys_own_log_is_left_as_it_was(hook: Inbox) -> None:
    log = logging.getLogger("apprise")
    before = (log.propagate, list(log.handlers), log.level)
    _send(hook.address(), Message(f"key {TOKEN}", f"it said {TOKEN}", Tone.ALARM))
    (told,) = hook.told
    assert (told.title, told.body, told.tone) == ("key [key]", "it said [key]", "failure")
    assert (log.propagate, list(log.handlers), log.level) == before
