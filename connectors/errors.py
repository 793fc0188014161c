"""Errors shared by sources and the service's client: the API key, the service's address, an unavailable service.

The root is in `mappings.errors`; errors of sources are in `connectors.sources.contract`.

SyncError
├── ConfigError
│   ├── BaseUrlError              the configured address cannot be the service's
│   ├── KeyFormatError            the configured key cannot be sent as a header
│   ├── CertificateError          a certificate is not accepted, or those to trust cannot be read
│   ├── ProxyAddressError         the environment names a proxy that cannot be used
│   ├── NotTheServiceError        the answer does not have the service's format
│   └── RedirectRefusedError      a redirect would send the API key elsewhere
├── TransientError
│   ├── ServiceUnavailableError   no usable answer within the budget of attempts and time
│   │   └── OutageError           no usable answer for several rows: the circuit breaker stays open
│   └── PausedError               asked to wait longer than the feed's patience; .resume_at is the end of the pause
└── PermanentError
    ├── KeyRefusedError           401: the key, named by its last four characters only
    ├── ScopeMissingError         403 insufficient_scope
    └── RequestRefusedError       a request about the whole account was refused; .answer has the service's text
"""

from __future__ import annotations

import ssl
from datetime import datetime

from mappings.delivery import Answer
from mappings.errors import ConfigError, PermanentError, TransientError


class BaseUrlError(ConfigError):
    """The configured base URL is not an https address (or a loopback address)."""


class KeyFormatError(ConfigError):
    """The configured API key is empty or has characters that a header cannot contain. The error never shows the key."""


class CertificateError(ConfigError):
    """A server's certificate is not accepted, or the certificates to trust cannot be read."""


class ProxyAddressError(ConfigError):
    """The environment names a proxy that cannot be used. The error never shows its address, which may hold a password."""


class NotTheServiceError(ConfigError):
    """The answer does not have the service's format: most likely another host, path or proxy answered."""


class RedirectRefusedError(ConfigError):
    """The service's address redirects; following the redirect would send the API key elsewhere."""


class ServiceUnavailableError(TransientError):
    """The service gave no usable answer within the budget of attempts and time."""


class OutageError(ServiceUnavailableError):
    """Several rows got no usable answer, and the row that probed the service last has used up its budget."""


class PausedError(TransientError):
    """The service asks to wait longer than the feed's patience. `resume_at`: the end of the pause (aware)."""

    def __init__(self, message: str, *, resume_at: datetime, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint, retry_after_s=retry_after_s)
        self.resume_at = resume_at


class KeyRefusedError(PermanentError):
    """401: the key is missing, malformed, revoked, disabled or expired (spec, Authentication 4)."""


class ScopeMissingError(PermanentError):
    """403 insufficient_scope: the key is valid but must not do this (spec, Authentication 5)."""


class RequestRefusedError(PermanentError):
    """A request about the whole account (its channels or classifications) was refused permanently."""

    def __init__(self, message: str, *, answer: Answer, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.answer = answer


def certificate_fault(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the certificate's error among the causes of an error, None if it has another cause."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error
