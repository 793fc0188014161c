"""Switches as words: strict parsing, and a reference that says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.switches import Rate, SwitchError, Switches, format_switches, parse_switches

DOCS = Path(__file__).parents[3] / "docs" / "sandbox.md"


def test_words_become_switches() -> None:
    read = parse_switches(["success_status=200", "rate_events=50/s", "faults=reset+html", "latency_ms = 20", "rate_lists=off"])
    assert read == Switches(success_status=200, rate_events=Rate(50), faults=("reset", "html"), latency_ms=20)


def test_every_switch_can_be_read_back_as_it_is_written() -> None:
    for switches in (Switches(), Switches(rate_media=Rate(5, "h"), faults=("empty", "reset"), retry_after="date")):
        assert parse_switches(f"{name}={value}" for name, value in format_switches(switches).items()) == switches


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("latency=20", "did you mean `latency_ms`?"),
        ("latency_ms", "has no value"),
        *((f"latency_ms={text}", "a whole number from 0") for text in ("", "-1", "1.5", "٣")),
        ("fault_per_mille=1001", "from 0 to 1000"),
        ("success_status=202", "one of `200`, `201`"),
        ("retry_after=second", "did you mean `seconds`?"),
        *((f"rate_events={text}", "`off` or a rate") for text in ("50", "0/s", "5/d")),
        ("faults=reset+rset", "did you mean `reset`?"),
        ("faults=", "one or several"),
    ],
)
def test_a_word_that_is_no_switch_is_refused_with_what_would_be(word: str, says: str) -> None:
    with pytest.raises(SwitchError) as refused:
        parse_switches([word])
    assert says in str(refused.value)


def test_all_wrong_words_are_named_at_once() -> None:
    with pytest.raises(SwitchError) as refused:
        parse_switches(["a=1", "latency_ms=20", "b=2"])
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(("name", "default"), format_switches(Switches()).items())
def test_the_documentation_has_each_switch_with_its_default_and_what_it_decides(name: str, default: str) -> None:
    (line,) = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` | `{default}`")]
    assert line.endswith(f" | {Switches.model_fields[name].description} |")
