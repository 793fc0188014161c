"""The lists that mappings are resolved against while somebody looks at rows: the service's, or none and why."""

from __future__ import annotations

from dataclasses import dataclass

from mappings.compiler.mapper import Directory
from pipelines.cli.asking import ask_lists
from pipelines.settings import Settings


@dataclass(frozen=True, slots=True)
class Known:
    """What mappings are resolved against, and why that is not what the service says, if it is not."""

    directory: Directory
    why_offline: str = ""

    @property
    def lists(self) -> str:
        """`live` or `offline`, for scripts."""
        return "offline" if self.why_offline else "live"

    @property
    def sentence(self) -> str:
        """What people have to know about what they see, "" if nothing."""
        if not self.why_offline:
            return ""
        return f"offline ({self.why_offline}): channel ids are stand-ins, classifications are not looked up"


def known_lists(settings: Settings) -> Known:
    """Ask the service, if one is configured; one that does not answer is no error here."""
    if not settings.base_url or not settings.api_key.get_secret_value():
        return Known(Directory(), "no service is configured")
    lists = ask_lists(settings)
    refusal = lists.refusal
    return Known(lists.directory, " ".join(str(refusal).split()) if refusal else "")
