"""The public door of eventsync: feeds for any Dagster project, as definitions and as a component.

Names load on first use, so that `import eventsync` and the help of the command do not wait for Dagster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.orchestration.component import FeedsComponent
    from pipelines.orchestration.feeds import feeds_definitions
    from pipelines.orchestration.layout import FeedTranslator

    __version__: str

__all__ = ["FeedTranslator", "FeedsComponent", "__version__", "feeds_definitions"]
_MODULES = {
    "FeedTranslator": "pipelines.orchestration.layout",
    "FeedsComponent": "pipelines.orchestration.component",
    "feeds_definitions": "pipelines.orchestration.feeds",
}


def __getattr__(name: str) -> Any:
    """Load a public name.

    Raises:
        ForeignPackageError: a package of another project hides one of ours, or has overwritten it.
    """
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # most commands need none of it

        return version("eventsync")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # as above

    from eventsync.own_packages import check_packages  # noqa: PLC0415  # as above

    check_packages()
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
