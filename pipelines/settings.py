"""What the environment asks for, read once and checked as a whole: every problem at once, no secret in any message.

The only reader of the environment. What is then opened with it is `wiring`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, SecretStr

from connectors.masking import Mask, passwords_in
from connectors.sources.environment import Access
from mappings.delivery import destination_of, service_of
from mappings.errors import ConfigError
from pipelines.channels import NOBODY, Channels, read_channels
from pipelines.named_files import read_named_file
from pipelines.source_access import source_access

PACKAGED_FEEDS = Path(__file__).parents[1] / "mappings" / "feeds"


class Settings(BaseModel):
    """The environment of one process, as `docs` lists it. Paths are absolute; the key is masked wherever it is shown."""

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
    """The standard OTEL_* variables as they are; what they ask for is `otel_env`'s."""
    trace_requests: float = Field(default=0.01, ge=0, le=1)
    allow_private_images: bool = False
    access: InstanceOf[Access] = Field(default_factory=Access, repr=False, exclude=True)
    """Who we are to the services that rows are read from."""
    channels: InstanceOf[Channels] = Field(default=NOBODY, repr=False, exclude=True)
    """Who is told what needs somebody."""

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
        """What hides all that must not be seen: the service's key, the state DB's password, what `access` and `channels` hold."""
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
    """Take no address that holds a password: it would become part of the state DB and of every message."""
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
    """Yield what OTEL_* variables hold that nobody must see: values of headers, passwords in addresses."""
    for name, value in otel.items():
        if name.endswith("_HEADERS"):
            for header in value.split(","):
                secret = unquote(header.partition("=")[2].strip())
                yield from (secret, *secret.split()[1:])
        if name.endswith("_ENDPOINT"):
            yield from passwords_in(value)
