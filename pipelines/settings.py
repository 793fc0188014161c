"""The environment, read once and checked as a whole: every problem at once, no secret in any message.

The only reader of the environment: the service and its key, where files and databases are, who we are to the sources, and the
notification channels. Channel addresses hold secrets, so that mapping files only name channels.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, SecretStr

from connectors.addresses import is_loopback, refusal_of_host
from connectors.masking import Mask, passwords_in
from connectors.sources.contract import Access, GoogleAccess, SalesforceAccess
from mappings.delivery import destination_of, service_of
from mappings.errors import ConfigError


def read_named_file(name: str, file: Path, problems: list[str]) -> str:
    """Return the text of a file that a variable names; "" and a line in `problems` where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problems.append(f"{name}: {file} is not text in UTF-8")
    except OSError as error:
        problems.append(f"{name}: cannot read {file}: {error.strerror or error}")
    return ""


EVERYTHING = "all"
"""The channel of addresses without a name, for every feed."""
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
        """Return the recipients of a feed: the channels it names, the one named like its owner, and those of every feed.

        An address with a place for the owner is left out where the owner is no mail address.
        """
        names = dict.fromkeys((*notify, owner, EVERYTHING))
        found: dict[str, Recipient] = {}
        for recipient in (one for name in names for one in self._of(name, owner)):
            found.setdefault(recipient.address.get_secret_value(), recipient)
        return tuple(found.values())

    def unknown(self, notify: Sequence[str]) -> tuple[str, ...]:
        """Return the channels that the environment does not define."""
        return tuple(name for name in notify if name not in self.addresses)

    def secrets(self) -> Iterator[str]:
        """Yield the addresses, and their parts that may be keys."""
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
"""Nobody is notified."""


