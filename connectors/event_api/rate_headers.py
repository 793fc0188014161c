"""What headers tell of a route's limit: every common spelling of it, read or left, never guessed.

What is done about it is `pacing`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from connectors.rate_hint import RateHint
from connectors.retry_after import retry_after_s

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S = 1e9
"""A reset beyond it is a time of day in seconds since 1970, and beyond a thousand times it in milliseconds."""
_LONGEST_WINDOW_S = 86_400.0
_ROUNDED_S = 1.0
"""How far two ways to tell one moment may be apart: each is cut or rounded up to whole seconds."""


def rate_hint(headers: Mapping[str, str], now: datetime) -> RateHint | None:
    """Return what the headers of one answer tell, None where they tell nothing, or nothing that makes sense.

    `headers` has lower-case names. Read are `RateLimit` with `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-08
    and later), its older form of `RateLimit-Limit`, `-Remaining` and `-Reset`, and the same three as `X-RateLimit-...`,
    whose reset may be a time of day. Of several limits the one with the lowest rate counts. A limit that is used up for longer
    than the same answer's `Retry-After` asks to wait makes no sense: `Retry-After` is obeyed as it is written.
    """
    hint = _spelt(headers, now)
    asked_s = retry_after_s(headers, now) if hint is not None else None
    is_contradicted = hint is not None and asked_s is not None and hint.rest_s > asked_s + _ROUNDED_S
    return None if is_contradicted else hint


def _spelt(headers: Mapping[str, str], now: datetime) -> RateHint | None:
    if "ratelimit-policy" in headers or "ratelimit" in headers:
        return _structured(headers)
    for prefix in ("ratelimit-", "x-ratelimit-", "x-rate-limit-"):
        if f"{prefix}limit" in headers:
            return _three(headers, prefix, now.timestamp())
    return None


def _structured(headers: Mapping[str, str]) -> RateHint | None:
    """`RateLimit-Policy: "default";q=100;w=60` and `RateLimit: "default";r=50;t=30`."""
    policies = [(name, told) for name, told in _items(headers.get("ratelimit-policy", "")) if told.get("q") and told.get("w")]
    if not policies:
        return None
    name, policy = min(policies, key=lambda one: one[1]["q"] / one[1]["w"])
    left = dict(_items(headers.get("ratelimit", ""))).get(name, {})
    return _sane(policy["q"], left.get("r"), left.get("t"), policy["w"])


def _items(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return the items of a list with their numeric parameters (RFC 9651, 3.1)."""
    found = []
    for item in text.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((name, {key: float(value) for key, _, value in pairs if _NUMBER.fullmatch(value)}))
    return found


def _three(headers: Mapping[str, str], prefix: str, now_s: float) -> RateHint | None:
    """`RateLimit-Limit: 100, 100;w=60` with `-Remaining` and `-Reset`; what follows the first number may be left out."""
    told = headers[f"{prefix}limit"]
    limit = _number(told.partition(",")[0].partition(";")[0])
    windows = [parameters["w"] for _, parameters in _items(told) if parameters.get("w")]
    reset = _number(headers.get(f"{prefix}reset", ""))
    if reset is not None and reset > _EPOCH_S:
        reset = max((reset / 1000 if reset > _EPOCH_S * 1000 else reset) - now_s, 0.0)
    return _sane(limit, _number(headers.get(f"{prefix}remaining", "")), reset, windows[0] if windows else None)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text := text.strip()) else None


def _sane(limit: float | None, remaining: float | None, reset_s: float | None, window_s: float | None) -> RateHint | None:
    length_s = window_s or reset_s
    if not limit or limit < 1 or not length_s or length_s > _LONGEST_WINDOW_S:
        return None
    if remaining is not None and remaining > limit:
        return None
    reset_s = min(reset_s, _LONGEST_WINDOW_S) if reset_s is not None else None
    return RateHint(limit, remaining, reset_s, window_s)
