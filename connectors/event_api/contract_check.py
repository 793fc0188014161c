"""Contract check: compares the service's OpenAPI page with the payloads of a feed and the requests of this client.

jsonschema validates single documents; this compares everything that the rows of a feed may send: any value or one of a few, in
every row or in some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz, process

from connectors.event_api.media import LONGEST_KEY_END
from connectors.event_api.openapi import Description, Node, Operation, Schema, get
from mappings.delivery import API_PREFIX
from mappings.outgoing import Drift, Outgoing, Severity
from mappings.patterns import PatternError, compile_pattern
from mappings.row_key import FeedName, RowKey, idempotency_key

_UPDATE = "look for a newer eventsync, and ask the service's support"
_ALL_ROWS = "every row would be refused"
_KEY_LENGTH = len(idempotency_key("default", FeedName("feed"), RowKey("row")))
"""The length of every idempotency key of an event."""
_SENT_HEADERS = frozenset({"authorization", "content-type", "accept", "user-agent", "idempotency-key", "accept-encoding"})
_STEPS = re.compile(r"[^.\[\]]+|\[\]")


@dataclass(frozen=True, slots=True)
class _Use:
    """One operation that the client uses: what it sends, what it reads of the answers, and what fails if the page differs.

    `reads`: paths in successful answers with their types; `unread`: what fails if one of them is missing.
    """

    method: str
    path: str
    breaks: str
    unread: str = ""
    severity: Severity = "error"
    queries: tuple[str, ...] = ()
    sends: str = ""
    media_types: tuple[str, ...] = ()
    key_length: int = 0
    reads: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def drift(self, page: str, ours: str, breaks: str = "", severity: Severity | None = None) -> Drift:
        """Return a difference with this operation's severity and consequence, unless others are given."""
        return Drift(severity or self.severity, str(self), page, ours, breaks or self.breaks, _UPDATE)


_CREATE = _Use(
    "POST",
    "/events",
    breaks=_ALL_ROWS,
    unread="rows would become uncertain",
    sends="we send application/json",
    media_types=("application/json",),
    key_length=_KEY_LENGTH,
    reads=(("doc.id", "integer"),),
)
_NO_RUN = "runs could not begin"
_CHANNELS = _Use(
    "GET", "/channels", _NO_RUN, _NO_RUN, queries=("page", "limit"), reads=(("docs[].id", "integer"), ("docs[].slug", "string"))
)
_SLUGS = _Use("GET", "/classifications", _NO_RUN, _NO_RUN, reads=(("version", "string"), ("docs[].slug", "string")))
_UPLOAD = _Use(
    "POST",
    "/media",
    breaks="cover images could not be uploaded",
    severity="warning",
    sends="we send a form with `file` or `image`, or the image itself",
    media_types=("multipart/form-data", "image/*"),
    key_length=_KEY_LENGTH + LONGEST_KEY_END,
)
_REFUSAL = (("error.code", "string"), ("error.details.field", "string"))
MOST = 100
"""The most differences to report; a page with more describes another service."""


def compare(page: Node, sent: Outgoing) -> tuple[Drift, ...]:
    """Return the differences between the page and our requests, errors first. Pure; never raises because of the page."""
    api = Description(page)
    kinds = api.request_types(api.find(_CREATE.method, API_PREFIX + _CREATE.path))
    schema = next((part for kind, part in kinds.items() if "json" in kind or kind in {"*/*", "application/*"}), None)
    found = [] if schema is None else _of_value(api, sent, schema, "")
    for use in (_CREATE, _CHANNELS, _SLUGS, *([_UPLOAD] if "coverImage" in sent.fields else [])):
        found += _of_use(api, use)
    return tuple(sorted(dict.fromkeys(found), key=lambda drift: drift.severity != "error")[:MOST])


def upload_field(page: Node) -> str:
    """Return the form field in which the page expects an image, "" if it describes none."""
    return _upload_form(Description(page))[1]


def _upload_form(api: Description) -> tuple[list[str], str]:
    """Return the form's fields, and the one that holds a file: by `format: binary` in OpenAPI 3.0, `contentMediaType` in 3.1."""
    kinds = api.request_types(api.find(_UPLOAD.method, API_PREFIX + _UPLOAD.path))
    form = {name: api.resolve(node) for name, node in api.read(kinds.get("multipart/form-data"))[0].properties.items()}
    files = (name for name, node in form.items() if node.get("format") == "binary" or "contentMediaType" in node)
    return list(form), next(files, "")


