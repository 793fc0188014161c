"""Who we are to the services that rows are read from, as the environment says it: Google Sheets and Salesforce.

How it is used is `connectors.sources`'s; what else the environment says, and that it is read once, `settings`'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from connectors.addresses import is_loopback, refusal_of_host
from connectors.masking import Mask
from connectors.sources.environment import Access, GoogleAccess, SalesforceAccess
from pipelines.named_files import read_named_file

_SECRET_PARTS = ("private_key", "client_secret", "refresh_token")
"""What is secret in a credentials file of Google; the rest names the account, and is worth showing."""


def source_access(values: Mapping[str, str], cwd: Path, problems: list[str]) -> Access:
    """Return what the environment `values` say, and add what is wrong with them to `problems`, a line each.

    Whether it is enough to be let in is found out where a source needs it: other feeds run without.
    """
    environment = _Environment(values, cwd, problems)
    google, salesforce = _google(environment), _salesforce(environment)
    secrets = (salesforce.password, salesforce.security_token, salesforce.consumer_secret)
    mask = Mask(secret.get_secret_value() for secret in secrets)
    mask.learn(*_google_secrets(google.credentials), *_key_text(salesforce.privatekey_file))
    return Access(google, salesforce, mask)


@dataclass(frozen=True, slots=True)
class _Environment:
    """The variables of one environment, and what is wrong with them; `cwd` is where relative paths start."""

    values: Mapping[str, str]
    cwd: Path
    problems: list[str]

    def text(self, name: str) -> str:
        return self.values.get(name, "").strip()

    def path(self, name: str) -> Path | None:
        return (self.cwd / Path(self.text(name)).expanduser()) if self.text(name) else None

    def secret(self, name: str) -> SecretStr:
        """Return a secret as it stands, or as the file that `NAME_FILE` names holds it."""
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
    """Say what is wrong with an address, without repeating it; "" if nothing is."""
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
    """Yield what is secret in a credentials file; one that cannot be read is complained of by the source that needs it."""
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
