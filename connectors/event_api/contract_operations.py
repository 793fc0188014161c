"""The operations of an OpenAPI page by method and path, with what each asks for and answers.

Which of them the worker uses is `contract_worker`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from connectors.event_api.contract_schema import Node, SchemaReader

_METHODS = ("get", "post", "put", "patch", "delete")
_VARIABLE = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `path` is its whole path, the server's included."""

    method: str
    path: str
    node: Node
    parameters: tuple[Node, ...]
    security: tuple[Node, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Operations:
    """The operations of one page."""

    def __init__(self, tree: Node, reader: SchemaReader) -> None:
        self._tree = tree
        self._reader = reader
        self.all = tuple(self._every())

    def find(self, method: str, path: str) -> Operation | None:
        """Return the operation at a path of ours; a page that names no server may leave our prefix out."""
        ours = [one for one in self.all if one.method == method]
        fitting = [one for one in ours if one.path == path or one.path.endswith(path)]
        fitting += [one for one in ours if path.endswith(one.path)] if self._is_placeless else []
        return next(iter(fitting), None)

    def elsewhere(self, method: str, path: str) -> Operation | None:
        """Return an operation whose path ends like ours: where it may have moved to."""
        last = path.rpartition("/")[2]
        return next((one for one in self.all if one.method == method and one.path.endswith(f"/{last}")), None)

    def request_types(self, operation: Operation) -> Mapping[str, Node]:
        """Return the schemas of the request's body by media type, in lower case and without parameters."""
        return self._content(self._reader.resolved(operation.node.get("requestBody")))

    def answer_schema(self, operation: Operation, first_digit: str) -> Node | None:
        """Return the JSON schema of the first answer whose status begins so, None where the page describes none."""
        answers = _mapping(operation.node.get("responses"))
        told = next((answers[status] for status in sorted(answers) if status.startswith(first_digit)), answers.get("default"))
        content = self._content(self._reader.resolved(told))
        return next((schema for kind, schema in content.items() if "json" in kind), None)

    def scheme(self, name: str) -> Node:
        """Return a security scheme by its name."""
        schemes = _mapping(_mapping(self._tree.get("components")).get("securitySchemes"))
        return self._reader.resolved(schemes.get(name))

    @property
    def _is_placeless(self) -> bool:
        return not self._tree.get("servers")

    def _every(self) -> Iterator[Operation]:
        for path, told in _mapping(self._tree.get("paths")).items():
            item = self._reader.resolved(told)
            for method in _METHODS:
                node = item.get(method)
                if isinstance(node, Mapping):
                    yield self._operation(method, path, item, node)

    def _operation(self, method: str, path: str, item: Node, node: Node) -> Operation:
        servers = node.get("servers") or item.get("servers") or self._tree.get("servers")
        first = next((one.get("url") for one in _mappings(servers)), "")
        whole = f"{_path_of(first)}/{path.strip('/')}"
        parameters = [
            self._reader.resolved(one) for one in (*_mappings(item.get("parameters")), *_mappings(node.get("parameters")))
        ]
        security = node.get("security", self._tree.get("security"))
        return Operation(method.upper(), whole, node, tuple(parameters), tuple(_mappings(security)))

    def _content(self, node: Node) -> Mapping[str, Node]:
        content = _mapping(node.get("content"))
        return {kind.partition(";")[0].strip().lower(): _mapping(_mapping(part).get("schema")) for kind, part in content.items()}


def _path_of(server: object) -> str:
    """Return the path of a server's address, without its last slash; what cannot be read is none."""
    try:
        path = urlsplit(_VARIABLE.sub("x", server)).path if isinstance(server, str) else ""
    except ValueError:
        return ""
    return f"/{path.strip('/')}" if path.strip("/.") else ""


def _mapping(told: object) -> Mapping[str, Any]:
    return told if isinstance(told, Mapping) else {}


def _mappings(told: object) -> list[Mapping[str, Any]]:
    return [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