def _of_use(api: Description, use: _Use) -> Iterator[Drift]:
    """Yield the differences of one operation."""
    path = API_PREFIX + use.path
    operation = api.find(use.method, path)
    if operation is None:
        moved = api.find(use.method, use.path)
        elsewhere = f", but {moved.method} {moved.path}"[:120] if moved else ""
        yield use.drift(f"there is none at {path}{elsewhere}", f"we call {path}")
        return
    if operation.node.get("deprecated") is True:
        yield use.drift("it is deprecated", "we call it", "it may end one day", "warning")
    if operation.security and not any(map(api.takes_bearer, operation.security)):
        names = [name for one in operation.security for name in one]
        yield use.drift(f"it asks for {_some(names)}, which is not a bearer key", "we send `Authorization: Bearer`")
    yield from _of_parameters(api, use, operation)
    kinds = api.request_types(operation)
    fields, file_field = _upload_form(api) if use is _UPLOAD else ([], "")
    is_other_form = fields and not file_field and {"file", "image"}.isdisjoint(fields)
    accepted = [kind for kind in kinds if not (is_other_form and kind.startswith("multipart/"))]
    if use.media_types and kinds and not any(_takes(kind, ours) for kind in accepted for ours in use.media_types):
        yield use.drift(f"the request is {_some(kinds)}" + (f" with the fields {_some(fields)}" if fields else ""), use.sends)
    for place, kind in use.reads:
        if wrong := _wrong_answer(api, api.answer_schema(operation, "2"), place, kind):
            yield use.drift(f"its answer: {wrong}", f"we read `{place}` ({kind})", use.unread)
    for place, kind in _REFUSAL if use is _CREATE else ():
        if wrong := _wrong_answer(api, api.answer_schema(operation, "4"), place, kind):
            yield use.drift(f"a refusal: {wrong}", f"we read `{place}`", "reasons would be lost", "warning")


def _of_parameters(api: Description, use: _Use, operation: Operation) -> Iterator[Drift]:
    sent: Mapping[str, Iterable[str]] = {"header": _SENT_HEADERS, "query": use.queries, "cookie": ()}
    for (place, name), parameter in operation.parameters.items():
        if parameter.get("required") is True and place in sent and name not in sent[place]:
            yield use.drift(f"the {place} parameter `{str(parameter.get('name'))[:60]}` is required", "we do not send it")
    if use.key_length:
        key = operation.parameters.get(("header", "idempotency-key"))
        ours = f"we send one of {use.key_length} characters with each"
        most = min(api.read(get(key, "schema", dict))[0].all("maxLength", int), default=use.key_length)
        if key is None:
            breaks = "a repeated request might create an event twice, if the header has no effect any more"
            yield use.drift("it has no header `Idempotency-Key`", ours, breaks, "warning")
        elif most < use.key_length:
            yield use.drift(f"an `Idempotency-Key` has at most {most} characters", ours)


def _takes(kind: str, ours: str) -> bool:
    main, _, rest = ours.partition("/")
    return kind in {ours, "*/*", f"{main}/*"} or (rest == "*" and kind.startswith(f"{main}/"))


def _wrong_answer(api: Description, node: Node | None, path: str, kind: str) -> str:
    """Return how an answer's schema differs at a path, "" if it fits or is not described."""
    at, choices = "", api.read(node)
    for step in _STEPS.findall(path):
        at = f"{at}[]" if step == "[]" else f"{at}.{step}".strip(".")
        if step == "[]":
            choices = api.read({"allOf": choices[0].all("items", dict)})
            continue
        properties = {name: part for choice in choices for name, part in choice.properties.items()}
        if step not in properties:
            return f"it has no `{at}`" if properties else ""
        choices = api.read(properties[step])
    kinds = [choice.types for choice in choices]
    if any(types is None or kind in types for types in kinds):
        return ""
    return f"`{at}` is of the type {_some(sorted({name for types in kinds for name in types or ()}))}"


