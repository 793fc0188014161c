"""Sends one message to one notification address by the library apprise: mail, chat, pager or a webhook.

Addresses hold secrets, so they are never repeated in results.
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
"""The most seconds for sending to one address."""


class Tone(Enum):
    """The kind of a message, which services show by a colour or icon."""

    ALARM = "failure"
    WARNING = "warning"
    RELIEF = "success"


@dataclass(frozen=True, slots=True)
class Message:
    """A message: a one-line title, and a body of plain text."""

    title: str
    body: str
    tone: Tone


Deliver = Callable[[SecretStr, Message], str]
"""Sends a message to one address. Returns the error, "" if it was accepted."""


def deliver_over(mask: Mask) -> Deliver:
    """Return a function that sends messages, with everything in them and in its result masked by `mask`."""

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
    """Return what is wrong with an address, "" if nothing is found without using it.

    Raises:
        ConfigError: the library is not installed.
    """
    require_library()
    with _library_log() as log:
        return "" if _opened(address) is not None else mask.hide(_on_one_line(log.getvalue()))


@contextmanager
def _library_log() -> Iterator[StringIO]:
    """Capture the library's log of a failure, which may contain an address."""
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
    """Check that the notification library is installed.

    Raises:
        ConfigError: it is not.
    """
    try:
        with warnings.catch_warnings():  # its warnings concern other versions of Python
            warnings.simplefilter("ignore", DeprecationWarning)
            from apprise import Apprise  # noqa: PLC0415  # an extra, loaded where something is sent

            Apprise.instantiate("json://127.0.0.1/")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "notifications need the library apprise, which is not installed",
            hint="install it: pip install 'eventsync[notify]'; or unset EVENTSYNC_NOTIFY and EVENTSYNC_NOTIFY_FILE",
        ) from error


def _opened(address: SecretStr) -> Apprise | None:
    """Return the sender for an address, None if it is invalid. It follows no redirects, writes no files and links no images."""
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