def read_channels(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Channels:
    """Return the channels of an environment; add a line to `problems` for each mistake.

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
    """Yield each entry with its place, which is all that a message may show of it."""
    for number, entry in enumerate(values.get("EVENTSYNC_NOTIFY", "").split(), start=1):
        yield f"EVENTSYNC_NOTIFY: entry {number}", entry
    if not (file := values.get("EVENTSYNC_NOTIFY_FILE", "").strip()):
        return
    path = cwd / Path(file).expanduser()
    for number, line in enumerate(read_named_file("EVENTSYNC_NOTIFY_FILE", path, problems).splitlines(), start=1):
        words = [] if line.lstrip().startswith("#") else line.split()
        yield from ((f"EVENTSYNC_NOTIFY_FILE: {path}:{number}", word) for word in words)


def _secret_parts(address: str) -> Iterator[str]:
    """Yield passwords, and all that is not surely a plain word or a host: some services have keys for hosts and paths."""
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


_SECRET_PARTS = ("private_key", "client_secret", "refresh_token")
"""The secrets in a credentials file of Google; the rest names the account, and is worth showing."""


def source_access(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Access:
    """Return the credentials for Google Sheets and Salesforce; add a line to `problems` for each mistake.

    Whether they are sufficient is checked where a source needs them: other feeds run without.
    """
    environment = _Environment(values, cwd, problems)
    google, salesforce = _google(environment), _salesforce(environment)
    secrets = (salesforce.password, salesforce.security_token, salesforce.consumer_secret)
    mask = Mask(secret.get_secret_value() for secret in secrets)
    mask.learn(*_google_secrets(google.credentials), *_key_text(salesforce.privatekey_file))
    return Access(google, salesforce, mask)


@dataclass(frozen=True, slots=True)
class _Environment:
    """The variables of one environment; relative paths start at `cwd`."""

    values: Mapping[str, str]
    cwd: Path
    problems: list[str]

    def text(self, name: str) -> str:
        return self.values.get(name, "").strip()

    def path(self, name: str) -> Path | None:
        return (self.cwd / Path(self.text(name)).expanduser()) if self.text(name) else None

    def secret(self, name: str) -> SecretStr:
        """Return a secret from the variable, or from the file that `NAME_FILE` names."""
        direct, file = self.values.get(name, ""), self.path(f"{name}_FILE")
        if direct or file is None:
            return SecretStr(direct)
        return SecretStr(read_named_file(f"{name}_FILE", file, self.problems).strip("\r\n"))

    def address(self, name: str) -> str:
        """Return an address that secrets may be sent to: https, or this very machine."""
        problem = _unsafe(self.text(name))
        if problem:
            self.problems.append(f"{name}: {problem}")
        return "" if problem else self.text(name).rstrip("/")


def _unsafe(address: str) -> str:
    """Return what is wrong with an address, without repeating it; "" if nothing is."""
    if not address:
        return ""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return "is no address; write it like https://host.example.org"
    if parts.scheme not in {"https", "http"} or not host:
        return "is no address; write it like https://host.example.org"
    if "@" in parts.netloc:
        return "holds a user name or password; leave only the host"
    if parts.scheme == "http" and not is_loopback(host):
        return "would send secrets over plain http; https is required, except for this very machine"
    return refusal_of_host(host)


def _google(environment: _Environment) -> GoogleAccess:
    return GoogleAccess(environment.path("GOOGLE_APPLICATION_CREDENTIALS"), environment.address("EVENTSYNC_SHEETS_URL"))


def _salesforce(environment: _Environment) -> SalesforceAccess:
    return SalesforceAccess(
        username=environment.text("SALESFORCE_USERNAME"),
        password=environment.secret("SALESFORCE_PASSWORD"),
        security_token=environment.secret("SALESFORCE_SECURITY_TOKEN"),
        consumer_key=environment.text("SALESFORCE_CONSUMER_KEY"),
        consumer_secret=environment.secret("SALESFORCE_CONSUMER_SECRET"),
        privatekey_file=_key_file(environment),
        domain=_domain(environment),
        instance_url=environment.address("SALESFORCE_INSTANCE_URL"),
    )


def _key_file(environment: _Environment) -> Path | None:
    file = environment.path("SALESFORCE_PRIVATEKEY_FILE")
    if file is not None and not file.is_file():
        environment.problems.append(f"SALESFORCE_PRIVATEKEY_FILE: there is no file {file}")
    return file


def _domain(environment: _Environment) -> str:
    """Return the domain as simple-salesforce takes it: what stands before `.salesforce.com`."""
    domain = environment.text("SALESFORCE_DOMAIN") or "login"
    if "/" in domain or domain.endswith(".salesforce.com"):
        near = domain.partition("://")[2] or domain
        prefix = near.partition("/")[0].removesuffix(".salesforce.com")
        environment.problems.append(f'SALESFORCE_DOMAIN: write what stands before .salesforce.com only: "{prefix}"')
    return domain


def _google_secrets(file: Path | None) -> Iterator[str]:
    """Yield the secrets of a credentials file; the source that needs it reports one that cannot be read."""
    try:
        content: Any = json.loads(file.read_text("utf-8")) if file else {}
    except (OSError, ValueError):
        return
    if isinstance(content, dict):
        yield from (part for part in map(content.get, _SECRET_PARTS) if isinstance(part, str))


def _key_text(file: Path | None) -> Iterator[str]:
    try:
        if file:
            yield file.read_text("ascii")
    except (OSError, ValueError):
        return


PACKAGED_FEEDS = Path(__file__).parents[1] / "mappings" / "feeds"


class Settings(BaseModel):
    """The environment of one process. Paths are absolute; the key is masked wherever it is shown."""

    model_config = ConfigDict(frozen=True)

    base_url: str = ""
    api_key: SecretStr = SecretStr("")
    feeds: Path
    state_url: str = Field(repr=False)
    namespace: str = Field(default="default", min_length=1, max_length=200)
    log_format: Literal["pretty", "json"] = "pretty"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    dagster_home: Path
    dagster_url: str = ""
    metrics_port: int | None = None
    otel: Mapping[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    """The standard OTEL_* variables as they are; the OpenTelemetry SDK reads most of them by itself."""
    trace_requests: float = Field(default=0.01, ge=0, le=1)
    allow_private_images: bool = False
    access: InstanceOf[Access] = Field(default_factory=Access, repr=False, exclude=True)
    """Credentials for the services that rows are read from."""
    channels: InstanceOf[Channels] = Field(default=NOBODY, repr=False, exclude=True)
    """Who is notified."""

    @property
    def destination(self) -> str:
        """The service and the namespace that the ledger is scoped by: rehearsing never marks a row as delivered in production."""
        return destination_of(self.base_url, self.namespace)

    @property
    def service_url(self) -> str:
        """The service's address, normalised."""
        return service_of(self.base_url)

    @property
    def state_kind(self) -> str:
        """The kind of database that the ledger is in, as Dagster names it."""
        return "postgres" if self.state_url.startswith("postgres") else "sqlite"

    @cached_property
    def mask(self) -> Mask:
        """Masks the service's key, the state DB's password and all secrets of `access`, `channels` and `otel`."""
        key, passwords = self.api_key.get_secret_value(), passwords_in(self.state_url)
        self.access.mask.learn(key, *passwords, *self.channels.secrets(), *_otel_secrets(self.otel))
        return self.access.mask


def read_settings(environ: Mapping[str, str], cwd: Path) -> Settings:
    """Read the environment, and a `.env` file in `cwd` for what it does not say.

    Raises:
        ConfigError: with every problem found, one a line.
    """
    values = {**{name: value for name, value in dotenv_values(cwd / ".env").items() if value is not None}, **environ}
    problems: list[str] = []
    log_format, log_level = _log(values.get("EVENTSYNC_LOG", ""), problems)
    settings = {
        "base_url": _without_userinfo(values.get("EVENT_API_BASE_URL", "").strip(), problems),
        "api_key": _api_key(values, cwd, problems),
        "feeds": (cwd / values.get("EVENTSYNC_FEEDS", "mappings/feeds")).resolve(),
        "state_url": _absolute_sqlite(values.get("EVENTSYNC_STATE_URL", "sqlite:///.eventsync/state.db"), cwd),
        "namespace": values.get("EVENTSYNC_NAMESPACE", "default").strip() or "default",
        "log_format": log_format,
        "log_level": log_level,
        "dagster_home": (cwd / values.get("DAGSTER_HOME", ".eventsync/dagster")).resolve(),
        "dagster_url": values.get("EVENTSYNC_DAGSTER_URL", "").strip(),
        "metrics_port": _port("EVENTSYNC_METRICS_PORT", values, problems),
        "otel": {name: value for name, value in values.items() if name.startswith("OTEL_")},
        "trace_requests": _share("EVENTSYNC_TRACE_REQUESTS", values, problems),
        "allow_private_images": _switch("EVENTSYNC_ALLOW_PRIVATE_IMAGES", values, problems),
        "access": source_access(values, cwd, problems),
        "channels": read_channels(values, cwd, problems),
    }
    if problems:
        raise ConfigError("\n".join(problems), hint="mend the environment (or the .env file here) and run again")
    return Settings.model_validate(settings)


def current_settings() -> Settings:
    """Read the settings of this very process.

    Raises:
        ConfigError: as `read_settings`.
    """
    return read_settings(os.environ, Path.cwd())


def _api_key(values: Mapping[str, str], cwd: Path, problems: list[str]) -> SecretStr:
    direct, file = values.get("EVENT_API_KEY", "").strip(), values.get("EVENT_API_KEY_FILE", "").strip()
    if direct or not file:
        return _header_safe(direct, "EVENT_API_KEY", problems)
    return _header_safe(read_named_file("EVENT_API_KEY_FILE", cwd / file, problems).strip(), "EVENT_API_KEY_FILE", problems)


def _header_safe(key: str, name: str, problems: list[str]) -> SecretStr:
    if not (key.isascii() and key.isprintable()) or " " in key:
        problems.append(f"{name}: holds characters that cannot stand in an HTTP header (spaces, line ends or non-ASCII)")
        return SecretStr("")
    return SecretStr(key)


def _log(value: str, problems: list[str]) -> tuple[str, str]:
    chosen = {"format": "pretty", "level": ""}
    for word in value.replace(",", " ").split():
        if word in {"pretty", "json"}:
            chosen["format"] = word
        elif word in {"debug", "info", "warning", "error"}:
            chosen["level"] = word
        else:
            problems.append(
                f"EVENTSYNC_LOG: {word!r} is neither a format (pretty, json) nor a level (debug, info, warning, error)"
            )
    usual = "info" if chosen["format"] == "json" else "warning"  # a person at a terminal gets a report instead
    return chosen["format"], chosen["level"] or usual


def _port(name: str, values: Mapping[str, str], problems: list[str]) -> int | None:
    value = values.get(name, "").strip()
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and int(value) < 1 << 16):
        problems.append(f"{name}: {value!r} is no port; write a number up to 65535, for example 9464")
        return None
    return int(value)


