"""The specified page and a feed that fits it, to be changed in one place each; no claim stands here."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from connectors.event_api.contract_check import compare
from connectors.event_api.openapi import Node, NoPage, read_page
from mappings.outgoing import Drift, Outgoing, outgoing_of
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[3]
SPECIFIED = (ROOT / "sandbox" / "public-api-v1.yaml").read_bytes()
Tree = dict[str, Any]
Change = Callable[[Tree], object]

_TREE: Tree = yaml.load(SPECIFIED, Loader=yaml.CSafeLoader)


def feed(name: str = "lisbon-agenda") -> Outgoing:
    return outgoing_of(load_feed(ROOT / "mappings" / "feeds" / f"{name}.yaml"))


def tree_with(*changes: Change) -> Tree:
    tree = deepcopy(_TREE)
    for change in changes:
        change(tree)
    return tree


def page(tree: Tree) -> Node:
    read = read_page(json.dumps(tree).encode())
    assert not isinstance(read, NoPage)
    return read


def drifts(*changes: Change, sent: Outgoing | None = None) -> tuple[Drift, ...]:
    """The differences between a feed and the page with these changes."""
    return compare(page(tree_with(*changes)), sent or feed())


def event(tree: Tree) -> Tree:
    """The schema of the create payload."""
    schema: Tree = tree["components"]["schemas"]["EventCreate"]
    return schema


def create(tree: Tree) -> Tree:
    operation: Tree = tree["paths"]["/events"]["post"]
    return operation
