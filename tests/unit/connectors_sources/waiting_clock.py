"""Time that passes only when somebody waits, and by a little with every look at it."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectors.sources.contract import Clock


@dataclass
class Waits:
    """A clockwork for tests; `slept` are the waits. `tick_s`: how much later it is at each look."""

    at: float = 1_800_000_000.0
    tick_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def look(self) -> float:
        self.at += self.tick_s
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    @property
    def clockwork(self) -> Clock:
        return Clock(self.look, self.look, self.sleep, lambda: 1.0)
