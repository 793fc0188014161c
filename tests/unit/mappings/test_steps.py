"""Every step keeps what its declaration promises, in short time, whatever the cell holds."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.mappings.conftest import STEP, as_text, cases, check_case, outcome_of, step

from connectors.sources.salesforce.org import one_line
from mappings.compiler.base import Flow, RowState, compile_policy, compile_step, stepped
from mappings.draft.times import find_times
from mappings.lookup_table import parse_table
from mappings.reasons import ReasonCode, Refusal, Repair
from mappings.spec.values import STEPS
from mappings.steps.lookups import ALPHA_3
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.steps.text import fix_mojibake

TABLES = {"categories.csv": parse_table("categories.csv", "path,slug\ncategories/music/jazz,music\nmusic,music\n")}
EXAMPLES = [
    pytest.param(step, shown, id=f"{step.name}-{number}") for step in STEPS.values() for number, shown in enumerate(step.examples)
]


def as_kind(text: Any, kind: Kind, step: type[Step]) -> Any:
    if isinstance(text, tuple):
        return list(text)
    if kind in (Kind.WALL, Kind.MOMENT) or (kind is Kind.ANY and step.name in ("plus", "day_of", "clock_of")):
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    if kind is Kind.NUMBER:
        return Decimal(text)
    if kind is Kind.OBJECT:
        return dict(part.split(": ") for part in text.split(", "))
    return text


def made_by(run: Run, goes_in: Any) -> Any:
    try:
        return run(goes_in)
    except Repair as repaired:
        return repaired.value


@pytest.mark.parametrize(("step", "shown"), EXAMPLES)
def test_every_example_in_a_steps_declaration_is_true(step: type[Step], shown: StepExample) -> None:
    parsed = STEP.validate_python(yaml.load(shown.step, yaml.BaseLoader))
    assert type(parsed) is step
    run = parsed.compile(TABLES)
    goes_in = as_kind(shown.goes_in, step.takes, step)
    if isinstance(shown.comes_out, ReasonCode) and parsed.policy is None:
        with pytest.raises(Refusal) as refused:
            run(goes_in)
        assert refused.value.code is shown.comes_out
        assert refused.value.hint
    elif parsed.policy is None:
        assert as_text(made_by(run, goes_in)) == as_text(shown.comes_out)
    else:
        stage, _ = compile_step(parsed, Flow(step.takes), TABLES, "title")
        value = stepped(lambda _row: goes_in, (stage,), compile_policy(None, ""), "C", "", is_empty_chosen=False)
        assert as_text(value(RowState({}, 0))) == as_text(shown.comes_out)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_step_promises_something_and_shows_it(step: type[Step]) -> None:
    assert (step.__doc__ or "").rstrip().endswith(".")
    assert step.examples
    assert all(field.description for field in step.model_fields.values() if field.alias != step.name or field.is_required())


ODD = st.one_of(
    st.text(st.characters(), max_size=40),
    st.sampled_from(
        ["€13 + BF", "1.250,50", "https://ex.org:99999/", "//[::1", "a@b", "%zz%", "\\ud800x", "R$ -5 a 10", "USA", "&#x110000;"]
    ),
)


@pytest.mark.parametrize("shown", [param.values[1] for param in EXAMPLES], ids=[param.id for param in EXAMPLES])
@given(text=ODD)
@settings(max_examples=25)
def test_no_text_makes_a_step_do_anything_but_give_a_value_or_refuse(shown: StepExample, text: str) -> None:
    step = STEP.validate_python(yaml.load(shown.step, yaml.BaseLoader))
    kind = Kind.TEXT if step.takes in (Kind.TEXT, Kind.LIST) else Kind.ANY
    for value, is_list in ((text, False), ([text, "Jazz"], True)):
        stage, _ = compile_step(step, Flow(kind, is_list=is_list), TABLES, "title")
        with contextlib.suppress(Refusal):
            stage.run(value)


LENGTH = 49_000
"""Below the 50,000 characters beyond which Markdown is refused unread."""
PARTS = (*"a1<([ \n\t\u00a0", "&amp;", "1,", "http://", "a.", "a@", "Ã©", "10:00 ", "- ", "€1", "**a", "\\u0041")


@contextlib.contextmanager
def in_short_time() -> Iterator[None]:
    """Fail where the body takes 5 s of the processor, ten times what a step needs.

    A search that looks at the rest of the cell once for each character takes longer, most of them ten seconds.
    """

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("step", [step for step in STEPS.values() if step.takes is Kind.TEXT], ids=lambda step: step.name)
def test_no_step_takes_long_over_a_long_cell(step: type[Step]) -> None:
    for shown in step.examples:
        run = STEP.validate_python(yaml.load(shown.step, yaml.BaseLoader)).compile(TABLES)
        for part in PARTS:
            with in_short_time(), contextlib.suppress(Refusal, Repair):
                run(part * (LENGTH // len(part)) + "x")


@pytest.mark.parametrize("cell", ["19:00" + " " * LENGTH + "x", "19:00 " * LENGTH])
def test_no_guess_of_times_takes_long_over_a_long_cell(cell: str) -> None:
    with in_short_time():
        seen = find_times(["19:00-20:00"] * 9 + [cell])
    assert seen is not None


@pytest.mark.parametrize("part", ["<style", "<script", "<"])
def test_no_error_page_of_salesforce_takes_long(part: str) -> None:
    with in_short_time():
        assert one_line("<p>maintenance</p>" + part * LENGTH).startswith("maintenance")


TEXTS = cases(r"""
{regex_replace: '\bao\b', with: x} | São ao => São x
{regex_extract: '\d+'} | ٣ 3 => 3
{regex_extract: '\pN+'} | ٣ => ٣
{regex_extract: '\w+'} | Água => gua
{regex_extract: '(?i)straße \pL+'} | STRAẞE Élan => STRAẞE Élan
{regex_replace: '(?P<a>\w+) (\pL+)', with: '\2, \g<a>é\\'} | Ana Água => Água, Anaé\
{regex_replace: '^|,', with: -} | ,a,b => -,a-b
{regex_replace: '^\s*-|\s*$', with: ''} |  - a   =>  a
{regex_extract: 'a\z'} | aba => a
fix_mojibake | «CAFÉ» ~ “MANHÔ ~ Niño Ã ~ naïve ~ CafÃ© in Łódź => SAME
zone | Europe/Kiev => Europe/Kyiv | Europe/Stockholm => SAME | america/new york => America/New_York | Japan => Asia/Tokyo
zone | India Standard Time => Asia/Kolkata | Etc/UTC ~ GMT => UTC
zone | EST ~ CET ~ UTC+2 ~ +02:00 ~ CEST ~ Lisbon ~ EMPTY => ! not_a_zone
zone | W. Europe Standard Time ~ "W. Europe Standard Time" => Europe/Berlin
zone | (UTC+08:00) Beijing, Chongqing, Hong Kong, Urumqi => Asia/Shanghai | (UTC-03:30) Newfoundland => America/St_Johns
zone | Eastern Daylight Time => America/New_York
zone | (UTC+01:00) Amsterdam, Berlin, Bern, Rom, Stockholm, Wien => Europe/Berlin
zone | (GMT+01.00) Sarajevo/Warsaw/Zagreb ~ Central European Standard Time => Europe/Warsaw
zone | (UTC-05:00) Eastern Time (US & Canada) ~ (GMT -0500) Eastern Time (US & Canada) => America/New_York
zone | (UTC) Dublin, Edinburgh, Lisbon, London ~ (GMT) Greenwich Mean Time : Dublin, Edinburgh, Lisbon, London => Europe/London
zone | tzone://Microsoft/Utc ~ (UTC) Coordinated Universal Time => UTC | (UTC+02:00) Athens, Bucharest => Europe/Bucharest
zone | /freeassociation.sourceforge.net/Tzfile/Europe/Berlin ~ /mozilla.org/20050126_1/Europe/Berlin => Europe/Berlin
zone | posix/Europe/Vaduz => Europe/Vaduz | /x.org/America/Argentina/Buenos_Aires => America/Argentina/Buenos_Aires
zone | (UTC-06:00) Amsterdam, Berlin ~ (UTC+01:00) Amsterdam, London ~ (UTC-07:00) Chihuahua, La Paz => ! places
zone | (UTC-03:00) Somewhere => ! places | GMT +0100 (Standard) / GMT +0200 (Daylight) => ! an offset alone
zone | Warszawa ~ Europe/Warszawa ~ Warsaw, Poland ~ Varsovie ~ Warsow => ! did you mean "Europe/Warsaw"?
zone | tzone://Microsoft/Custom ~ /Europe/CUSTOM ~ Europe/München ~ Western/Central Europe ~ S => ! expected an IANA zone such as
zone | custom_America/New_York => ! did you mean "America/New_York"? | Europe/Cuba => ! not_a_zone
zone | Europa/Praga => ! did you mean "Europe/Prague"?
{country: [en]} | Kosovo ~ xk => XK | Côte d'Ivoire ~ ivory coast => CI | niger => NE | Germny => ! did you mean "Germany"?
{country: [en, de, pt, local]} | schweiz ~ suisse ~ ch ~ che => CH | de ~ deu => DE | pt ~ prt => PT | gb ~ gbr => GB
{country: [en, de, pt, local]} | ci ~ civ => CI | kr ~ kor => KR | us ~ usa => US | ie ~ irl => IE
{country: [xx]} | x => ! "xx" is not a language
""")


NUMBERS = cases("""
{number: "."} | 1\u200b250.50 ~ １２５０．５０ ~ 1\u2009250.50 ~ \u202d1,250.50\u202c ~ 1\u202f250.5\ufe0f0 => 1250.50
{number: "."} | 5\u00b2 => ! not_a_number
{price: ",", take: [amount, currency]} | １２\uff0c５０\u00a0EUR ~ \u200e12,50\u2009€ => amount: 12.50, currency: EUR
trim | １２\u200b５０ => SAME
""")


@pytest.mark.parametrize(("written", "cell", "becomes"), [*TEXTS, *NUMBERS])
def test_a_step_gives_what_is_wanted_or_says_what_would_help(written: str, cell: str, becomes: str) -> None:
    check_case(written, cell, cell if becomes == "SAME" else becomes)


def test_a_dollar_sign_is_the_end_of_the_text_and_with_the_flag_m_of_each_line() -> None:
    assert outcome_of("{regex_replace: ' - .*$', with: ''}", "a - b\nc - d") == "a - b\nc"
    assert outcome_of("{regex_replace: ' - .*$', with: ''}", "a - b\n") == "a - b\n"
    assert outcome_of("{regex_replace: '(?m) - .*$', with: ''}", "a - b\nc - d\n") == "a\nc\n"


@pytest.mark.parametrize("text", ["Café — “Jazz”", "Łódź, Cracóvia", "日本語 한국어", "St. Patrick’s"])
def test_mojibake_is_undone_however_often_it_happened(text: str) -> None:
    broken = text
    for _ in range(2):
        broken = "".join(
            chr(byte) if 0x80 <= byte <= 0x9F and byte in b"\x81\x8d\x8f\x90\x9d" else bytes([byte]).decode("cp1252")
            for byte in broken.encode()
        )
        assert fix_mojibake(broken) == text


def test_the_countries_are_those_of_iso_3166_and_kosovo() -> None:
    assert len(ALPHA_3) == len(set(ALPHA_3.values())) == 249 + 1


PRICES = cases("""
, | Entrada: 5  euros Descuentos disponibles ~ 5,- € => 5 5 EUR | 2,00 euros => 2.00 2.00 EUR | 10\u202f000 zł => 10000 10000 PLN
, | 5 a 10 reais => 5 10 BRL | R$ 1.250,50 => 1250.50 1250.50 BRL | ab 10 € => 10 None EUR | do 30 zł => None 30 PLN
, | Kids free, adults 10 € => 0 10 EUR | 0 € => 0 0 EUR free | Entrada libre ~ WSTĘP WOLNY! => 0 0 free
, | 12.50 € => ! is not a number as prices are written | 5 € / 10 USD => ! expected one currency, not EUR, USD
, | 5 => ! 5 has no currency
. | 전석 20,000원 => 20000 20000 KRW | €13 + BF => 13 13 EUR | EUR16.00 - EUR18.00 => 16.00 18.00 EUR | US$ 20 => 20 20 USD
. | CHF 1'250.– => 1250 1250 CHF | donation => None None | $5 => ! "$" may mean USD | 1.250 € => ! may be two numbers
. | 1.25.00 € => ! is not a number as prices are written | TOP 10 shows => ! 10 has no currency
either | R석 30,000원, S석 20,000원 => 20000 30000 KRW
., currency: USD | $5-$10 => 5 10 USD
., currency: CAD | Cost: $20 adults, $10 kids => 10 20 CAD
., currency: EUR | $5 => ! "$" may mean USD
,, currency: SEK | 120 kr => 120 120 SEK
,, currency: EUR | 12,50 => 12.50 12.50 EUR | 5 - 10 => 5 10 EUR | ask at the door => ! a price like 12,50 EUR
,, currency: BRL | 1 kg de alimento não perecível => ! 1 has no currency
either, currency: EUR | 1,250 => ! may be two numbers
""")


def price_of(agreed: str, text: str) -> str:
    """Return the least and the most of a price, its currency, and whether it is free."""
    sign, _, currency = agreed.partition(", currency: ")
    found = step(f'{{price: "{sign}"{currency and f", currency: {currency}"}}}')(text)
    parts = (found.get("from"), found.get("to"), found.get("currency", ""), "free" if found["is_free"] else "")
    return " ".join(str(part) for part in parts if part != "")


@pytest.mark.parametrize(("agreed", "text", "expected"), PRICES)
def test_prices_are_read_or_refused_where_they_may_mean_several_things(agreed: str, text: str, expected: str) -> None:
    if not expected.startswith("! "):
        assert price_of(agreed, text) == expected
        return
    with pytest.raises(Refusal) as refused:
        price_of(agreed, text)
    assert expected[2:] in refused.value.hint


def test_a_price_of_a_page_of_text_is_refused() -> None:
    assert "at most 2000 characters" in outcome_of('{price: ",", currency: EUR}', "9" * 5000)


@given(st.decimals(0, 999_999, places=2, allow_nan=False, allow_infinity=False), st.sampled_from([",", "."]))
def test_an_amount_is_read_as_it_was_written_whichever_sign_is_agreed(amount: Decimal, sign: str) -> None:
    group = "." if sign == "," else ","
    written = f"{amount:,.2f}".replace(",", "g").replace(".", sign).replace("g", group)
    for agreed, text in ((sign, f"{written} €"), ("either", f"EUR {written}")):
        assert Decimal(price_of(agreed, text).split()[0]) == amount
