"""Names of services and destinations. A destination is a service and a namespace; the ledger is scoped by it."""

from __future__ import annotations

from urllib.parse import urlsplit

API_PREFIX = "/api/public/v1"
"""Base URLs are accepted with it and without."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def service_of(base_url: str) -> str:
    """Normalise a base URL: scheme and host in lower case, one name for loopback, no default port, no trailing slash.

    A text that is no URL is returned as it is.
    """
    text = base_url.strip().rstrip("/").removesuffix(API_PREFIX).rstrip("/")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return text
    if not parts.scheme or not host:
        return text
    host = "127.0.0.1" if host in _LOOPBACK else host
    host = f"[{host}]" if ":" in host else host
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme.lower()) else f":{port}"
    return f"{parts.scheme.lower()}://{host}{suffix}{parts.path}"


def destination_of(base_url: str, namespace: str) -> str:
    """Join a service and a namespace."""
    return f"{service_of(base_url)}#{namespace}"


def split_destination(destination: str) -> tuple[str, str]:
    """Return the service and the namespace of a destination; all of it is the service where it names no namespace."""
    service, separator, namespace = destination.rpartition("#")
    return (service, namespace) if separator else (destination, "")
