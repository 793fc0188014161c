"""Switches as people write and read them: `name=value` parsed strictly, and the reference table of the documentation.

What a switch means stands beside it in `switches`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from dataclasses import Field, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sandbox.switches import PERIODS_S, Bounds, Rate, Switches


class SwitchError(ValueError):
    """Switches that cannot be set, all of them at once: `problems` has one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def switched(words: Iterable[str], base: Switches | None = None) -> Switches:
    """`base` (the defaults if None) with each `name=value` of `words` applied, the last of a name winning.

    Raises SwitchError with every word that names no switch or no value of it.
    """
    pairs = [_halves(word) for word in words]
    return changed(
        {name: value for name, _, value in pairs}, base or Switches(), bare=[name for name, sign, _ in pairs if not sign]
    )


def changed(values: Mapping[str, object], base: Switches, *, bare: Iterable[str] = ()) -> Switches:
    """`base` with `values` applied, each written as on the command line; `bare` are names that came without a value.

    Raises SwitchError with every problem.
    """
    problems: list[str] = []
    settings: dict[str, Any] = {}
    for name, value in values.items():
        try:
            settings[name] = _parsed(name, None if name in set(bare) else str(value))
        except ValueError as problem:
            problems.append(str(problem))
    if problems:
        raise SwitchError(tuple(problems))
    return replace(base, **settings)


def spelt(switches: Switches) -> dict[str, str]:
    """Every switch's name and its value, as `switched` would read them back."""
    return {one.name: _written(_value_of(switches, one)) for one in _switch_fields().values()}


def reference() -> str:
    """The table of the documentation: one line of Markdown per switch, in the order of the class."""
    lines = ["| switch | values (default first) | what it decides |", "|---|---|---|"]
    lines += [f"| `{one.name}` | {_values_of(one)} | {one.metadata['says']} |" for one in _switch_fields().values()]
    return "\n".join(lines)


def _halves(word: str) -> tuple[str, str, str]:
    name, sign, value = word.partition("=")
    return name.strip(), sign, value.strip()


@cache
def _switch_fields() -> dict[str, Field[Any]]:
    return {one.name: one for one in dataclasses.fields(Switches)}


@cache
def _type_of(name: str) -> Any:
    return get_type_hints(Switches)[name]


def _value_of(switches: Switches, one: Field[Any]) -> object:
    return getattr(switches, one.name)


def _parsed(name: str, value: str | None) -> object:
    known = _switch_fields()
    if name not in known:
        raise ValueError(f"no switch is called `{name}`{_nearest(name, known)}")
    if value is None:
        raise ValueError(f"`{name}` has no value: write {name}=VALUE with {_accepted(name)}")
    kind = _type_of(name)
    if bounds := known[name].metadata.get("bounds"):
        return _whole(name, value, bounds)
    if get_origin(kind) is tuple:
        return tuple(_one_of(name, word.strip(), get_args(get_args(kind)[0])) for word in value.split("+"))
    if isinstance(kind, types.UnionType):
        return _rate(name, value)
    return _one_of(name, value, get_args(kind))


def _one_of(name: str, value: str, words: tuple[Any, ...]) -> object:
    for word in words:
        if str(word) == value:
            return word
    raise ValueError(f"`{name}` cannot be `{value}`: it is {_accepted(name)}{_nearest(value, map(str, words))}")


def _whole(name: str, value: str, bounds: Bounds) -> int:
    if value.isascii() and value.isdigit() and bounds.least <= int(value) <= bounds.most:
        return int(value)
    raise ValueError(f"`{name}` cannot be `{value}`: it is {_accepted(name)}")


def _rate(name: str, value: str) -> Rate | None:
    if value == "off":
        return None
    count, _, period = value.partition("/")
    match period:
        case "s" | "m" | "h" if count.isascii() and count.isdigit() and int(count) > 0:
            return Rate(int(count), period)
        case _:
            raise ValueError(f"`{name}` cannot be `{value}`: it is {_accepted(name)}")


def _accepted(name: str) -> str:
    kind = _type_of(name)
    if bounds := _switch_fields()[name].metadata.get("bounds"):
        return f"a whole number from {bounds.least} to {bounds.most}"
    if get_origin(kind) is tuple:
        return f"one or several of {_listed(get_args(get_args(kind)[0]))}, joined by `+`"
    if get_origin(kind) is Literal:
        return f"one of {_listed(get_args(kind))}"
    return f"`off` or a rate such as {', '.join(f'`50/{period}`' for period in PERIODS_S)}"


def _values_of(one: Field[Any]) -> str:
    default, kind = _written(one.default), _type_of(one.name)
    if get_origin(kind) is Literal:
        return _listed((default, *(word for word in get_args(kind) if str(word) != default)))
    return f"`{default}`; {_accepted(one.name)}"


def _listed(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _written(value: object) -> str:
    match value:
        case None:
            return "off"
        case tuple():
            return "+".join(value)
        case _:
            return str(value)


def _nearest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else ""
