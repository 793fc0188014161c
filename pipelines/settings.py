"""Settings: the environment variables, read and checked at once, with all problems in one error and no secret in it.

The only module that reads the environment. Addresses of notification channels contain secrets, so mapping files only name
channels.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, SecretStr, ValidationError

from connectors.addresses import is_loopback, refusal_of_host
from connectors.masking import Mask, passwords_in
from connectors.sources.contract import Access, GoogleAccess, SalesforceAccess
from mappings.delivery import destination_of
from mappings.errors import ConfigError

PACKAGED_FEEDS = Path(__file__).parents[1] / "mappings" / "feeds"
EVERYTHING = "all"
"""The channel of addresses without a name, which every feed uses."""
OWNER = "{owner}"
"""Placeholder in an address for the owner of a feed."""
_NAME = r"[\w.+-]+(?:@[\w.-]+)?"
_ENTRY = re.compile(rf"(?:(?P<names>{_NAME}(?:,{_NAME})*)=)?(?P<url>[A-Za-z][A-Za-z0-9.+-]*://\S+)")
_MAIL = re.compile(r"[\w.+'-]+@[\w-]+(?:\.[\w-]+)+")
_OPEN_QUERY = frozenset({"to", "cc", "bcc", "from", "reply", "name", "smtp", "format", "mode", "overflow"})
_PLAIN_WORD = re.compile(r"#?[a-z]+(?:[-_.][a-z]+)*")
_GOOGLE_SECRETS = ("private_key", "client_secret", "refresh_token")
"""The secret fields of a Google credentials file; the others identify the account and may be shown."""
_LOG_FORMATS, _LOG_LEVELS = ("pretty", "json"), ("debug", "info", "warning", "error")
_CHECKED = {
    "namespace": ("EVENTSYNC_NAMESPACE", "is longer than 200 characters"),
    "metrics_port": ("EVENTSYNC_METRICS_PORT", "is not a port; write a number up to 65535, for example 9464"),
    "allow_private_images": ("EVENTSYNC_ALLOW_PRIVATE_IMAGES", "is neither yes nor no; write one of them"),
}
"""Settings that are validated by their types: the variable, and the sentence about an invalid value."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address, and the name under which it is shown and remembered."""

    name: str
    address: SecretStr


@dataclass(frozen=True, slots=True)
class Channels:
    """The addresses of each notification channel, in the order of the environment."""

    addresses: Mapping[str, tuple[SecretStr, ...]] = field(default_factory=dict)

    def recipients(self, owner: str, notify: Sequence[str]) -> tuple[Recipient, ...]:
        """Return the recipients of a feed: its channels, the channel named like its owner, and the channel for every feed.

        An address with a place for the owner is left out if the owner is not a mail address.
        """
        found: dict[str, Recipient] = {}
        for channel in dict.fromkeys((*notify, owner, EVERYTHING)):
            for number, address in enumerate(self.addresses.get(channel, ()), start=1):
                text, name = address.get_secret_value(), channel if number == 1 else f"{channel} ({number})"
                if OWNER in text:
                    if not _MAIL.fullmatch(owner):
                        continue
                    text, name = text.replace(OWNER, quote(owner, safe="@")), f"{name} ({owner})"
                found.setdefault(text, Recipient(name, SecretStr(text)))
        return tuple(found.values())

    def unknown(self, notify: Sequence[str]) -> tuple[str, ...]:
        """Return the channels that the environment does not define."""
        return tuple(name for name in notify if name not in self.addresses)

    def secrets(self) -> Iterator[str]:
        """Yield the addresses, and those parts of them that may be keys."""
        for address in (one.get_secret_value() for each in self.addresses.values() for one in each):
            yield address
            yield from _secret_parts(address)


def _secret_parts(address: str) -> Iterator[str]:
    """Yield passwords, and every part that is not clearly a plain word or host: some services put keys into hosts and paths."""
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
    for part in maybe:
        if not (_PLAIN_WORD.fullmatch(part) or _MAIL.fullmatch(unquote(part)) or OWNER in part):
            yield from (part, unquote(part))