_SHOWN = 3
_LONGEST_PATTERN = 200
_MOST_TEXTS = 200
_MOMENT_FORMS = frozenset({"date-time", "datetime", "iso8601", "iso-8601"})
_FORMS: Mapping[str, frozenset[str]] = {
    "startAt": _MOMENT_FORMS,
    "endAt": _MOMENT_FORMS,
    "offers[].url": frozenset({"uri", "url", "iri", "uri-reference", "iri-reference"}),
}
"""The formats that the page may give for a field that we write correctly."""
_NO_TEXTS = frozenset({"date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "byte", "duration", "int64", "unix-time"})
"""Formats that free text does not have."""


def _of_value(api: Description, sent: Outgoing, node: Node, path: str) -> list[Drift]:
    """Compare one value with its schema; of several alternatives the best fitting one is used."""
    found = [list(_of_choice(api, sent, choice, path)) for choice in api.read(node)]
    best = min(found, key=lambda drifts: (sum(one.severity == "error" for one in drifts), len(drifts)))
    return best if sent.is_always else list(map(_of_some_rows, best))


def _of_some_rows(drift: Drift) -> Drift:
    """Return a difference as a warning, for a field that only some rows have."""
    is_grave = drift.severity == "error"
    return replace(drift, severity="warning", breaks="rows that have it would be refused") if is_grave else drift


def _of_choice(api: Description, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
    where, fields = (f"{_CREATE}: {path}", (path,)) if path else (str(_CREATE), ())
    if True in schema.all("deprecated", bool):
        yield Drift(
            "warning", where, "it is deprecated", "we send it", "it may be refused one day", "ask what follows it", fields
        )
    if True in schema.all("readOnly", bool):
        yield Drift("warning", where, "it is read only", "we send it", "it may be ignored or refused", "take it out", fields)
    for page, ours, helps in _misfits(sent, schema, path):
        if helps:
            yield Drift("warning", where, page, ours, "rows that do not fit would be refused", helps, fields)
        else:
            advice = f"send `{path}` as the page describes it" if path else "see the page"
            yield Drift("error", where, page, ours, _ALL_ROWS, advice, fields)
    if sent.kind == "object":
        yield from _missing(api, sent, schema, f"{path}." if path else "")
        yield from _of_fields(api, sent, schema, f"{path}." if path else "")
    if sent.kind == "array" and sent.item is not None:
        yield from _of_value(api, sent.item, {"allOf": schema.all("items", dict)}, f"{path}[]")


def _missing(api: Description, sent: Outgoing, schema: Schema, prefix: str) -> Iterator[Drift]:
    """Yield the required fields that some or all rows lack."""
    properties = schema.properties
    for name in schema.required:
        path, field = f"{prefix}{name}", sent.fields.get(name)
        if any(True in one.all("readOnly", bool) for one in api.read(properties.get(name))):
            continue
        if field is None:
            near = _near(name, [one for one in sent.fields if one not in properties])
            renamed = f"perhaps `{prefix}{near}` was renamed to it: send that as `{path}`"
            fields = (path, f"{prefix}{near}") if near else (path,)
            ours, helps = "this mapping never sends it", renamed if near else f"map `{path}` under `event`"
            yield Drift("error", str(_CREATE), f"`{path}` is required", ours, _ALL_ROWS, helps, fields)
        elif not field.is_always:
            ours, breaks = "this mapping leaves it out where a row has none", "rows without it would be refused"
            helps = f"give `{path}` a value there (`on_empty: {{use: ...}}`), or let such rows be rejected (`on_empty: reject`)"
            yield Drift("warning", str(_CREATE), f"`{path}` is required", ours, breaks, helps, (path,))


def _of_fields(api: Description, sent: Outgoing, schema: Schema, prefix: str) -> Iterator[Drift]:
    """Compare the fields that the page describes; yield the other fields that we send, unless the page allows them."""
    known = schema.properties
    is_open = not known or schema.all("additionalProperties", dict) or schema.all("patternProperties", dict)
    is_closed = False in schema.all("additionalProperties", bool) + schema.all("unevaluatedProperties", bool)
    unsent = [name for name in known if name not in sent.fields]
    unsent = [name for name in unsent if name in schema.required] or unsent
    for name, field in sent.fields.items():
        path = f"{prefix}{name}"
        if name in known:
            yield from _of_value(api, field, known[name], path)
        elif not is_open:
            near = _near(name, unsent)
            page = f"there is no field `{path}`" + (", and others are not allowed" if is_closed else "")
            helps = f"perhaps it is called `{near}` now: map that instead" if near else "take it out of the mapping if it is gone"
            drift = Drift("error", str(_CREATE), page, "this mapping sends it", _ALL_ROWS, helps, (path,))
            drift = drift if is_closed else replace(drift, severity="warning", breaks="it may be ignored")
            yield drift if field.is_always else _of_some_rows(drift)


_Misfit = tuple[str, str, str]
"""What the page requires, what we send, and a hint for the rows concerned ("" if all rows are)."""


def _misfits(sent: Outgoing, schema: Schema, path: str) -> Iterator[_Misfit]:
    """Yield the limits of a schema that a value violates."""
    if sent.kind is not None and schema.types is not None and sent.kind not in schema.types:
        yield f"it is of the type {' or '.join(sorted(schema.types))}", f"we send a value of the type {sent.kind}", ""
        return
    if schema.allowed is not None:
        values = sorted(map(str, sent.values or ()))
        wrong = [value for value in values if value not in schema.allowed]
        helps = "map the values to those that are allowed"
        yield from _judge(f"it is one of {_some(schema.allowed)}", values, wrong, helps, is_open=not values)
    if sent.kind == "string":
        yield from _misfits_of_text(sent, schema, path)
    if sent.kind == "array":
        for least in filter((1).__lt__, schema.all("minItems", int)):
            yield f"it has at least {least} items", "we send one or more", "give every row so many"
        for most in schema.all("maxItems", int):
            yield f"it has at most {most} items", "we send as many as a row has", "leave some out"


def _misfits_of_text(sent: Outgoing, schema: Schema, path: str) -> Iterator[_Misfit]:
    values = sorted(map(str, sent.values or ()))
    written = values or ([sent.sample] if sent.sample else [])
    for most in schema.all("maxLength", int):
        if sent.longest is None or sent.longest > most:
            wrong, helps = [text for text in written if len(text) > most], f"shorten it with the step `{{truncate: {most}}}`"
            yield from _judge(f"it has at most {most} characters", written, wrong, helps, is_open=not values)
    for least in schema.all("minLength", int):
        wrong = [text for text in values if len(text) < least]
        yield from _judge(f"it has at least {least} characters", values, wrong, "use longer values")
    for pattern in schema.all("pattern", str):
        texts = written[:_MOST_TEXTS]
        wrong, helps = [text for text in texts if not _fits(pattern, text)], "map the values to texts that fit"
        yield from _judge(f"it looks like {pattern[:80]}", texts, wrong, helps, is_open=not written)
    for form in map(str.casefold, schema.all("format", str)):
        if path in _FORMS and form not in _FORMS[path] and form in _NO_TEXTS | {"uri", "url"}:
            yield f"it has the format {form}", f"we write it like {sent.sample}", ""
        elif path not in _FORMS and form in _NO_TEXTS:
            yield f"it has the format {form}", "we send a text", "check that the mapping writes it so"


def _judge(page: str, texts: list[str], wrong: list[str], helps: str, *, is_open: bool = False) -> Iterator[_Misfit]:
    """Yield a misfit, of all rows if all texts that we send are wrong; `is_open`: rows may have other texts too."""
    if wrong and len(wrong) == len(texts):
        yield page, f"we send {_some(wrong)}", ""
    elif wrong or is_open:
        yield page, f"we may send {_some(wrong)}" if wrong else "we send what the rows hold", helps


def _fits(pattern: str, text: str) -> bool:
    """Return whether a text matches the page's pattern; a pattern that cannot be compiled counts as matched."""
    try:
        return len(pattern) > _LONGEST_PATTERN or compile_pattern(pattern).finds(text)
    except PatternError:  # patterns of another dialect are common here
        return True


def _near(name: str, others: Sequence[str]) -> str:
    """Return the name that is probably a renamed field, "" if none is."""
    found = process.extractOne(name, others, scorer=fuzz.WRatio, score_cutoff=60, processor=str.casefold)
    if found is not None:
        return found[0]
    return others[0] if len(others) == 1 else ""


def _some(names: Iterable[object]) -> str:
    values = list(names)
    shown = ", ".join(f"`{str(value)[:60]}`" for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown
