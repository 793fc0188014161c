"""Contract check: the service's OpenAPI page compared with what a feed can send and with what the worker relies upon.

jsonschema validates single documents. Here the question is what all rows of a feed may send (of any value, or of a few; always,
or in some rows), and the page is a stranger's: references, alternatives and patterns are followed in bounded time only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz, process

from connectors.event_api.contract_page import ContractPage
from connectors.event_api.contract_schema import Drift, Node, Operation, Operations, Schema, SchemaReader, Severity
from connectors.event_api.lists import PAGE_SIZE
from connectors.event_api.media import LONGEST_KEY_END
from connectors.event_api.wire import API_PREFIX
from mappings.outgoing import Outgoing
from mappings.patterns import PatternError, compile_pattern
from mappings.row_key import FeedName, RowKey, idempotency_key

"""error: every row would be refused, or no answer understood. warning: some rows, or none yet."""
SAMPLE_KEY = idempotency_key("default", FeedName("feed"), RowKey("row"))
"""An idempotency key as we send it: all of them have its length and alphabet."""
_SENT_HEADERS = frozenset({"authorization", "content-type", "accept", "user-agent", "idempotency-key", "accept-encoding"})
_STEPS = re.compile(r"[^.\[\]]+|\[\]")


@dataclass(frozen=True, slots=True)
class Use:
    """One operation that we call: what we read of its answer (`docs[].id`, and of which type), and what we send."""

    method: str
    path: str
    reads: tuple[tuple[str, str], ...] = ()
    queries: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The operation as people call it."""
        return f"{self.method} {self.path}"


CREATE = Use("POST", "/events", (("doc.id", "integer"),))
CHANNELS = Use("GET", "/channels", (("docs[].id", "integer"), ("docs[].slug", "string")), frozenset({"page", "limit"}))
CLASSIFICATIONS = Use("GET", "/classifications", (("version", "string"), ("docs[].slug", "string")))
UPLOAD = Use("POST", "/media")
_REFUSAL = (("error.code", "string"), ("error.details.field", "string"))


