"""How the wire's failures are told: each as httpx's own error for it, and never with the request's headers and their secret.

What a failure means for a row is `answers`' and `delivery`'s.
"""

from __future__ import annotations

import aiohttp
import httpx
from aiohttp.http import HttpProcessingError


def as_httpx(failure: aiohttp.ClientError | HttpProcessingError | OSError, request: httpx.Request) -> httpx.TransportError:
    """Return what happened to `request`: an error of "never reached" only where no connection was established."""
    return _unreached(failure, request) or _lost(failure, request)


def _unreached(origin: Exception, request: httpx.Request) -> httpx.TransportError | None:
    match origin:
        case aiohttp.ClientHttpProxyError():
            return httpx.ProxyError(f"the proxy let nothing through: it answers {origin.status}", request=request)
        case aiohttp.ClientProxyConnectionError():
            return httpx.ProxyError(f"the proxy let nothing through: {_reason(origin.os_error)}", request=request)
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("no connection in time", request=request)
        case aiohttp.InvalidURL():
            return httpx.UnsupportedProtocol(f"no address to connect to: {origin}", request=request)
        case aiohttp.ClientConnectorError():
            return httpx.ConnectError(
                f"no connection to {origin.host}:{origin.port}: {_reason(origin.os_error)}", request=request
            )
        case _:
            return None


def _lost(origin: Exception, request: httpx.Request) -> httpx.TransportError:
    match origin:
        case aiohttp.ServerTimeoutError():
            return httpx.ReadTimeout("no answer in time", request=request)
        case HttpProcessingError():
            return httpx.RemoteProtocolError(f"no HTTP answer: {origin.message}", request=request)
        case _:
            # What the HTTP library adds in angle brackets is its own error, with a status that nobody sent.
            return httpx.ReadError(f"the connection broke: {str(origin).partition(': <')[0]}", request=request)


def _reason(problem: OSError) -> str:
    """Return the system's own words: connection refused, name or service not known."""
    return (problem.strerror or str(problem)).lower()
