"""Read what Prometheus would: every sample of a metrics page by its name and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples(page: str, name: str, **labels: str) -> list[float]:
    """Return the values of a metric whose labels have these values."""
    every = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return [sample.value for sample in every if sample.name == name and labels.items() <= sample.labels.items()]