@dataclass(frozen=True, slots=True)
class _Environment:
    """The variables of one environment; relative paths start at `cwd`. Each mistake is added to `problems`."""

    values: Mapping[str, str]
    cwd: Path
    problems: list[str]

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, "").strip() or default

    def path(self, name: str) -> Path | None:
        return (self.cwd / Path(self.text(name)).expanduser()) if self.text(name) else None

    def read_file(self, name: str) -> str:
        """Return the text of the file that a variable names, "" if it is not set."""
        file = self.path(name)
        try:
            return file.read_text(encoding="utf-8-sig") if file else ""
        except UnicodeDecodeError:
            self.problems.append(f"{name}: {file} is not text in UTF-8")
        except OSError as error:
            self.problems.append(f"{name}: cannot read {file}: {error.strerror or error}")
        return ""

    def secret(self, name: str) -> SecretStr:
        """Return a secret from the variable, or from the file that `NAME_FILE` names."""
        direct = self.values.get(name, "")
        return SecretStr(direct if direct.strip() else self.read_file(f"{name}_FILE").strip("\r\n"))

    def header(self, name: str, secret: SecretStr) -> SecretStr:
        """Return a secret as the value of an HTTP header; an invalid character is a problem."""
        key = secret.get_secret_value().strip()
        if key.isascii() and key.isprintable() and " " not in key:
            return SecretStr(key)
        where = name if self.text(name) else f"{name}_FILE"
        self.problems.append(
            f"{where}: contains characters that are not allowed in an HTTP header (spaces, line ends or non-ASCII)"
        )
        return SecretStr("")

    def address(self, name: str) -> str:
        """Return an address that secrets may be sent to: https, or on this machine."""
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
        host = ""
    if not host or parts.scheme not in {"https", "http"}:
        return "is not an address; write it like https://host.example.org"
    if "@" in parts.netloc:
        return "contains a user name or password; leave only the host"
    if parts.scheme == "http" and not is_loopback(host):
        return "would send secrets over plain http; use https, which is required except on this machine"
    return refusal_of_host(host)


def read_channels(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Channels:
    """Return the channels of an environment; add each mistake to `problems`, by its position only.

    `EVENTSYNC_NOTIFY` has addresses separated by blanks; `EVENTSYNC_NOTIFY_FILE` names a file with addresses (lines that begin
    with # are comments). Each is an address or `name=address`; several names are separated by commas.
    """
    environment, channels = _Environment(values, cwd, problems), dict[str, list[SecretStr]]()
    words = enumerate(environment.text("EVENTSYNC_NOTIFY").split(), start=1)
    entries = [(f"EVENTSYNC_NOTIFY: entry {number}", word) for number, word in words]
    file = environment.path("EVENTSYNC_NOTIFY_FILE")
    for number, line in enumerate(environment.read_file("EVENTSYNC_NOTIFY_FILE").splitlines(), start=1):
        if not line.lstrip().startswith("#"):
            entries += [(f"EVENTSYNC_NOTIFY_FILE: {file}:{number}", word) for word in line.split()]
    for where, entry in entries:
        if parsed := _ENTRY.fullmatch(entry):
            for name in (parsed["names"] or EVERYTHING).split(","):
                channels.setdefault(name, []).append(SecretStr(parsed["url"]))
        else:
            problems.append(
                f"{where}: is not an address; write it like json://host.example.org/path or ops=mailtos://user:secret@host"
            )
    return Channels({name: tuple(dict.fromkeys(addresses)) for name, addresses in channels.items()})


def _read_access(environment: _Environment) -> Access:
    """Return the credentials for Google Sheets and Salesforce.

    A source checks whether they are sufficient; feeds without such a source do not need them. `domain` is the part before
    `.salesforce.com`, as simple-salesforce expects it.
    """
    domain, key_file = environment.text("SALESFORCE_DOMAIN", "login"), environment.path("SALESFORCE_PRIVATEKEY_FILE")
    if key_file is not None and not key_file.is_file():
        environment.problems.append(f"SALESFORCE_PRIVATEKEY_FILE: there is no file {key_file}")
    if "/" in domain or domain.endswith(".salesforce.com"):
        prefix = (domain.partition("://")[2] or domain).partition("/")[0].removesuffix(".salesforce.com")
        environment.problems.append(f'SALESFORCE_DOMAIN: write only the part before .salesforce.com: "{prefix}"')
    google = GoogleAccess(environment.path("GOOGLE_APPLICATION_CREDENTIALS"), environment.address("EVENTSYNC_SHEETS_URL"))
    salesforce = SalesforceAccess(
        username=environment.text("SALESFORCE_USERNAME"),
        password=environment.secret("SALESFORCE_PASSWORD"),
        security_token=environment.secret("SALESFORCE_SECURITY_TOKEN"),
        consumer_key=environment.text("SALESFORCE_CONSUMER_KEY"),
        consumer_secret=environment.secret("SALESFORCE_CONSUMER_SECRET"),
        privatekey_file=key_file,
        domain=domain,
        instance_url=environment.address("SALESFORCE_INSTANCE_URL"),
    )
    named = {name: environment.secret(name) for name in _named_secrets(environment.values)}
    secrets = (salesforce.password, salesforce.security_token, salesforce.consumer_secret, *named.values())
    mask = Mask(secret.get_secret_value() for secret in secrets)
    mask.learn(*(part for secret in named.values() for part in passwords_in(secret.get_secret_value())))
    # A file that cannot be read is reported by the source that needs it.
    with suppress(OSError, ValueError):
        mask.learn(key_file.read_text("utf-8") if key_file else "")
    with suppress(OSError, ValueError):
        content: Any = json.loads(google.credentials.read_text("utf-8")) if google.credentials else {}
        parts = map(content.get, _GOOGLE_SECRETS) if isinstance(content, dict) else ()
        mask.learn(*(part for part in parts if isinstance(part, str)))
    return Access(google, salesforce, named, _environment_of_programs(environment), mask)


_SEEN_BY_PROGRAMS = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)
"""The variables, also in lower case, that programs named by mapping files see, beside `LC_...`. None is a secret of ours."""