class WorkerComparison:
    """Holds the operations of one page against our use of them."""

    def __init__(self, operations: Operations, reader: SchemaReader) -> None:
        self._operations = operations
        self._reader = reader

    def found(self, use: Use) -> Operation | None:
        """Return the operation that we call, None where the page has none there."""
        return self._operations.find(use.method, API_PREFIX + use.path)

    def differences(self, use: Use) -> Iterator[Drift]:
        """Yield what the page says otherwise of one operation."""
        operation = self.found(use)
        if operation is None:
            yield self._gone(use)
            return
        if operation.node.get("deprecated") is True:
            yield _line("warning", use, "it is deprecated", "we call it", "it may end one day", "ask what follows it")
        yield from self._key(use, operation)
        yield from self._parameters(use, operation)
        yield from self._answers(use, operation)

    def creation(self) -> Iterator[Drift]:
        """Yield what the page says otherwise of the creation of events beside its payload."""
        operation = self.found(CREATE)
        if operation is None:
            return
        kinds = self._operations.request_types(operation)
        if kinds and not any(_takes(kind, "application/json") for kind in kinds):
            page = f"the request is {_some(kinds)}"
            yield _line("error", CREATE, page, "we send application/json", "every row would be refused", _UPDATE)
        schema = self._operations.answer_schema(operation, "4")
        for path, kind in _REFUSAL if schema else ():
            wrong = self._wrong_answer(schema or {}, path, kind)
            if wrong:
                yield _line("warning", CREATE, f"a refusal: {wrong}", f"we read `{path}`", "reasons would be lost", _UPDATE)

    def upload_field(self) -> str:
        """Return the field of the form in which the page wants an image, "" where it shows none."""
        operation = self.found(UPLOAD)
        kinds = self._operations.request_types(operation) if operation else {}
        form = self._reader.read(kinds.get("multipart/form-data", {}))[0].properties
        return next((name for name, node in form.items() if _is_file(self._reader.resolved(node))), "")

    def upload(self) -> Iterator[Drift]:
        """Yield what the page says otherwise of the encodings in which an image is uploaded."""
        operation = self.found(UPLOAD)
        kinds = self._operations.request_types(operation) if operation else {}
        form = self._reader.read(kinds.get("multipart/form-data", {}))[0].properties
        is_form = "multipart/form-data" in kinds and (not form or {"file", "image"} & form.keys() or self.upload_field())
        if kinds and not is_form and not any(kind.startswith("image/") or kind == "*/*" for kind in kinds):
            fields = f" with the fields {_some(form)}" if form else ""
            page, ours = f"the request is {_some(kinds)}{fields}", "we send a form with `file` or `image`, or the image itself"
            yield _line("warning", UPLOAD, page, ours, "cover images could not be uploaded", _UPDATE)

    def _gone(self, use: Use) -> Drift:
        moved = self._operations.elsewhere(use.method, use.path)
        page = f"there is none at {API_PREFIX}{use.path}" + (f", but {str(moved)[:120]}" if moved else "")
        breaks = "images could not be uploaded" if use is UPLOAD else "the request would be refused (404)"
        return _line("warning" if use is UPLOAD else "error", use, page, f"we call {API_PREFIX}{use.path}", breaks, _UPDATE)

    def _key(self, use: Use, operation: Operation) -> Iterator[Drift]:
        if operation.security and not any(self._is_bearer(one) for one in operation.security):
            names = [name for one in operation.security for name in one]
            page = f"it asks for {_some(names)}, which is no bearer key"
            yield _line("error", use, page, "we send `Authorization: Bearer`", "every request would be refused (401)", _UPDATE)

    def _is_bearer(self, requirement: Node) -> bool:
        return all(_is_bearer(self._operations.scheme(name)) for name in requirement)

    def _parameters(self, use: Use, operation: Operation) -> Iterator[Drift]:
        sent = {("header", name) for name in _SENT_HEADERS} | {("query", name) for name in use.queries}
        told = {(str(one.get("in")), str(one.get("name")).lower()): one for one in operation.parameters}
        for (place, name), one in told.items():
            if one.get("required") is True and place in {"header", "query", "cookie"} and (place, name) not in sent:
                page = f"the {place} parameter `{str(one.get('name'))[:60]}` is required"
                yield _line("error", use, page, "we do not send it", "every request would be refused", _UPDATE)
        if use.method == "POST":
            yield from self._idempotency(use, told.get(("header", "idempotency-key")))
        limit = self._reader.resolved(told.get(("query", "limit"), {}).get("schema")).get("maximum")
        if "limit" in use.queries and isinstance(limit, int) and limit < PAGE_SIZE:
            page, ours = f"`limit` is at most {limit}", f"we ask for pages of {PAGE_SIZE}"
            yield _line("warning", use, page, ours, "the list may be refused", _UPDATE)

    def _idempotency(self, use: Use, parameter: Node | None) -> Iterator[Drift]:
        length = len(SAMPLE_KEY) + (LONGEST_KEY_END if use is UPLOAD else 0)
        ours = f"we send one of {length} characters with each"
        if parameter is None:
            breaks = "a repeated request might create an event twice, if the header has no effect any more"
            yield _line("warning", use, "it has no header `Idempotency-Key`", ours, breaks, "ask the service's support")
            return
        most = self._reader.read(parameter.get("schema"))[0].most("maxLength")
        if most is not None and most < length:
            page = f"an `Idempotency-Key` has at most {most} characters"
            breaks = "images could not be uploaded" if use is UPLOAD else "every row would be refused"
            yield _line("warning" if use is UPLOAD else "error", use, page, ours, breaks, _UPDATE)

    def _answers(self, use: Use, operation: Operation) -> Iterator[Drift]:
        schema = self._operations.answer_schema(operation, "2")
        for path, kind in use.reads if schema else ():
            wrong = self._wrong_answer(schema or {}, path, kind)
            if wrong:
                breaks = "rows would become uncertain" if use is CREATE else "runs could not begin"
                yield _line("error", use, f"its answer: {wrong}", f"we read `{path}` ({kind})", breaks, _UPDATE)

    def _wrong_answer(self, node: Node, path: str, kind: str) -> str:
        """Say how an answer's schema differs at a path; "" where it fits, or does not say."""
        at, choices = "", self._reader.read(node)
        for step in _STEPS.findall(path):
            at = f"{at}[]" if step == "[]" else f"{at}.{step}".strip(".")
            properties = {name: part for choice in choices for name, part in choice.properties.items()}
            if step == "[]":
                choices = self._reader.read(choices[0].items)
            elif not properties:
                return ""
            elif step not in properties:
                return f"it has no `{at}`"
            else:
                choices = self._reader.read(properties[step])
        kinds = [choice.types for choice in choices]
        if any(types is None or kind in types for types in kinds):
            return ""
        return f"`{at}` is of the type {_some(sorted({name for types in kinds for name in types or ()}))}"


_UPDATE = "look for a newer eventsync, and ask the service's support"


