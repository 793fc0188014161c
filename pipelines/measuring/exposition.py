"""Numbers for monitors, and the text format in which Prometheus reads them (exposition format 0.0.4).

Which numbers there are is `gauges`'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, told from others of its name by its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """All numbers of one name; `help` is one sentence, its unit included."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def exposition(gauges: Iterable[Gauge]) -> str:
    """Return the numbers as a page that Prometheus reads."""
    return "".join(f"{line}\n" for gauge in gauges for line in _lines(gauge))


def _lines(gauge: Gauge) -> Iterator[str]:
    yield f"# HELP {gauge.name} {gauge.help}"
    yield f"# TYPE {gauge.name} gauge"
    for sample in gauge.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{gauge.name}{{{labels}}} {sample.value!r}" if labels else f"{gauge.name} {sample.value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
