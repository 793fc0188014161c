"""Which IP addresses belong to the public internet, by IANA's registries, also where one wraps another.

Who may be led where, and when that is asked, is the caller's: `event_api.addresses` for images, `sources.web_hops` for files.
"""

from __future__ import annotations

import ipaddress

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is routed between networks (RFC 4291); what is wrapped in other ranges is looked at by itself."""

_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""Ranges that are not of the public internet, by IANA's registries of special-purpose addresses.

They are written down rather than taken from `ipaddress`, which knows fewer of them in earlier versions of Python.
"""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses behind a translator (RFC 6052)."""
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
"""The middle of an interface's number whose rest is an IPv4 address (RFC 5214)."""


def is_public(address: str) -> bool:
    """Tell whether `address` (an IP literal, no name) is one of the public internet, also where it wraps an IPv4 one."""
    try:
        outer = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    reached = [outer] if isinstance(outer, ipaddress.IPv4Address) else _reached(outer)
    return all(map(_is_public, reached))


def is_link_local(address: str) -> bool:
    """Tell whether `address` (an IP literal) is one of the link alone, which nobody routes, also where it wraps an IPv4 one."""
    try:
        outer = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    reached = [outer] if isinstance(outer, ipaddress.IPv4Address) else [outer, *_reached(outer)]
    return any(one.is_link_local for one in reached)


def is_numeric(host: str) -> bool:
    """Tell whether `host` is written in numbers, and so would be connected to without asking a resolver.

    Odd spellings count as well (`127.1`, `2130706433`): the operating system understands them.
    """
    return ":" in host or host.replace(".", "").isdigit()


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL if network.version == address.version)


def _reached(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return all that an IPv6 address may lead to: itself, or the IPv4 addresses that it wraps."""
    lowest = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return [lowest]
    if address.teredo:
        return [*address.teredo]
    if address.ipv4_mapped or address.sixtofour:
        return [address.ipv4_mapped or address.sixtofour or lowest]
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return [address, lowest]
    return [address]
