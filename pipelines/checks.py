"""Dagster's asset checks: the brakes, which block what comes after them, and the questions asked of a finished drain.

How a brake judges is `brakes`'.
"""

from __future__ import annotations

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey

from pipelines.options import BRAKE_TEXTS
from pipelines.outcomes import ExitCode, Outcome
from pipelines.sync import Published, Staged

PUBLISH_CHECKS = {
    "balanced": "Every row owed ended in exactly one outcome.",
    "no_conflicts": "No key was answered as used for something else.",
    "within_limits": "Refused, blocked and uncertain rows stay within what the feed allows.",
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
            description=verdict.sentence,
            metadata={
                "verdict": verdict.sentence,
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


def publish_results(key: AssetKey, published: Published, outcome: Outcome) -> list[AssetCheckResult]:
    """Return what a finished drain says to each of its checks."""
    account = published.account
    passed = {
        "balanced": account.imbalance() == 0,
        "no_conflicts": account.conflict == 0 and published.standing.conflict.count == 0,
        "within_limits": outcome.exit_code is ExitCode.DONE,
        "contract": not published.outlook.errors,
    }
    told = {"contract": "\n".join(published.outlook.notices)}
    return [
        AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=passed[name],
            severity=AssetCheckSeverity.ERROR if name == "balanced" else AssetCheckSeverity.WARN,
            description=text if passed[name] else told.get(name, outcome.message),
        )
        for name, text in PUBLISH_CHECKS.items()
    ]
