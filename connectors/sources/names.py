"""How the columns of a source get their names, and how the names that a mapping uses are found among them.

Where in a file the header stands is that kind of file's matter.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_DROP_INVISIBLE = str.maketrans(dict.fromkeys(_INVISIBLE))


def folded(name: str) -> str:
    """Return what two spellings of one column name share: neither case nor spaces nor Unicode form count."""
    return "".join(unicodedata.normalize("NFC", name).translate(_DROP_INVISIBLE).casefold().split())


def column_names(header: Sequence[str]) -> tuple[str, ...]:
    """Name every column, each name once.

    Names are trimmed of all Unicode spaces and invisible characters. A nameless column is called after its position,
    `#3`; of several with one name the first keeps it and the later ones become `Name#2`, `Name#3`.
    """
    wished = [_trimmed(cell) or f"#{position}" for position, cell in enumerate(header, start=1)]
    taken: set[str] = set()
    names = []
    for name in wished:
        free = name if name not in taken else _numbered(name, taken.union(wished))
        taken.add(free)
        names.append(free)
    return tuple(names)


def matched(names: Sequence[str], wanted: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rename columns as the mapping spells them; return the names and those wanted ones that no column answers to.

    A wanted name means the column of exactly that name; else the one column that differs only in case, spaces or
    Unicode form; else, spelt `#3`, the third column. Two columns that differ only so are not guessed between.
    """
    found = {name: position for position, name in enumerate(names) if name in wanted}
    for find in (_alike, _at_position):
        for name in sorted(set(wanted) - found.keys()):
            position = find(name, names, found.values())
            if position is not None:
                found[name] = position
    spelt = {position: name for name, position in found.items()}
    return (
        tuple(spelt.get(position, name) for position, name in enumerate(names)),
        tuple(sorted(set(wanted) - found.keys())),
    )


def _trimmed(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip(_INVISIBLE).strip().strip(_INVISIBLE).strip()


def _numbered(name: str, taken: Collection[str]) -> str:
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def _alike(name: str, names: Sequence[str], claimed: Collection[int]) -> int | None:
    by_fold: defaultdict[str, list[int]] = defaultdict(list)
    for position, other in enumerate(names):
        if position not in claimed:
            by_fold[folded(other)].append(position)
    positions = by_fold[folded(name)]
    return positions[0] if len(positions) == 1 else None


def _at_position(name: str, names: Sequence[str], claimed: Collection[int]) -> int | None:
    digits = name.removeprefix("#")
    if digits == name or not (digits.isascii() and digits.isdecimal()):
        return None
    position = int(digits) - 1
    return position if 0 <= position < len(names) and position not in claimed else None
