from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.masking import Mask

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


def test_a_short_secret_hides_no_common_words() -> None:
    assert Mask(["key", ""]).hide("the key is lost") == "the key is lost"


def test_what_has_no_secret_stays_as_it_is() -> None:
    assert Mask([]).hide("nothing to hide") == "nothing to hide"
