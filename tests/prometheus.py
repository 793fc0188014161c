"""Read what Prometheus would: every sample of a metrics page by its name and labels."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families


def samples(page: str, name: str, **labels: str) -> list[float]:
    """Return the values of a metric whose labels have these values."""
    return [value for found, value in _samples(page, name) if labels.items() <= found.items()]


def _samples(page: str, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for family in text_string_to_metric_families(page):
        yield from ((sample.labels, sample.value) for sample in family.samples if sample.name == name)
