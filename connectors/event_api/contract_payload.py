"""Holding what a feed can send against the page's schema of an event, field by field.

What the worker relies upon beside the payload (paths, headers, answers) is `contract_worker`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rapidfuzz import fuzz, process

from connectors.event_api.contract_schema import Node, Schema, SchemaReader
from connectors.event_api.drift import Drift, Severity
from mappings.patterns import PatternError, compile_pattern
from mappings.spec.values import Outgoing

_SHOWN = 3
_ALL_ROWS = "every row would be refused"
_LONGEST_PATTERN = 200
_MOST_TEXTS = 200
_FORMS_OF: dict[str, frozenset[str]] = {
    "startAt": frozenset({"date-time", "datetime", "iso8601", "iso-8601"}),
    "endAt": frozenset({"date-time", "datetime", "iso8601", "iso-8601"}),
    "offers[].url": frozenset({"uri", "url", "iri", "uri-reference", "iri-reference"}),
}
"""The formats that the page may name for a field, as we write it."""
_NO_TEXTS = frozenset({"date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "byte", "duration", "int64", "unix-time"})
"""Formats that free text does not have."""


class PayloadComparison:
    """Holds payloads against schemas that `reader` reads; `where` begins every line."""

    def __init__(self, reader: SchemaReader, where: str) -> None:
        self._reader = reader
        self._where = where

    def differences(self, sent: Outgoing, node: Node) -> list[Drift]:
        """Return what the page would refuse of a payload, the gravest of each field first."""
        return self._value(sent, self._reader.read(node), "")

    def _value(self, sent: Outgoing, schema: Schema, path: str) -> list[Drift]:
        """Hold one value against its schema; of alternatives, the one that fits best counts."""
        found = [list(self._against(sent, choice, path)) for choice in schema.choices]
        best = min(found, key=lambda drifts: (sum(one.severity == "error" for one in drifts), len(drifts)))
        return best if sent.is_always else [_of_some_rows(one) for one in best]

    def _against(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if schema.is_deprecated:
            yield self._drift(
                "warning", path, "it is deprecated", "we send it", "it may be refused one day", "ask what follows it"
            )
        if not _may_be(sent.kind, schema.types):
            types = " or ".join(sorted(schema.types or ()))
            yield self._wrong(path, f"it is of the type {types}", f"we send a value of the type {sent.kind}")
            return
        yield from self._limits(sent, schema, path)
        if sent.kind == "object":
            yield from self._fields(sent, schema, path)
        if sent.kind == "array" and sent.item is not None:
            yield from self._value(sent.item, self._reader.read(schema.items), f"{path}[]")

    def _fields(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        prefix = f"{path}." if path else ""
        known = {name: self._reader.read(node) for name, node in schema.properties.items()}
        unsent = [name for name in known if name not in sent.fields]
        unsent = [name for name in unsent if name in schema.required] or unsent
        for name in sorted(schema.required):
            if not known.get(name, schema).is_read_only or name not in known:
                yield from self._needed(sent, name, prefix, _near(name, [one for one in sent.fields if one not in known]))
        for name, one in sent.fields.items():
            if name in known:
                yield from self._value(one, known[name], f"{prefix}{name}")
            elif known and not schema.is_open:
                drift = self._unknown(schema, f"{prefix}{name}", _near(name, unsent))
                yield drift if one.is_always else _of_some_rows(drift)

    def _needed(self, sent: Outgoing, name: str, prefix: str, near: str) -> Iterator[Drift]:
        path, one = f"{prefix}{name}", sent.fields.get(name)
        said = f"`{path}` is required"
        if one is None:
            hint = f"perhaps `{prefix}{near}` was renamed to it: send that as `{path}`" if near else f"map `{path}` under `event`"
            fields = (path, *([f"{prefix}{near}"] if near else []))
            yield Drift("error", self._where, said, "this mapping never sends it", _ALL_ROWS, hint, fields)
        elif not one.is_always:
            hint = f"give `{path}` a value for such rows (`on_empty: {{use: ...}}`), or let them be rejected (`on_empty: reject`)"
            ours = "this mapping leaves it out where a row has none"
            yield Drift("warning", self._where, said, ours, "rows without it would be refused", hint, (path,))

    def _unknown(self, schema: Schema, path: str, near: str) -> Drift:
        help_ = f"perhaps it is called `{near}` now: map that instead" if near else "take it out of the mapping if it is gone"
        if schema.is_closed:
            page = f"there is no field `{path}`, and others are not allowed"
            return Drift("error", self._where, page, "this mapping sends it", _ALL_ROWS, help_, (path,))
        page = f"there is no field `{path}`"
        return Drift("warning", self._where, page, "this mapping sends it", "it may be ignored", help_, (path,))

    def _limits(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        yield from self._values(sent, schema, path)
        yield from self._length(sent, schema, path)
        yield from self._form(sent, schema, path)
        yield from self._patterns(sent, schema, path)
        yield from self._items(sent, schema, path)
        if schema.is_read_only:
            yield self._drift("warning", path, "it is read only", "we send it", "it may be ignored or refused", "take it out")

    def _values(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if schema.allowed is None:
            return
        said = f"it is one of {_some(schema.allowed)}"
        if sent.values is None:
            yield self._some_rows(path, said, "we send what the rows hold", "check the values with a `map` that knows these")
            return
        wrong = sorted(str(one) for one in sent.values if one not in schema.allowed)
        if wrong and len(wrong) == len(sent.values):
            yield self._wrong(path, said, f"we send {_some(wrong)}")
        elif wrong:
            yield self._some_rows(path, said, f"we may send {_some(wrong)}", "map these to values that are allowed")

    def _length(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        most = schema.most_chars
        if most is not None and sent.kind == "string" and (sent.longest is None or sent.longest > most):
            shortest = min((len(str(one)) for one in sent.values or ()), default=len(sent.sample))
            said = f"it has at most {most} characters"
            if shortest > most:
                yield self._wrong(path, said, f"ours has {shortest}")
            else:
                ours = "this mapping does not bound it" if sent.longest is None else f"ours may have {sent.longest}"
                yield self._some_rows(path, said, ours, f"shorten it with the step `{{truncate: {most}}}`")
        texts = [str(one) for one in sent.values or ()]
        if schema.least_chars > 1 and any(len(text) < schema.least_chars for text in texts):
            short = _some(sorted(text for text in texts if len(text) < schema.least_chars))
            said = f"it has at least {schema.least_chars} characters"
            yield self._some_rows(path, said, f"we may send {short}", "use longer values")

    def _form(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if sent.kind != "string" or not schema.form:
            return
        said, ours = f"it has the format {schema.form}", f"we write it like {sent.sample}"
        if path in _FORMS_OF and schema.form not in _FORMS_OF[path] and schema.form in _NO_TEXTS | {"uri", "url"}:
            yield self._wrong(path, said, ours)
        elif path not in _FORMS_OF and schema.form in _NO_TEXTS:
            yield self._some_rows(path, said, "we send a text", "check that the mapping writes it so")

    def _patterns(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        texts = sorted(map(str, sent.values))[:_MOST_TEXTS] if sent.values else [sent.sample] if sent.sample else []
        for pattern in schema.patterns if sent.kind == "string" else ():
            wrong = sorted(text for text in texts if not _fits(pattern, text))
            said = f"it looks like {pattern[:80]}"
            if wrong and len(wrong) == len(texts):
                yield self._wrong(path, said, f"we write it like {_some(wrong)}")
            elif wrong:
                yield self._some_rows(path, said, f"we may send {_some(wrong)}", "map these to texts that fit")
            elif not texts:
                yield self._some_rows(path, said, "we send what the rows hold", "check the values with a step")

    def _items(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if sent.kind != "array":
            return
        if schema.least_items > 1:
            said = f"it has at least {schema.least_items} items"
            yield self._some_rows(path, said, "we send one or more", "give every row so many")
        if schema.most_items is not None:
            said = f"it has at most {schema.most_items} items"
            yield self._some_rows(path, said, "we send as many as a row has", "leave some out")

    def _wrong(self, path: str, page: str, ours: str) -> Drift:
        """Every row that has the field is refused: all rows, where it is always sent."""
        helps = f"send `{path}` as the page describes it" if path else "see the page"
        return self._drift("error", path, page, ours, _ALL_ROWS, helps)

    def _some_rows(self, path: str, page: str, ours: str, helps: str) -> Drift:
        return self._drift("warning", path, page, ours, "rows that do not fit would be refused", helps)

    def _drift(self, severity: Severity, path: str, page: str, ours: str, breaks: str, helps: str) -> Drift:
        fields = (path,) if path else ()
        return Drift(severity, f"{self._where}: {path}" if path else self._where, page, ours, breaks, helps, fields)


def _of_some_rows(drift: Drift) -> Drift:
    """Return the same difference of a field that not every row has."""
    is_grave = drift.severity == "error"
    return replace(drift, severity="warning", breaks="rows that have it would be refused") if is_grave else drift


def _may_be(kind: str | None, types: frozenset[str] | None) -> bool:
    return kind is None or types is None or kind in types or (kind == "integer" and "number" in types)


def _fits(pattern: str, text: str) -> bool:
    """Whether a text fits the page's pattern; one that cannot be tried is taken to fit."""
    try:
        return len(pattern) > _LONGEST_PATTERN or compile_pattern(pattern).finds(text)
    except PatternError:  # patterns of another dialect are common here
        return True


def _near(name: str, others: Sequence[str]) -> str:
    """Return the one of the others that may be the same field under another name, "" if none is likely to be."""
    found = process.extractOne(name, others, scorer=fuzz.WRatio, score_cutoff=60, processor=str.casefold)
    if found is not None:
        return found[0]
    return others[0] if len(others) == 1 else ""


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(f"`{str(value)[:60]}`" for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown
