"""Contracts that a service may drift to: what its description then says, and what it then asks of an event.

The contract as specified is the file beside this module and `validation`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.answers import invalid
from sandbox.switches import Contract, Switches

SHORT_TITLE_CHARS: Final = 40
"""The longest title under the contract `shorter_titles`."""

_REQUIRED: Final = "required: [channelId, title, startAt, timezone, classifications, approxLocation]"
_TITLE: Final = "title: {type: string, minLength: 1}\n        startAt"
_CHANGES: Final[Mapping[Contract, tuple[tuple[str, str], ...]]] = {
    "as_specified": (),
    "new_required_field": (
        (_REQUIRED, _REQUIRED.replace("title", "title, organizer")),
        (_TITLE, "organizer: {type: string, description: Who holds the event.}\n        " + _TITLE),
    ),
    "renamed_field": (
        (_REQUIRED, _REQUIRED.replace("title", "headline")),
        (_TITLE, _TITLE.replace("title", "headline")),
    ),
    "shorter_titles": ((_TITLE, _TITLE.replace("minLength: 1", f"minLength: 1, maxLength: {SHORT_TITLE_CHARS}")),),
    "moved": (("url: /api/public/v1", "url: /api/public/v2"),),
}


def described(contract: Contract, specified: str) -> str:
    """The description of the API under a contract."""
    for old, new in _CHANGES[contract]:
        specified = specified.replace(old, new)
    return specified


def held_to_contract(event: Mapping[str, Any], switches: Switches) -> Mapping[str, Any]:
    """The event as the specification names its fields. Raises ApiError 400 for what only the drifted contract refuses."""
    if switches.contract_rules == "as_specified":
        return event
    match switches.contract:
        case "new_required_field" if not isinstance(event.get("organizer"), str):
            raise invalid("organizer", "is required")
        case "renamed_field" if "headline" not in event:
            raise invalid("headline", "is required")
        case "renamed_field":
            return {**event, "title": event["headline"]}
        case "shorter_titles" if len(str(event.get("title", ""))) > SHORT_TITLE_CHARS:
            raise invalid("title", f"must not be longer than {SHORT_TITLE_CHARS} characters")
        case _:
            return event
