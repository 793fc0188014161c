"""No secret is shown in any of its spellings, nor in messages over real sockets, nor in what a source says of a service."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lookalikes.notices import Inbox, closed_port, webhook
from pydantic import SecretStr
from unit.connectors_sources.reading import assert_untold

from connectors.masking import Mask
from connectors.notify import Message, Tone, deliver_over, find_fault
from connectors.sources.contract import Ending, Reading, SourceRefusedError, SourceUnavailableError
from connectors.sources.feed_source import MaskedSource
from mappings.outcome import RowLocation, SourceRow

KEY = 'sk-live/"odd"\\key%2B+=&<tail>-Zq9w'
ECHOES = {
    "as it is": lambda key: f"Bearer {key}",
    "in JSON": lambda key: json.dumps({"message": key}),
    "in an address": lambda key: f"https://x.example/?key={quote(key, safe='')}",
    "in a page": lambda key: f"<p>{html.escape(key)}</p>",
    "as a user's password": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "as hexadecimal digits": lambda key: key.encode().hex(),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
@given(
    before=st.text(max_size=4),
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60) | st.just(KEY),
)
def test_a_secret_is_hidden_in_each_spelling(echo: object, before: str, key: str) -> None:
    text = before + echo(key)  # type: ignore[operator]
    hidden = Mask([key]).hide(text)
    assert echo(key) not in hidden  # type: ignore[operator]
    assert key not in hidden
    assert Mask([key]).hide_bytes(text.encode("utf-8", "surrogatepass")) == hidden.encode("utf-8", "surrogatepass")


@given(before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_a_secret_in_the_middle_of_an_encoded_text_is_hidden_but_for_its_ends(before: bytes, after: bytes) -> None:
    hidden = Mask([KEY]).hide(base64.b64encode(before + KEY.encode() + after).decode())
    assert "[key]" in hidden
    kept = base64.b64decode(hidden.partition("[key]")[0] + "AAAA"[: -len(hidden.partition("[key]")[0]) % 4] or "AAAA")
    assert KEY[:4].encode() not in kept


SHORT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=7)
ALONE = {
    **ECHOES,
    "after a line break in JSON": lambda key: json.dumps({"message": f"no\n{key}\n"}),
    "in the query of an encoded address": lambda key: quote(f"https://x.example/?key={key}&a", safe=""),
    "in a path": lambda key: f"https://partner.example/feeds/{key}/agenda.csv",
    "in brackets": lambda key: f"({key})",
    "in Python's words": lambda key: repr({"password": key}),
    "in an address as it is": lambda key: f"sftp://user:{key}@host/",
    "as a password in a header": lambda key: "Basic " + base64.b64encode(f"user:{key}".encode()).decode(),
}


@pytest.mark.parametrize("echo", ALONE.values(), ids=ALONE.keys())
@given(before=st.sampled_from(["", " ", "\n", "é ", "x="]), key=SHORT | st.sampled_from(["s3cr3t", "p%w/d", "_abc_"]))
def test_a_short_secret_is_hidden_where_it_stands_alone(echo: object, before: str, key: str) -> None:
    assume(key not in "[key]")
    text = before + echo(key)  # type: ignore[operator]
    hidden = Mask([key]).hide(text)
    assert "[key]" in hidden
    assert echo(key) not in hidden  # type: ignore[operator]
    assert Mask([key]).hide_bytes(text.encode()) == hidden.encode()


@given(
    key=st.text(st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=7),
    around=st.tuples(st.sampled_from("qZ7_"), st.sampled_from("qZ7_")),
)
def test_a_short_secret_inside_a_word_stays(key: str, around: tuple[str, str]) -> None:
    word = key.join(around)
    assert Mask([key]).hide(f"{word} {word}.") == f"{word} {word}."


@pytest.mark.parametrize("text", ["password=key", "'key'", '"key"', "user:key@host", "password: key", "?token=key&a=b"])
def test_a_secret_of_three_characters_is_hidden_where_a_value_stands(text: str) -> None:
    assert Mask(["key"]).hide(text) == text.replace("key", "[key]")


@pytest.mark.parametrize(("secrets", "text"), [(["key", "a", ""], "the key is a key, and lost"), ([], "nothing to hide")])
def test_a_secret_of_three_characters_hides_no_common_words_and_none_hides_nothing(secrets: list[str], text: str) -> None:
    assert Mask(secrets).hide(text) == text


TOKEN = "tok-8Kx2vLm9Zq4RtW"
MESSAGE = Message("eventsync: agenda: paused", "agenda\n- the service <b>answered</b> 503 & no more", Tone.WARNING)


@pytest.fixture
def hook() -> Iterator[Inbox]:
    with webhook() as inbox:
        yield inbox


def _send(address: str, message: Message = MESSAGE) -> str:
    return deliver_over(Mask([TOKEN]))(SecretStr(address), message)


@pytest.mark.parametrize(("tone", "kind"), [(Tone.ALARM, "failure"), (Tone.WARNING, "warning"), (Tone.RELIEF, "success")])
def test_a_webhook_gets_the_words_as_they_are(hook: Inbox, tone: Tone, kind: str) -> None:
    address = hook.address("a/hook")
    assert find_fault(SecretStr(address), Mask()) == ""
    assert hook.told == []
    assert _send(address, Message(MESSAGE.title, MESSAGE.body, tone)) == ""
    (told,) = hook.told
    assert (told.path, told.title, told.body, told.tone) == ("/a/hook", MESSAGE.title, MESSAGE.body, kind)


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


CAUSE = ValueError(f"GET /query with Bearer {TOKEN}")


def read_whole(at: str = "", error: Exception | None = None, cause: Exception = CAUSE) -> Ending:
    """Read a source that learns a token as it opens, repeats it in its notices, and fails where it is asked to."""
    mask = Mask()

    def step(when: str) -> None:
        if when == at:
            raise error or SourceUnavailableError(f"answered: {TOKEN} expired", hint=f"log in as {TOKEN}") from cause

    def rows() -> Iterator[SourceRow]:
        yield SourceRow(RowLocation("T", 1), {"id": "1"})
        step("row")

    def ending() -> Ending:
        step("ending")
        return Ending(notices=(f"session {TOKEN} ended",))

    @contextmanager
    def read() -> Iterator[Reading]:
        mask.learn(TOKEN)
        step("open")
        yield Reading(("id",), rows(), ending=ending)

    with MaskedSource(read, mask).read() as reading:
        assert [row.cells["id"] for row in reading.rows] == ["1"]
        return reading.ending()


@pytest.mark.parametrize("at", ["open", "row", "ending"])
def test_an_error_tells_no_secret_nor_do_its_causes(at: str) -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        read_whole(at)
    assert_untold(caught.value, TOKEN)
    assert "answered: [key] expired" in str(caught.value)


def test_notices_tell_no_secret() -> None:
    assert read_whole().notices == ("session [key] ended",)


def test_an_innocent_cause_stays() -> None:
    with pytest.raises(SourceRefusedError) as caught:
        read_whole("open", SourceRefusedError("no such sheet"), cause=OSError("closed"))
    assert str(caught.value.__cause__) == "closed"