def _environment_of_programs(environment: _Environment) -> Mapping[str, str] | None:
    """Return the environment of programs that mapping files name, None unless `EVENTSYNC_ALLOW_COMMANDS` allows them."""
    allowed = environment.text("EVENTSYNC_ALLOW_COMMANDS", "0")
    if allowed not in {"0", "1"}:
        environment.problems.append(f"EVENTSYNC_ALLOW_COMMANDS: {allowed!r} is neither 1 nor 0; write one of them")
    seen = {name: value for name, value in environment.values.items() if name.upper() in _SEEN_BY_PROGRAMS or name[:3] == "LC_"}
    return seen if allowed == "1" else None


def _named_secrets(names: Iterable[str]) -> set[str]:
    """Return the variables of secrets that mapping files name, set themselves or by `..._FILE`."""
    return {name.removesuffix("_FILE") for name in names if name.startswith(("REST_", "SQL_", "TAP_"))}


_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def _network_problems(environ: Mapping[str, str], cwd: Path) -> Iterator[str]:
    """Yield the problems of the variables that every HTTP library reads by itself, without repeating a proxy's address."""
    for name in _AUTHORITIES:
        path = cwd / environ.get(name, "")
        if environ.get(name) and not (path.is_dir() if name == "SSL_CERT_DIR" else path.exists()):
            yield f"{name}: there is no {path}, where the trusted certificates are; correct the variable, or unset it"
    certificates = cwd / environ.get("SSL_CERT_FILE", "")
    if certificates.is_file():
        try:  # without parsing them, which takes 30 ms for a usual file
            is_pem, why = b"CERTIFICATE-----" in certificates.read_bytes(), ""
        except OSError as error:
            is_pem, why = False, f" ({error.strerror})"
        if not is_pem:
            yield f"SSL_CERT_FILE: it holds no certificates in PEM format that can be read{why}"
    if "*" in {one.strip() for one in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")}:
        return
    for name in _PROXIES:
        written = name if environ.get(name) else name.upper()
        scheme, mark, _ = environ.get(written, "").partition("://")
        if mark and scheme.lower() not in {"http", "https"}:
            kind = scheme if scheme.isalnum() else "its scheme"
            yield f"{written}: {kind} is no kind of proxy that eventsync can use; name one like http://host:port, or unset it"


class Settings(BaseModel):
    """The settings of one process. Paths are absolute; the key is masked wherever it is shown."""

    model_config = ConfigDict(frozen=True)

    base_url: str = ""
    api_key: SecretStr = SecretStr("")
    feeds: Path
    files: tuple[Path, ...] = ()
    """Folders beside that of a mapping file in which it may name files."""
    state_url: str = Field(repr=False)
    namespace: str = Field(default="default", min_length=1, max_length=200)
    log_format: Literal["pretty", "json"] = "pretty"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    dagster_home: Path
    dagster_url: str = ""
    location: str = "eventsync"
    """The name of the Dagster code location that has these feeds."""
    ui_hosts: tuple[str, ...] = ()
    """Further hosts, with their ports, under which browsers and commands reach the Dagster UI."""
    metrics_port: int | None = Field(default=None, ge=0, lt=1 << 16)
    allow_private_images: bool = False
    access: InstanceOf[Access] = Field(default_factory=Access, repr=False, exclude=True)
    """Credentials for the services that rows are read from."""
    channels: InstanceOf[Channels] = Field(default_factory=Channels, repr=False, exclude=True)
    """The addresses that notifications are sent to."""

    @property
    def destination(self) -> str:
        """The service and the namespace, which scope the ledger: rows sent to a test service never count as delivered in
        production.
        """
        return destination_of(self.base_url, self.namespace)

    @property
    def state_kind(self) -> str:
        """The kind of the state DB, in Dagster's words."""
        return "postgres" if self.state_url.startswith("postgres") else "sqlite"

    @cached_property
    def mask(self) -> Mask:
        """A mask for the service's key, the state DB's password and all secrets of `access` and `channels`."""
        key, passwords = self.api_key.get_secret_value(), passwords_in(self.state_url)
        self.access.mask.learn(key, *passwords, *self.channels.secrets())
        return self.access.mask


def read_settings(environ: Mapping[str, str], cwd: Path) -> Settings:
    """Read the settings from the environment, and from a `.env` file in `cwd` for variables that are not set.

    Raises:
        ConfigError: with every problem found, one per line.
    """
    values = {**{name: value for name, value in dotenv_values(cwd / ".env").items() if value is not None}, **environ}
    environment = _Environment(values, cwd, [])
    words = environment.text("EVENTSYNC_LOG").replace(",", " ").split()
    formats, levels = ([word for word in words if word in known] for known in (_LOG_FORMATS, _LOG_LEVELS))
    for word in words:
        if word not in {*_LOG_FORMATS, *_LOG_LEVELS}:
            expected = f"a format ({', '.join(_LOG_FORMATS)}) nor a level ({', '.join(_LOG_LEVELS)})"
            environment.problems.append(f"EVENTSYNC_LOG: {word!r} is neither {expected}")
    log_format = formats[-1] if formats else "pretty"
    # Pretty logs are for a person, who also gets a report: warnings are enough by default.
    log_level = levels[-1] if levels else "info" if log_format == "json" else "warning"
    fields = {
        "base_url": _base_url(environment),
        "api_key": environment.header("EVENT_API_KEY", environment.secret("EVENT_API_KEY")),
        "feeds": (cwd / environment.text("EVENTSYNC_FEEDS", "mappings/feeds")).resolve(),
        "files": tuple(cwd / Path(name).expanduser() for name in environment.text("EVENTSYNC_FILES").split(os.pathsep) if name),
        "state_url": _state_url(environment.text("EVENTSYNC_STATE_URL", "sqlite:///.eventsync/state.db"), cwd),
        "log_format": log_format,
        "log_level": log_level,
        "dagster_home": (cwd / environment.text("DAGSTER_HOME", ".eventsync/dagster")).resolve(),
        "dagster_url": environment.text("EVENTSYNC_DAGSTER_URL"),
        "location": environment.text("EVENTSYNC_LOCATION", "eventsync"),
        "ui_hosts": tuple(environment.text("EVENTSYNC_UI_HOSTS").lower().split()),
        "access": _read_access(environment),
        "channels": read_channels(values, cwd, environment.problems),
    }
    fields |= {each: text for each, (name, _) in _CHECKED.items() if (text := environment.text(name))}
    problems = environment.problems
    problems += _network_problems(environ, cwd)
    try:
        settings = Settings.model_validate(fields)
    except ValidationError as error:
        for name, problem in (_CHECKED[str(one["loc"][0])] for one in error.errors()):
            problems.append(f"{name}: {environment.text(name)!r} {problem}")
    if problems:
        raise ConfigError("\n".join(problems), hint="correct the environment (or the .env file here) and run again")
    return settings


def current_settings() -> Settings:
    """Read the settings of this process.

    Raises:
        ConfigError: as `read_settings`.
    """
    return read_settings(os.environ, Path.cwd())


def _base_url(environment: _Environment) -> str:
    """Return the service's address; refuse one with a password, which would appear in the state DB and in messages."""
    url = environment.text("EVENT_API_BASE_URL")
    if not passwords_in(url) and "@" not in url.partition("://")[2].partition("/")[0]:
        return url
    problem = "contains a user name or password; leave only the host, the key has its own variable"
    environment.problems.append(f"EVENT_API_BASE_URL: {problem}")
    return ""


def _state_url(url: str, cwd: Path) -> str:
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url.startswith("sqlite:////") or ":memory:" in url:
        return url
    return prefix + str((cwd / url.removeprefix(prefix)).resolve())
