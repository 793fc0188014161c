"""Holding the page against what the worker relies upon whatever the feed: paths, key, headers, encodings, answers.

What a feed's payloads look like is held against it in `contract_payload`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.event_api.contract_operations import Operation, Operations
from connectors.event_api.contract_schema import Node, SchemaReader
from connectors.event_api.drift import Drift, Severity
from connectors.event_api.http import API_PREFIX
from connectors.event_api.listing import PAGE_SIZE
from connectors.event_api.upload import LONGEST_KEY_END
from mappings.row_key import FeedName, RowKey, idempotency_key

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
        form = self._reader.read(kinds.get("multipart/form-data", {})).properties
        return next((name for name, node in form.items() if _is_file(self._reader.resolved(node))), "")

    def upload(self) -> Iterator[Drift]:
        """Yield what the page says otherwise of the encodings in which an image is uploaded."""
        operation = self.found(UPLOAD)
        kinds = self._operations.request_types(operation) if operation else {}
        form = self._reader.read(kinds.get("multipart/form-data", {})).properties
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
        most = self._reader.read(parameter.get("schema")).most_chars
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
        at, schema = "", self._reader.read(node)
        for step in _STEPS.findall(path):
            at = f"{at}[]" if step == "[]" else f"{at}.{step}".strip(".")
            properties = {name: part for choice in schema.choices for name, part in choice.properties.items()}
            if step == "[]":
                schema = self._reader.read(schema.items)
            elif not properties:
                return ""
            elif step not in properties:
                return f"it has no `{at}`"
            else:
                schema = self._reader.read(properties[step])
        kinds = [choice.types for choice in schema.choices]
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


def _some(names: object) -> str:
    listed = [str(name)[:60] for name in names][:5] if isinstance(names, list | dict) else []
    return ", ".join(f"`{name}`" for name in listed)
