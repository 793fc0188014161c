"""Compare two payloads path by path: `approxLocation.city.name`, `offers[0].url`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One path, and what stands there in each payload; None also where it does not stand there at all."""

    path: str
    delivered: Any
    now: Any
    is_changed: bool


def payload_diff(delivered: bytes, now: bytes) -> list[FieldDiff]:
    """Return every path of two payloads (JSON), in the order of the alphabet."""
    return list(_diff("", json.loads(delivered), json.loads(now)))


def shown(value: Any) -> str:
    """Return a value as people read it."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _diff(path: str, delivered: Any, now: Any) -> Iterator[FieldDiff]:
    if isinstance(delivered, dict) or isinstance(now, dict):
        if _is_of(dict, delivered, now):
            yield from _in_dicts(path, _or_empty(delivered, {}), _or_empty(now, {}))
            return
    elif (_has_things(delivered) or _has_things(now)) and _is_of(list, delivered, now):
        yield from _in_lists(path, _or_empty(delivered, []), _or_empty(now, []))
        return
    yield FieldDiff(path, _told(delivered), _told(now), is_changed=delivered != now)


def _in_dicts(path: str, delivered: dict[str, Any], now: dict[str, Any]) -> Iterator[FieldDiff]:
    for name in sorted(delivered.keys() | now.keys()):
        yield from _diff(f"{path}.{name}".removeprefix("."), delivered.get(name, _ABSENT), now.get(name, _ABSENT))


def _in_lists(path: str, delivered: list[Any], now: list[Any]) -> Iterator[FieldDiff]:
    for number in range(max(len(delivered), len(now))):
        ours, theirs = (one[number] if number < len(one) else _ABSENT for one in (delivered, now))
        yield from _diff(f"{path}[{number}]", ours, theirs)


def _is_of(kind: type, *values: Any) -> bool:
    return all(value is _ABSENT or isinstance(value, kind) for value in values)


def _has_things(value: Any) -> bool:
    """Whether it is a list of more than plain values, which is looked into; a plain one is shown as a whole."""
    return isinstance(value, list) and any(isinstance(one, dict | list) for one in value)


def _or_empty(value: Any, empty: Any) -> Any:
    return empty if value is _ABSENT else value


def _told(value: Any) -> Any:
    return None if value is _ABSENT else value