def _line(severity: Severity, use: Use, page: str, ours: str, breaks: str, helps: str) -> Drift:
    return Drift(severity, use.name, page, ours, breaks, helps)


def _is_bearer(scheme: Node) -> bool:
    """Whether a scheme is met by `Authorization: Bearer`; one that the page does not define is taken to be."""
    match scheme.get("type"), str(scheme.get("scheme", "")).lower(), str(scheme.get("name", "")).lower():
        case ((None | "oauth2" | "openIdConnect"), _, _):
            return True
        case "http", scheme_name, _:
            return scheme_name == "bearer"
        case "apiKey", _, name:
            return scheme.get("in") == "header" and name == "authorization"
        case _:
            return False


def _is_file(node: Node) -> bool:
    """Whether a field holds a file, as OpenAPI 3.0 (`format: binary`) or 3.1 (`contentMediaType`) says it."""
    return node.get("format") == "binary" or "contentMediaType" in node


def _takes(kind: str, ours: str) -> bool:
    return kind in {ours, "*/*", f"{ours.partition('/')[0]}/*"}


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

    def _value(self, sent: Outgoing, choices: Sequence[Schema], path: str) -> list[Drift]:
        """Hold one value against its schema; of alternatives, the one that fits best counts."""
        found = [list(self._against(sent, choice, path)) for choice in choices]
        best = min(found, key=lambda drifts: (sum(one.severity == "error" for one in drifts), len(drifts)))
        return best if sent.is_always else [_of_some_rows(one) for one in best]

    def _against(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if schema.says("deprecated"):
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
            if not any(one.says("readOnly") for one in known.get(name, ())):
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
        if schema.says("readOnly"):
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
        most = schema.most("maxLength")
        if most is not None and sent.kind == "string" and (sent.longest is None or sent.longest > most):
            shortest = min((len(str(one)) for one in sent.values or ()), default=len(sent.sample))
            said = f"it has at most {most} characters"
            if shortest > most:
                yield self._wrong(path, said, f"ours has {shortest}")
            else:
                ours = "this mapping does not bound it" if sent.longest is None else f"ours may have {sent.longest}"
                yield self._some_rows(path, said, ours, f"shorten it with the step `{{truncate: {most}}}`")
        texts = [str(one) for one in sent.values or ()]
        if schema.least("minLength") > 1 and any(len(text) < schema.least("minLength") for text in texts):
            short = _some(sorted(text for text in texts if len(text) < schema.least("minLength")))
            said = f"it has at least {schema.least('minLength')} characters"
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
        if schema.least("minItems") > 1:
            said = f"it has at least {schema.least('minItems')} items"
            yield self._some_rows(path, said, "we send one or more", "give every row so many")
        if schema.most("maxItems") is not None:
            said = f"it has at most {schema.most('maxItems')} items"
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


def _some(names: Iterable[object]) -> str:
    values = list(names)
    shown = ", ".join(f"`{str(value)[:60]}`" for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown


MOST = 100
"""So many differences are reported; a page with more is another service's."""


def compare(page: ContractPage, sent: Outgoing) -> tuple[Drift, ...]:
    """Return the differences between the page and what we do, errors first. Pure; never raises for what a page says."""
    reader = SchemaReader(page.tree)
    operations = Operations(page.tree, reader)
    found = [*_of_payload(operations, reader, sent), *_of_worker(WorkerComparison(operations, reader), sent)]
    return tuple(sorted(dict.fromkeys(found), key=lambda drift: drift.severity != "error")[:MOST])


def upload_field(page: ContractPage) -> str:
    """Return the field of the form in which the page wants an image, "" where it shows none."""
    reader = SchemaReader(page.tree)
    return WorkerComparison(Operations(page.tree, reader), reader).upload_field()


def _of_worker(worker: WorkerComparison, sent: Outgoing) -> Iterator[Drift]:
    for use in (CREATE, CHANNELS, CLASSIFICATIONS):
        yield from worker.differences(use)
    yield from worker.creation()
    if "coverImage" in sent.fields:
        yield from worker.differences(UPLOAD)
        yield from worker.upload()


def _of_payload(operations: Operations, reader: SchemaReader, sent: Outgoing) -> Iterator[Drift]:
    operation = WorkerComparison(operations, reader).found(CREATE)
    kinds = operations.request_types(operation) if operation else {}
    schema = next((part for kind, part in kinds.items() if "json" in kind or kind in {"*/*", "application/*"}), None)
    if schema is not None:
        yield from PayloadComparison(reader, CREATE.name).differences(sent, schema)
