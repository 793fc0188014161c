"""The leaves of the error tree that both directions share: a person's key, the service's address, its absence.

The trunk is in `mappings.errors`; a source's own troubles are in `connectors.sources.contract`.

SyncError
├── ConfigError
│   ├── BaseUrlError              the configured address cannot be one of the service
│   ├── KeyFormatError            the configured key cannot be sent as a header
│   ├── NotTheServiceError        something answered, in words that the service does not use
│   └── RedirectRefusedError      a redirect would carry the bearer secret elsewhere
├── TransientError
│   ├── ServiceUnavailableError   no usable answer within the budget of attempts and time
│   │   └── OutageError           so for several rows: the circuit breaker stays open
│   └── PausedError               asked to wait longer than the feed's patience; .resume_at says until when
└── PermanentError
    ├── KeyRefusedError           401: named by its last four characters only
    ├── ScopeMissingError         403 insufficient_scope
    └── RequestRefusedError       a question about the account as a whole was refused; .answer has the words
"""

from __future__ import annotations

from datetime import datetime

from mappings.delivery import Answer
from mappings.errors import ConfigError, PermanentError, TransientError


class BaseUrlError(ConfigError):
    """The configured base URL is not an https address (or a loopback one) of a host."""


class KeyFormatError(ConfigError):
    """The configured API key is empty or holds characters that no header can carry. The key itself is never shown."""


class NotTheServiceError(ConfigError):
    """An answer that is no envelope of the service: most likely another host, path or proxy answered."""


class RedirectRefusedError(ConfigError):
    """The service's address redirects; following it would carry the bearer secret elsewhere."""


class ServiceUnavailableError(TransientError):
    """The service gave no usable answer within the budget of attempts and time."""


class OutageError(ServiceUnavailableError):
    """Several rows got no usable answer, and the row that tried the service last has used up its budget."""


class PausedError(TransientError):
    """The service asks to wait longer than the feed's patience. `resume_at`: aware time from which it will listen."""

    def __init__(self, message: str, *, resume_at: datetime, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint, retry_after_s=retry_after_s)
        self.resume_at = resume_at


class KeyRefusedError(PermanentError):
    """401: the key is missing, malformed, revoked, disabled or expired (spec, Authentication 4)."""


class ScopeMissingError(PermanentError):
    """403 insufficient_scope: the key is valid but must not do this (spec, Authentication 5)."""


class RequestRefusedError(PermanentError):
    """A question about the account as a whole (its channels, its classifications) was refused for good."""

    def __init__(self, message: str, *, answer: Answer, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.answer = answer
