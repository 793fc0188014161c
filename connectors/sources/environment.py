"""What sources are handed from outside: access to services, and a clock; nothing here reads the environment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from connectors.masking import Mask

NO_SECRET = SecretStr("")


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    """Access to Google Sheets.

    `credentials`: the file of a service account or of an authorised user; None: the machine's application-default
    credentials. `api_url`: where the API answers, "" for Google's own address.
    """

    credentials: Path | None = None
    api_url: str = ""


@dataclass(frozen=True, slots=True)
class SalesforceAccess:
    """Access to one Salesforce org, named as simple-salesforce names its arguments.

    Either `username`, `password` and `security_token`; or `consumer_key` and `consumer_secret` (client credentials); or
    `username`, `consumer_key` and `privatekey_file` (JWT). `domain`: "login", "test", or the My Domain prefix.
    `instance_url`: where the org answers, "" for where the login says.
    """

    username: str = ""
    password: SecretStr = NO_SECRET
    security_token: SecretStr = NO_SECRET
    consumer_key: str = ""
    consumer_secret: SecretStr = NO_SECRET
    privatekey_file: Path | None = None
    domain: str = "login"
    instance_url: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """All that a feed's source may need to be let in.

    `mask` hides all of it wherever a text leaves this process; a token obtained later is added to the mask.
    """

    google: GoogleAccess = field(default_factory=GoogleAccess)
    salesforce: SalesforceAccess = field(default_factory=SalesforceAccess)
    mask: Mask = field(default_factory=Mask, repr=False, compare=False)


NO_ACCESS = Access()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, handed in so that tests need not wait.

    `now`: seconds since 1970; `clock_s`: seconds on a clock that never goes back; `sleep` waits so many seconds;
    `chance`: a number from 0 up to, not including, 1.
    """

    now: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep  # noqa: TID251  # the default of what is handed in
    chance: Callable[[], float] = random.random


REAL_CLOCK = Clock()
