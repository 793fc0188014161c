"""The picture that an event asks for, compiled: of several, the first whose address can be used.

Fetching it is `connectors`' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mappings.compiling import Compiled, Compiler
from mappings.evaluation import Getter, RowState, is_empty
from mappings.positions import Spot
from mappings.refusals import Refusal
from mappings.spec.values import Image, Items
from mappings.transforms.urls import clean_url
from mappings.vocabulary import Cover


def compile_cover(compiler: Compiler, value: Image, spot: Spot) -> Getter:
    """Compile the image of an event: what gives its Cover, or None, and notes what was wrong with the address."""
    several = value.image.root if isinstance(value.image, Items) else (value.image,)
    parts = [compiler.value(one, spot.inner("image", may_be_empty=True)) for one in several]
    inner = parts[0] if len(parts) == 1 and not parts[0].flow.is_list else _first_usable(parts)
    return _cover(inner, value.on_error, "" if value.default is None else clean_url(value.default))


def _cover(inner: Compiled, on_error: str, default: str) -> Getter:
    policy = f"{on_error} {default}" if default else on_error

    def cover(row: RowState) -> Any:
        try:
            found = inner.get(row)
            return None if is_empty(found) else Cover(clean_url(str(found)), policy)
        except Refusal as refusal:
            reason = refusal.about(inner.column, "", "image").reason("coverImage")
        if on_error == "reject":
            row.reasons.append(reason)
            return None
        row.warnings.append(reason)
        row.is_draft = row.is_draft or on_error == "draft"
        return Cover(default, "omit") if default else None

    return cover


def _first_usable(parts: Sequence[Compiled]) -> Compiled:
    """Return the first address that is one; where none is, the first refusal, or nothing."""
    column = next((part.column for part in parts if part.column), "")

    def first(row: RowState) -> Any:
        refused: Refusal | None = None
        for found in (one for part in parts for one in _addresses(part, row)):
            if not isinstance(found, Refusal):
                return found
            refused = refused or found
        if refused is not None:
            raise refused
        return None

    return Compiled(first, column=column)


def _addresses(part: Compiled, row: RowState) -> Iterator[str | Refusal]:
    try:
        found = part.get(row)
    except Refusal as refusal:
        if not refusal.is_empty:
            yield refusal.about(part.column, "", "image")
        return
    for one in found if type(found) is list else [found]:
        if not is_empty(one):
            yield _address(str(one), part.column)


def _address(text: str, column: str) -> str | Refusal:
    try:
        return clean_url(text)
    except Refusal as refusal:
        return refusal.about(column, text, "image")
