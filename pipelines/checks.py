"""Dagster's asset checks: the brakes, which block what comes after them, and the questions asked of a finished drain.

How a brake judges is `brakes`'.
"""

from __future__ import annotations

from collections.abc import Mapping

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey

from pipelines.control_characters import replaced
from pipelines.left_open import LeftOpen
from pipelines.run.options import BRAKE_TEXTS
from pipelines.run.outcome import ExitCode, Outcome
from pipelines.run.publish import Published
from pipelines.run.stage import Staged

PUBLISH_CHECKS = {
    "balanced": "Every row owed ended in exactly one outcome.",
    "no_conflicts": "No key was answered as used for something else.",
    "within_limits": "Refused, blocked and uncertain rows stay within what the feed allows.",
    "drift": "What was delivered is what its source still says, but for what a person has ignored.",
    "contract": "The service's own page does not announce that what we send will be refused.",
}


def brake_specs(key: AssetKey) -> list[AssetCheckSpec]:
    """Return one blocking check a brake."""
    return [AssetCheckSpec(name, asset=key, blocking=True, description=text) for name, text in BRAKE_TEXTS.items()]


def brake_results(key: AssetKey, staged: Staged) -> list[AssetCheckResult]:
    """Return each brake's verdict; one that a person accepted warns instead of blocking."""
    return [
        AssetCheckResult(
            asset_key=key,
            check_name=verdict.name,
            passed=not verdict.is_tripped,
            severity=AssetCheckSeverity.ERROR if verdict.stops else AssetCheckSeverity.WARN,
            description=replaced(verdict.sentence),
            metadata={
                "verdict": replaced(verdict.sentence),
                "measured": round(verdict.measured, 4),
                "allowed": round(verdict.allowed, 4),
                "accepted": verdict.is_accepted,
            },
        )
        for verdict in staged.brakes
    ]


def publish_specs(key: AssetKey) -> list[AssetCheckSpec]:
    """Return the checks of a drain; none blocks, because nothing comes after it."""
    return [AssetCheckSpec(name, asset=key, description=text) for name, text in PUBLISH_CHECKS.items()]


def publish_results(key: AssetKey, published: Published, outcome: Outcome, left: LeftOpen) -> list[AssetCheckResult]:
    """Return what a finished drain says to each of its checks."""
    account, differing = published.account, {name: left.counts.get(name, 0) for name in ("drift", "vanished")}
    passed = {
        "balanced": account.imbalance() == 0,
        "no_conflicts": published.standing.conflict.count == 0,
        "drift": not any(differing.values()),
        "within_limits": outcome.exit_code is ExitCode.DONE,
        "contract": not published.outlook.errors,
    }
    told = {"contract": "\n".join(published.outlook.notices), "drift": _differing(differing)}
    return [
        AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=passed[name],
            severity=AssetCheckSeverity.ERROR if name == "balanced" else AssetCheckSeverity.WARN,
            description=text if passed[name] else replaced(told.get(name, outcome.message)),
            metadata=differing if name == "drift" else {},
        )
        for name, text in PUBLISH_CHECKS.items()
    ]


def _differing(counts: Mapping[str, int]) -> str:
    return f"{counts['drift']} changed and {counts['vanished']} gone since they were delivered; `eventsync diff` shows in what"
