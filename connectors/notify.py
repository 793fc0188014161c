"""Send one message to one address of a notification service, by the apprise library: mail, chat, pager or a webhook.

Addresses hold secrets: no answer repeats them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from io import StringIO
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from connectors.masking import Mask
from mappings.errors import ConfigError

if TYPE_CHECKING:
    from apprise import Apprise

SEND_S = 20.0
"""How long one address may take, in seconds."""


class Tone(Enum):
    """What a message is, for services that show it by a colour or a sign."""

    ALARM = "failure"
    WARNING = "warning"
    RELIEF = "success"


@dataclass(frozen=True, slots=True)
class Message:
    """A message: one line, and plain text of several."""

    title: str
    body: str
    tone: Tone


Deliver = Callable[[SecretStr, Message], str]
"""Sends one address a message. Returns what came back where it was not accepted, "" where it was."""


def deliver_over(mask: Mask) -> Deliver:
    """Return what delivers messages, with nothing in them or in its answers that `mask` hides."""

    def deliver(address: SecretStr, message: Message) -> str:
        require_library()
        from apprise import NotifyFormat, NotifyType  # noqa: PLC0415  # loaded where something is sent

        with _library_log() as log:
            service = _opened(address)
            is_accepted = service is not None and service.notify(
                title=mask.hide(message.title),
                body=mask.hide(message.body),
                notify_type=NotifyType(message.tone.value),
                body_format=NotifyFormat.TEXT,
            )
            return "" if is_accepted else mask.hide(_on_one_line(log.getvalue()))

    return deliver


def find_fault(address: SecretStr, mask: Mask) -> str:
    """Say what is wrong with an address, as far as can be known without using it; "" if nothing is.

    Raises:
        ConfigError: the library is not installed.
    """
    require_library()
    with _library_log() as log:
        return "" if _opened(address) is not None else mask.hide(_on_one_line(log.getvalue()))


@contextmanager
def _library_log() -> Iterator[StringIO]:
    """Collect what the library says of a failure, instead of letting it print that: it may repeat an address."""
    lines = StringIO()
    log, handler = logging.getLogger("apprise"), logging.StreamHandler(lines)
    handler.setLevel(logging.WARNING)
    was_propagated, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.propagate = was_propagated


def _on_one_line(log: str) -> str:
    return "; ".join(dict.fromkeys(line.strip() for line in log.splitlines() if line.strip())) or "it was not accepted"


def require_library() -> None:
    """Check that notifications can be sent at all.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        with warnings.catch_warnings():  # what it does for other versions of Python is not ours to mend
            warnings.simplefilter("ignore", DeprecationWarning)
            from apprise import Apprise  # noqa: PLC0415  # an extra, loaded where something is sent

            Apprise.instantiate("json://127.0.0.1/")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "notifications need the library apprise, which is not installed",
            hint="install it: pip install 'eventsync[notify]'; or unset EVENTSYNC_NOTIFY and EVENTSYNC_NOTIFY_FILE",
        ) from error


def _opened(address: SecretStr) -> Apprise | None:
    """Return what sends to an address. It follows no redirect, keeps nothing on the disk and names no picture on the web."""
    from apprise import Apprise, AppriseAsset, OverflowMode  # noqa: PLC0415  # loaded where something is sent

    asset = AppriseAsset(
        app_id="eventsync",
        app_desc="eventsync",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        http_redirects=False,
        pgp_autogen=False,
        pem_autogen=False,
        service_timeout=SEND_S,
    )
    text = address.get_secret_value()
    service = Apprise.instantiate(text, asset=asset, suppress_exceptions=True)
    if service is None:
        return None
    if "overflow" not in parse_qs(urlsplit(text).query):
        service.overflow_mode = OverflowMode.SPLIT  # a chat that takes few characters gets several messages
    opened = Apprise(asset=asset)
    opened.add(service)
    return opened
