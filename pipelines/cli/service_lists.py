"""Ask the service for its lists while a person waits: few attempts, no long pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from connectors.event_api.answers import Meaning
from connectors.event_api.delivery import EventApi
from connectors.event_api.lists import Classifications
from connectors.event_api.openapi import Node, NoPage, PageBody, read_page
from connectors.event_api.transport import open_http
from connectors.rate_limit import RateLimiter
from connectors.retry import RetryPolicy, Timing
from mappings.errors import FileProblem, SyncError
from mappings.event import Directory
from mappings.lint.warnings import FILL_IN
from mappings.spec.feed import FeedMapping
from pipelines.cli.feed_files import shown_path
from pipelines.clock import monotonic_s, now
from pipelines.settings import Settings

_POLICY = RetryPolicy(attempts=2, budget_s=20.0, attempt_s=15.0)
_MAX_PAUSE_S = 20.0
_UNASKED = NoPage("it was not asked for")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServiceAnswers:
    """The service's answer to each question, or the error. `key_tail`: the last characters of the key.

    `probe`: the answer to an empty event, None if none was sent.
    """

    channels: dict[str, int] | SyncError
    classifications: Classifications | SyncError
    page: Node | NoPage = _UNASKED
    key_tail: str = ""
    probe: Meaning | None = None

    @property
    def refusal(self) -> SyncError | None:
        """The error if the service answered neither list, else None."""
        if isinstance(self.channels, SyncError) and isinstance(self.classifications, SyncError):
            return self.channels
        return None


def ask_service(settings: Settings, *, is_page_asked: bool = False, is_probing: bool = False) -> ServiceAnswers:
    """Ask for both lists; with `is_page_asked` for the OpenAPI page too, with `is_probing` also send an empty event.

    An error is returned in place of the answer. If neither list is answered, nothing more is asked.
    """

    async def ask() -> ServiceAnswers:
        async with open_http(settings.base_url, settings.api_key, in_flight=2) as http:
            limiter = RateLimiter(Timing(monotonic_s, asyncio.sleep, random.random, now), max_pause_s=_MAX_PAUSE_S)
            api = EventApi(http, limiter=limiter, policy=_POLICY)
            answers = ServiceAnswers(
                await _or_error(api.channels()), await _or_error(api.classifications()), key_tail=http.key_tail
            )
            if answers.refusal is not None or not is_page_asked:
                return answers
            answer = await api.contract()
            page = read_page(answer.body) if isinstance(answer, PageBody) else answer or _UNASKED
            return replace(answers, page=page, probe=await api.probe() if is_probing else None)

    try:
        return asyncio.run(ask())
    except SyncError as error:
        return ServiceAnswers(error, error)


async def _or_error(question: Awaitable[T]) -> T | SyncError:
    try:
        return await question
    except SyncError as error:
        return error


@dataclass(frozen=True, slots=True)
class ResolvedLists:
    """The lists that a mapping is compiled with; `why_offline`: why they are not the service's own, "" if they are.

    `to_fill_in`: the places of the mapping file where `fill-in` stands, which passes as a known slug.
    """

    directory: Directory
    why_offline: str = ""
    to_fill_in: tuple[FileProblem, ...] = ()

    @property
    def lists(self) -> Literal["live", "offline"]:
        """`live` if the lists are the service's own, else `offline`."""
        return "offline" if self.why_offline else "live"

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about missing lists and values to fill in."""
        offline = f"offline ({self.why_offline}): channel ids are placeholders, classifications are not checked"
        stands_in = f"`{FILL_IN}` is accepted here as a slug; replace it before a run"
        return (*([offline] if self.why_offline else ()), *map(str, self.to_fill_in), *([stands_in] if self.to_fill_in else ()))


def known_lists(settings: Settings, mapping: FeedMapping) -> ResolvedLists:
    """Ask the configured service for its lists; without an answer, return lists that accept everything."""
    is_open = (one for one in mapping.warnings if f'"{FILL_IN}"' in one.message)
    to_fill_in = tuple(replace(one, path=shown_path(one.path)) for one in is_open)
    if not settings.base_url or not settings.api_key.get_secret_value():
        return ResolvedLists(Directory(), "no service is configured", to_fill_in)
    answers = ask_service(settings)
    channels = None if isinstance(answers.channels, SyncError) else answers.channels
    slugs = None if isinstance(answers.classifications, SyncError) else answers.classifications.slugs
    if to_fill_in:
        channels, slugs = channels and {**channels, FILL_IN: 0}, slugs and slugs | {FILL_IN}
    why_offline = " ".join(str(answers.refusal).split()) if answers.refusal else ""
    return ResolvedLists(Directory(channels, slugs), why_offline, to_fill_in)
