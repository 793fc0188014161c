"""Contract check: validates payloads against the schema of an event on the service's OpenAPI page, as JSON Schema 2020-12."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.event_api.openapi import Node, NoPage, body_schemas, get
from mappings.delivery import Drift
from mappings.patterns import PatternError, compile_pattern
from mappings.reasons import nearest

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MOST_PAYLOADS = 20
"""How many payloads are worth checking: they are alike."""
_MOST_ERRORS = 100
_CREATE = "POST /events"
_LONGEST_NAME = 100
_SHOWN = 3


def compare(page: Node, bodies: Sequence[bytes]) -> tuple[Drift, ...] | NoPage:
    """Return what the page would refuse of these payloads, errors (all of them would be refused) first.

    Never raises because of the page; NoPage if it describes no event, or in a way that cannot be used.
    """
    kinds = body_schemas(page, "/events")
    schema = next((part for kind, part in kinds.items() if "json" in kind or kind in {"*/*", "application/*"}), None)
    if schema is None:
        return NoPage(f"the page does not describe the body of {_CREATE}")
    refused = dict[tuple[str, str], tuple[_Refusal, int]]()
    try:
        validator = _validator(schema)
        for body in bodies:
            for place, refusal in {(one.path, one.page): one for one in _refusals(validator, json.loads(body))}.items():
                first, count = refused.get(place, (refusal, 0))
                refused[place] = first, count + 1
    except Exception as problem:  # noqa: BLE001  # jsonschema raises what it likes over a schema that is not one
        reason = (str(problem).splitlines() or [type(problem).__name__])[0][:120]
        return NoPage(f"the page's schema of an event cannot be used: {reason}")
    drifts = [_drift(refusal, count, len(bodies)) for refusal, count in refused.values()]
    return tuple(sorted(drifts, key=lambda drift: drift.severity != "error"))


def upload_field(page: Node) -> str:
    """Return the form field in which the page expects an image, "" if it describes none.

    It is marked by `format: binary` in OpenAPI 3.0, by `contentMediaType` in 3.1.
    """
    form = get(body_schemas(page, "/media").get("multipart/form-data"), "properties", dict)
    files = (name for name, node in form.items() if get(node, "format", str) == "binary" or "contentMediaType" in (node or ()))
    return str(next(files, ""))


class _Refusal(NamedTuple):
    """What the page asks for at a path of the payload, what we send instead, and what to do."""

    path: str
    page: str
    ours: str
    helps: str


def _drift(refusal: _Refusal, count: int, payloads: int) -> Drift:
    is_named = not refusal.path or f"`{refusal.path}`" in refusal.page
    where = _CREATE if is_named else f"{_CREATE}: {refusal.path}"
    breaks = f"{count} of {payloads} payloads would be refused"
    fields = (refusal.path,) if refusal.path else ()
    is_always = count == payloads
    return Drift("error" if is_always else "warning", where, refusal.page, refusal.ours, breaks, refusal.helps, fields)


def _validator(schema: Node) -> Validator:
    from jsonschema import Draft202012Validator, ValidationError, validators  # noqa: PLC0415  # a run without a new page needs none

    def pattern(_: Validator, wanted: str, value: object, __: Node) -> Iterator[ValidationError]:
        """Match in linear time, as the page is not ours; a pattern that RE2 lacks asks for nothing."""
        try:
            if isinstance(value, str) and not compile_pattern(wanted).search(value):
                yield ValidationError("")
        except PatternError:
            return

    Draft202012Validator.check_schema(schema)
    kind: type[Validator] = validators.extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]
    return kind(schema)


def _refusals(validator: Validator, payload: Any) -> Iterator[_Refusal]:
    for found in islice(validator.iter_errors(payload), _MOST_ERRORS):
        error = found
        while error.context:  # of `oneOf` and `anyOf` what an alternative of the right type refuses
            error = min(error.context, key=lambda one: (one.validator == "type" and not one.relative_path, -len(one.path)))
        path = ""
        for part in error.absolute_path:
            path += "[]" if isinstance(part, int) else f".{part}" if path else part
        yield from _told(error, path)


def _told(error: ValidationError, path: str) -> Iterator[_Refusal]:
    wanted: Any = error.validator_value
    sent: Any = error.instance
    inside, described = f"{path}." if path else "", get(error.schema, "properties", dict)
    helps = f"send `{path}` as the page describes it" if path else "see the page"
    match error.validator:
        case "required":
            for name in wanted[:_MOST_ERRORS]:
                if name not in sent and len(name) <= _LONGEST_NAME:
                    near = nearest(name, [one for one in sent if described and one not in described])
                    renamed = f"perhaps `{inside}{near}` was renamed to it: send that as `{inside}{name}`"
                    helps = renamed if near else f"map `{inside}{name}` under `event`"
                    yield _Refusal(f"{inside}{name}", f"`{inside}{name}` is required", "we do not send it", helps)
        case "additionalProperties" | "unevaluatedProperties" if wanted is False:
            for name in sent:
                if name not in described:
                    near = nearest(name, [one for one in described if one not in sent])
                    helps = f"perhaps it is called `{near}` now" if near else "take it out of the mapping if it is gone"
                    page = f"there is no field `{inside}{name}`, and others are not allowed"
                    yield _Refusal(f"{inside}{name}", page, "we send it", helps)
        case "type":
            kinds = " or ".join(wanted) if isinstance(wanted, list) else wanted
            yield _Refusal(path, f"it is of the type {kinds}", f"we send {_short(sent)}", helps)
        case "enum" | "const":
            values = wanted if error.validator == "enum" else [wanted]
            more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            page = f"it is one of {', '.join(map(_short, values[:_SHOWN]))}{more}"
            yield _Refusal(path, page, f"we send {_short(sent)}", "map the values to those that are allowed")
        case "maxLength":
            helps = f"shorten it with the step `{{truncate: {wanted}}}`"
            yield _Refusal(path, f"it has at most {wanted} characters", f"we send {len(sent)}", helps)
        case rule:
            yield _Refusal(path, f"{rule} is {_short(wanted)}", f"we send {_short(sent)}", helps)


def _short(value: object) -> str:
    return f"`{(value if isinstance(value, str) else json.dumps(value))[:60]}`"
