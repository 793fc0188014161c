"""The one door through which requests go to Salesforce: time limits on all of them, one address if one was named.

simple-salesforce logs in and speaks REST over it; what answers mean is `salesforce_org`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter

from connectors.addresses import is_loopback
from connectors.retry import http_date, retry_after_s
from connectors.sources.whole_answers import read_whole
from mappings.errors import ConfigError

CONNECT_S = 10.0
READ_S = 130.0
"""Salesforce itself gives a query up after 120 seconds."""

_USAGE = re.compile(r"(?:^|[\s,;])api-usage=(\d+)/(\d+)", re.ASCII)


@dataclass(slots=True)
class Told:
    """What answers said beside their content: requests used of those allowed in 24 hours, and the org's own time.

    `sent`: the requests that this reading sent, logins among them. `status`: that of the last answer, 0 before the first.
    """

    used: int = 0
    allowed: int = 0
    now: datetime | None = None
    retry_after_s: float | None = None
    sent: int = 0
    status: int = 0

    @property
    def share(self) -> float:
        """The share of the daily requests that is used, 0 while nothing is known."""
        return self.used / self.allowed if self.allowed else 0.0

    def hear(self, response: requests.Response) -> None:
        """Note what an answer's head says."""
        self.status = response.status_code
        if match := _USAGE.search(response.headers.get("Sforce-Limit-Info", "")):
            self.used, self.allowed = int(match[1]), int(match[2])
        self.retry_after_s = retry_after_s(response.headers)
        self.now = http_date(response.headers.get("Date", "")) or self.now


class OrgSession(requests.Session):
    """The connections to one org.

    simple-salesforce puts its addresses together itself (`https://{domain}.salesforce.com`); with `instance_url` every request,
    logins too, goes there instead: a My Domain address, or a server on this machine.
    """

    def __init__(self, instance_url: str, told: Told) -> None:
        super().__init__()
        # Without one, requests looks for a password in ~/.netrc and sends that instead of our token.
        self.auth = _as_it_is
        self._instance = checked_url(instance_url)
        self._told = told

    # The base class takes fifteen parameters by position; those after the address pass through as they are.
    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; redirects are answers like others, as they would lead our token elsewhere."""
        kwargs.setdefault("timeout", (CONNECT_S, READ_S))
        kwargs["allow_redirects"] = False
        self._told.sent += 1
        is_streamed = kwargs.get("stream", False)
        kwargs["stream"] = True
        response = super().request(method, self._where(url), *args, **kwargs)
        self._told.hear(response)
        hint = "ask for fewer fields, or write api: bulk"
        return response if is_streamed else read_whole(response, "Salesforce", hint=hint)

    def close(self) -> None:
        """Close the connections: now, and not when the last traceback that knows of them is forgotten."""
        adapters = [one for one in self.adapters.values() if isinstance(one, HTTPAdapter)]
        for manager in (manager for one in adapters for manager in (one.poolmanager, *one.proxy_manager.values())):
            for key in manager.pools.keys():  # noqa: SIM118  # it is no mapping that could be iterated itself
                manager.pools[key].close()
        super().close()

    def _where(self, url: str) -> str:
        if not self._instance:
            return url
        wanted, parts = urlsplit(self._instance), urlsplit(url)
        return urlunsplit((wanted.scheme, wanted.netloc, parts.path, parts.query, ""))


def checked_url(url: str) -> str:
    """Return an instance's address without its end, "" for none.

    Raises:
        ConfigError: it is no address, or one to which passwords would travel unencrypted.
    """
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query:
        message = "SALESFORCE_INSTANCE_URL is not the address of an org"
        raise ConfigError(message, hint="write it like https://example.my.salesforce.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        message = f"SALESFORCE_INSTANCE_URL ({parts.hostname}) is not encrypted, and passwords would travel to it"
        raise ConfigError(message, hint="write https:// instead of http://")
    return f"{parts.scheme}://{parts.netloc}"


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
