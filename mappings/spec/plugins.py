"""Kinds of source from installed packages: entry points of the group `eventsync.sources`.

They are looked up for unknown kinds only, so that ours cannot be replaced and start as fast as without any package.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pydantic import BaseModel

from mappings.strict import mistake

GROUP = "eventsync.sources"
_ASK = "correct the package, or ask its authors"
M = TypeVar("M", bound=BaseModel)


def installed_kinds() -> list[str]:
    """Return all kinds that packages give."""
    return sorted(entry_points(group=GROUP).names)


def plugin_model(block: dict[str, Any], base: type[M], context: Any) -> M:
    """Validate a `source` block with the model that a package gives for its kind, a subclass of `base`.

    Raises:
        PydanticCustomError: several packages give the kind, or the one that does is broken; it is named.
        ValidationError: the block does not fit the model.
    """
    kind = str(block["kind"])
    found = list(entry_points(group=GROUP, name=kind))
    packages = " and ".join(sorted(map(_package, found)))
    if len(found) > 1:
        raise mistake(f'{packages} both give the kind of source "{kind}"', "uninstall all but one")
    try:
        model = found[0].load()
    except Exception as error:  # whatever the code of a package raises on its import
        raise mistake(f'{packages} gives the kind of source "{kind}" and cannot be loaded: {error!r}', _ASK) from error
    if not (isinstance(model, type) and issubclass(model, base)):
        raise mistake(f'{packages} gives the kind of source "{kind}", and {found[0].value} is no subclass of PluginSource', _ASK)
    return model.model_validate(block, context=context)


def _package(found: EntryPoint) -> str:
    return f"the package {found.dist.name} {found.dist.version}" if found.dist else found.value
