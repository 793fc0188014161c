"""Prices as partners write them: what is read, and what is refused because it may mean several things."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.mappings.conftest import Build, Mapper, Row, mapped, mistakes

from mappings.reasons import Refusal
from mappings.steps.numbers import Price, Sign


def read(text: str, sign: Sign = ",", currency: str | None = None) -> tuple[Any, ...]:
    price = Price(price=sign, currency=currency).function()(text)
    amounts = [None if one is None else str(one) for one in (price.get("from"), price.get("to"))]
    return (*amounts, price.get("currency", ""), price["is_free"])


@pytest.mark.parametrize(
    ("text", "sign", "currency", "expected"),
    [
        ("Entrada: 5  euros Descuentos disponibles", ",", None, ("5", "5", "EUR", False)),
        ("2,00 euros", ",", None, ("2.00", "2.00", "EUR", False)),
        ("전석 20,000원", ".", None, ("20000", "20000", "KRW", False)),
        ("R석 30,000원, S석 20,000원", "either", None, ("20000", "30000", "KRW", False)),
        ("€13 + BF", ".", None, ("13", "13", "EUR", False)),
        ("EUR16.00 - EUR18.00", ".", None, ("16.00", "18.00", "EUR", False)),
        ("$5-$10", ".", "USD", ("5", "10", "USD", False)),
        ("Cost: $20 adults, $10 kids", ".", "CAD", ("10", "20", "CAD", False)),
        ("US$ 20", ".", None, ("20", "20", "USD", False)),
        ("5 a 10 reais", ",", None, ("5", "10", "BRL", False)),
        ("R$ 1.250,50", ",", None, ("1250.50", "1250.50", "BRL", False)),
        ("10\u202f000 zł", ",", None, ("10000", "10000", "PLN", False)),
        ("CHF 1'250.–", ".", None, ("1250", "1250", "CHF", False)),
        ("5,- €", ",", None, ("5", "5", "EUR", False)),
        ("ab 10 €", ",", None, ("10", None, "EUR", False)),
        ("do 30 zł", ",", None, (None, "30", "PLN", False)),
        ("120 kr", ",", "SEK", ("120", "120", "SEK", False)),
        ("12,50", ",", "EUR", ("12.50", "12.50", "EUR", False)),
        ("5 - 10", ",", "EUR", ("5", "10", "EUR", False)),
        ("Kids free, adults 10 €", ",", None, ("0", "10", "EUR", False)),
        ("0 €", ",", None, ("0", "0", "EUR", True)),
        ("Entrada libre", ",", None, ("0", "0", "", True)),
        ("WSTĘP WOLNY!", ",", None, ("0", "0", "", True)),
        ("donation", ".", None, (None, None, "", False)),
    ],
)
def test_prices_of_real_files_are_read(text: str, sign: Sign, currency: str | None, expected: tuple[Any, ...]) -> None:
    assert read(text, sign, currency) == expected


@pytest.mark.parametrize(
    ("text", "sign", "currency", "hint"),
    [
        ("$5", ".", None, '"$" may mean USD'),
        ("$5", ".", "EUR", '"$" may mean USD'),
        ("1,250", "either", "EUR", "may be two numbers"),
        ("1.250 €", ".", None, "may be two numbers"),
        ("1.25.00 €", ".", None, "is not a number as prices are written"),
        ("12.50 €", ",", None, "is not a number as prices are written"),
        ("5 € / 10 USD", ",", None, "one currency would be accepted, and here are EUR, USD"),
        ("1 kg de alimento não perecível", ",", "BRL", "no currency stands beside 1"),
        ("TOP 10 shows", ".", None, "no currency stands beside 10"),
        ("5", ",", None, "no currency stands beside 5"),
        ("ask at the door", ",", "EUR", "a price like 12,50 EUR"),
        ("9" * 5000, ",", "EUR", "at most 2000 characters"),
    ],
)
def test_what_may_mean_several_things_is_refused(text: str, sign: Sign, currency: str | None, hint: str) -> None:
    with pytest.raises(Refusal) as refused:
        read(text, sign, currency)
    assert hint in refused.value.hint


AMOUNTS = st.decimals(0, 999_999, places=2, allow_nan=False, allow_infinity=False)


@given(AMOUNTS, st.sampled_from([",", "."]))
def test_an_amount_is_read_as_it_was_written_whichever_sign_is_agreed(amount: Decimal, sign: Sign) -> None:
    group = "." if sign == "," else ","
    written = f"{amount:,.2f}".replace(",", "g").replace(".", sign).replace("g", group)
    assert Decimal(read(f"{written} €", sign)[0]) == amount
    assert Decimal(read(f"EUR {written}", "either")[0]) == amount


@given(st.lists(st.sampled_from(["5", "12,50", "€", "$", "EUR", "-", "a", "free", "x", "1.250", "donation", " ", "%", "ab"])))
def test_no_two_currencies_and_no_order_of_words_end_in_anything_but_a_price_or_a_refusal(words: list[str]) -> None:
    with contextlib.suppress(Refusal):
        least, most, currency, is_free = read(" ".join(words), ",", "EUR")
        assert currency in ("", "EUR")
        assert least is None or most is None or Decimal(least) <= Decimal(most)
        assert not is_free or most in (None, "0")


def test_a_price_in_the_payload_is_an_object_of_numbers(mapper: Mapper, row: Row) -> None:
    event = 'price: {from: PRICE, do: [{price: ",", take: [from, to, currency, is_free]}]}\n'
    event += 'fee: {from: FEE, do: [{number: "."}, {round: 0}]}'
    outcome = mapped(mapper(event=event)(row(PRICE="12,50 € – 15 €", FEE="2.5")))
    found = orjson.loads(outcome.body)
    assert found["price"] == {"from": 12.5, "to": 15, "currency": "EUR", "is_free": False}
    assert found["fee"] == 3


def test_a_currency_that_is_none_is_told_with_the_nearest(build: Build) -> None:
    told = mistakes(build, event='x: {from: P, do: [{price: ",", currency: USDD}]}')
    assert '"USDD" is not the ISO code of a currency, did you mean "USD"' in told
