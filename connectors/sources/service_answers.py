"""What the clients of web services share: a session that closes its connections, bounded answers, odd shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TypeVar

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from connectors.errors import certificate_fault
from connectors.sources.contract import BadSourceError, SourceRefusedError, SourceUnavailableError

T = TypeVar("T")

MOST_BYTES = 128 * 1024 * 1024
"""Bytes of one answer, unpacked: thirty times what 40,000 cells of a sheet or 2,000 records of an org take."""
_PIECE_BYTES = 64 * 1024
_ODD_SHAPE = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError, RecursionError)
"""What reading a JSON document raises that has another shape than its API describes."""


def check_trust(error: BaseException, host: str) -> None:
    """Raise SourceRefusedError if an exception of a request was caused by a certificate: no later attempt helps."""
    if fault := certificate_fault(error):
        hint = "correct SSL_CERT_FILE or REQUESTS_CA_BUNDLE, the clock of this machine, or the proxy that is in between"
        raise SourceRefusedError(f"the certificate of {host} is not trusted: {fault.verify_message}", hint=hint) from None


class BusyError(SourceUnavailableError):
    """The service cannot answer just now; a moment later it may."""


class ServiceSession(Session):
    """Connections to a service: no password from `~/.netrc` replaces our token; `close` closes the sockets at once."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _keep_headers

    def close(self) -> None:
        """Close the connections now, and not when the last traceback that refers to them is freed (as urllib3 does)."""
        adapters = [adapter for adapter in self.adapters.values() if isinstance(adapter, HTTPAdapter)]
        for manager in (one for adapter in adapters for one in (adapter.poolmanager, *adapter.proxy_manager.values())):
            for key in manager.pools.keys():  # noqa: SIM118  # this container cannot be iterated itself
                if (pool := manager.pools.get(key)) is not None:
                    pool.close()
        super().close()


def _keep_headers(request: PreparedRequest) -> PreparedRequest:
    return request


def read_whole(response: Response, service: str, *, hint: str) -> Response:
    """Read the body of an answer to a request with `stream`, so that `content` and `json()` have it.

    Raises:
        BadSourceError: it is too large.
        urllib3.exceptions.HTTPError: it broke off.
    """
    body = BytesIO()
    for piece in response.raw.stream(_PIECE_BYTES, decode_content=True):
        body.write(piece)
        if body.tell() > MOST_BYTES:
            response.close()
            raise BadSourceError(service, f"an answer is larger than {MOST_BYTES // 2**20} million bytes", hint=hint)
    body.seek(0)
    response.raw = body
    return response


@contextmanager
def as_odd_answer(place: str, service: str) -> Iterator[None]:
    """Turn the exceptions that an answer of an unexpected shape causes in the block into an error of the source.

    Raises:
        SourceUnavailableError: the answer has another shape than its API describes.
    """
    try:
        yield
    except _ODD_SHAPE as error:
        message = f"{place}: {service} answered in another shape than its API describes ({type(error).__name__})"
        raise SourceUnavailableError(message, hint="run again; if it happens again, please report it") from error


def in_known_shape(rows: Iterator[T], place: str, service: str) -> Iterator[T]:
    """Yield rows that are made of answers as they arrive; raises as `as_odd_answer`."""
    with as_odd_answer(place, service):
        yield from rows