def _share(name: str, values: Mapping[str, str], problems: list[str]) -> float:
    value = values.get(name, "").strip()
    try:
        share = float(value or "0.01")
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        problems.append(f"{name}: {value!r} is no share; write a number from 0 (none) to 1 (all), for example 0.01")
        return 0.0
    return share


def _switch(name: str, values: Mapping[str, str], problems: list[str]) -> bool:
    value = values.get(name, "").strip().lower()
    if value not in {"", "0", "no", "false", "1", "yes", "true"}:
        problems.append(f"{name}: {value!r} is neither yes nor no")
    return value in {"1", "yes", "true"}


def _without_userinfo(url: str, problems: list[str]) -> str:
    """Refuse an address with a password: it would become part of the state DB and of every message."""
    if passwords_in(url) or "@" in url.partition("://")[2].partition("/")[0]:
        problems.append("EVENT_API_BASE_URL: holds a user name or password; leave only the host, the key is set apart from it")
        return ""
    return url


def _absolute_sqlite(url: str, cwd: Path) -> str:
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url.startswith("sqlite:////") or ":memory:" in url:
        return url
    return prefix + str((cwd / url.removeprefix(prefix)).resolve())


def _otel_secrets(otel: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in OTEL_* variables: values of headers, passwords in addresses."""
    for name, value in otel.items():
        if name.endswith("_HEADERS"):
            for header in value.split(","):
                secret = unquote(header.partition("=")[2].strip())
                yield from (secret, *secret.split()[1:])
        if name.endswith("_ENDPOINT"):
            yield from passwords_in(value)
