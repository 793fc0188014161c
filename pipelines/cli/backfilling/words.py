"""From the words of `backfill` to what is done: listing, cancelling, rehearsing, or going through the slices.

Each of these stands in its own module; here it is decided which, for which feed, and with which plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from pipelines.cli.backfilling.listing import cancel_backfill, list_backfills
from pipelines.cli.backfilling.rehearsal import rehearse_backfill
from pipelines.cli.backfilling.slices import Wish, backfill_feed
from pipelines.cli.chosen import chosen_feeds, folder_of
from pipelines.cli.output import Output
from pipelines.cli.words import options_of
from pipelines.clock import now
from pipelines.run.backfill import BackfillPlan, make_plan
from pipelines.run.context import require_service
from pipelines.settings import Settings, current_settings
from pipelines.telemetry.logs import configure_logs


@dataclass(frozen=True, slots=True)
class Words:
    """What a person wrote; "" and None: nothing."""

    feed: str
    first: str
    last: str
    by: str
    column: str
    slice: str
    status: str | None
    limit: int | None
    accept: tuple[str, ...]
    wait: bool
    is_resumed: bool
    is_dry: bool
    uses_dagster: bool
    as_json: bool


def do_as_told(words: Words, *, is_list: bool, is_cancel: bool) -> int:
    """Do what was asked for; return the exit code.

    Raises:
        ConfigError: the words do not go together, or the feed cannot be read so.
    """
    _check(words, is_list=is_list, is_cancel=is_cancel)
    settings, output = current_settings(), Output(json=words.as_json)
    configure_logs(settings)
    (feed,) = chosen_feeds(folder_of(settings, [words.feed]), [words.feed])
    mapping = feed.mapping
    if is_list:
        return list_backfills(settings, mapping, output)
    plan = _plan(words, mapping)
    if is_cancel:
        return cancel_backfill(settings, mapping, plan, output)
    require_service(settings)
    wish = _wish(words, settings, mapping, plan)
    return rehearse_backfill(wish, output) if words.is_dry else backfill_feed(wish, output)


def _check(words: Words, *, is_list: bool, is_cancel: bool) -> None:
    modes = {"--list": is_list, "--cancel": is_cancel, "--resume": words.is_resumed, "--dry-run": words.is_dry}
    asked = [option for option, is_asked in modes.items() if is_asked]
    if len(asked) > 1 and asked != ["--resume", "--dry-run"]:
        raise ConfigError(f"{' and '.join(asked)} exclude each other", hint="say one of them")
    if not words.first and not asked[:1]:
        raise ConfigError("no window was named", hint="name its days, --from 2031-05-01 --to 2031-05-31; or say --resume")
    if not words.first and words.is_dry and not words.is_resumed:
        raise ConfigError("no window was named to rehearse", hint="name its days, --from 2031-05-01 --to 2031-05-31")
    beside = {"--to": words.last, "--by": words.by, "--column": words.column, "--slice": words.slice}
    if not words.first and any(beside.values()):
        named = ", ".join(option for option, word in beside.items() if word)
        raise ConfigError(f"{named} without --from means nothing", hint="name the first day as well")


def _plan(words: Words, mapping: FeedMapping) -> BackfillPlan | None:
    """Return what the words describe, None if they name no window."""
    if not words.first:
        return None
    days = _day("--from", words.first), _day("--to", words.last) if words.last else now().date()
    plan = make_plan(mapping, days, words.by, words.column, words.slice)
    options = options_of(keys=None, accept=[], status=words.status)
    return plan.model_copy(update={"status": options.status})


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text} is no day", hint="days are written 2031-05-03") from error


def _wish(words: Words, settings: Settings, mapping: FeedMapping, plan: BackfillPlan | None) -> Wish:
    options = options_of(keys=None, accept=list(words.accept), limit=words.limit, wait=words.wait)
    return Wish(settings, mapping, plan, options, is_resumed=words.is_resumed, uses_dagster=words.uses_dagster)
