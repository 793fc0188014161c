"""Who is told about a feed: the channels that the environment names, and the addresses that stand behind them.

Addresses hold secrets, so that mapping files only name channels. What is told is `telling.words`'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import SecretStr

from pipelines.named_files import read_named_file

EVERYTHING = "all"
"""The channel of addresses without a name: it hears of every feed."""
OWNER = "{owner}"
"""Stands in an address for the owner of a feed."""
_ENTRY = re.compile(r"(?:(?P<names>[^\s=:/?#]+)=)?(?P<url>[A-Za-z][A-Za-z0-9.+-]*://\S+)")
_NAME = re.compile(r"[\w.+-]+(?:@[\w.-]+)?")
_MAIL = re.compile(r"[\w.+'-]+@[\w-]+(?:\.[\w-]+)+")
_OPEN_QUERY = frozenset({"to", "cc", "bcc", "from", "reply", "name", "smtp", "format", "mode", "overflow"})
_PLAIN_WORD = re.compile(r"#?[a-z]+(?:[-_.][a-z]+)*")


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address, and the name under which it may be shown and remembered."""

    name: str
    address: SecretStr


@dataclass(frozen=True, slots=True)
class Channels:
    """The addresses of each channel, in the order in which the environment names them."""

    addresses: Mapping[str, tuple[SecretStr, ...]] = field(default_factory=dict)

    def recipients(self, owner: str, notify: Sequence[str]) -> tuple[Recipient, ...]:
        """Return who hears of a feed: the channels it names, the one called like its owner, and those of every feed.

        An address with a place for the owner is the owner's own; a feed whose owner has no mail address is not told there.
        """
        names = dict.fromkeys((*notify, owner, EVERYTHING))
        found: dict[str, Recipient] = {}
        for recipient in (one for name in names for one in self._of(name, owner)):
            found.setdefault(recipient.address.get_secret_value(), recipient)
        return tuple(found.values())

    def unknown(self, notify: Sequence[str]) -> tuple[str, ...]:
        """Return which of these channels the environment does not know."""
        return tuple(name for name in notify if name not in self.addresses)

    def secrets(self) -> Iterator[str]:
        """Yield what must not be seen of the addresses: each whole, and its parts that may be keys."""
        for address in (one.get_secret_value() for each in self.addresses.values() for one in each):
            yield address
            yield from _secret_parts(address)

    def _of(self, name: str, owner: str) -> Iterator[Recipient]:
        for number, address in enumerate(self.addresses.get(name, ()), start=1):
            text = address.get_secret_value()
            called = name if number == 1 else f"{name} ({number})"
            if OWNER not in text:
                yield Recipient(called, address)
            elif _MAIL.fullmatch(owner):
                yield Recipient(f"{called} ({owner})", SecretStr(text.replace(OWNER, quote(owner, safe="@"))))


NOBODY = Channels()
"""Nobody is told anything."""


def read_channels(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Channels:
    """Return the channels of an environment, and add what is wrong with them to `problems`, a line each.

    `EVENTSYNC_NOTIFY` has addresses between blanks, `EVENTSYNC_NOTIFY_FILE` names a file with some on each line (those that
    begin with # are left out). Each is an address, or `name=address`; several names stand between commas.
    """
    channels: dict[str, list[SecretStr]] = {}
    for where, entry in _entries(values, cwd, problems):
        parsed = _ENTRY.fullmatch(entry)
        names = (parsed["names"] or EVERYTHING).split(",") if parsed else []
        if parsed is None or not all(map(_NAME.fullmatch, names)):
            problems.append(f"{where}: is no address such as json://host.example.org/path or ops=mailtos://user:secret@host")
            continue
        for name in names:
            channels.setdefault(name, []).append(SecretStr(parsed["url"]))
    return Channels({name: tuple(dict.fromkeys(addresses)) for name, addresses in channels.items()})


def _entries(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each entry with its place, which is all that a message may say of it."""
    for number, entry in enumerate(values.get("EVENTSYNC_NOTIFY", "").split(), start=1):
        yield f"EVENTSYNC_NOTIFY: entry {number}", entry
    if not (file := values.get("EVENTSYNC_NOTIFY_FILE", "").strip()):
        return
    path = cwd / Path(file).expanduser()
    for number, line in enumerate(read_named_file("EVENTSYNC_NOTIFY_FILE", path, problems).splitlines(), start=1):
        words = [] if line.lstrip().startswith("#") else line.split()
        yield from ((f"EVENTSYNC_NOTIFY_FILE: {path}:{number}", word) for word in words)


def _secret_parts(address: str) -> Iterator[str]:
    """Yield passwords, and whatever else is not surely a plain word or a host: some services have keys for hosts and paths."""
    try:
        parts = urlsplit(address)
        pairs = parse_qsl(parts.query)
    except ValueError:
        return
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    yield from (password, unquote(password))
    maybe = [user, *parts.path.split("/"), *(value for name, value in pairs if name not in _OPEN_QUERY)]
    name, _, port = host.partition(":")
    if port and not port.isdigit() and not name.startswith("["):
        yield from (host, name, port)  # a token with a colon
    if "." not in name and not name.startswith(("localhost", "[")):
        maybe.append(name)
    yield from (spelt for part in maybe if not _is_plain(part) for spelt in (part, unquote(part)))


def _is_plain(part: str) -> bool:
    return _PLAIN_WORD.fullmatch(part) is not None or _MAIL.fullmatch(unquote(part)) is not None or OWNER in part
