"""How often Python looks for garbage while rows pass through a run: seldom, as hardly any is made of them.

What a command imports before it runs anything is `cli.entry`'s.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 50_000
"""So many more objects than before are there when it is looked for: those of some thousand rows."""


@contextmanager
def seldom_looked_for() -> Iterator[None]:
    """For the length of the block, let 50,000 objects be made between two looks, not 700.

    All that Dagster has imported is looked through again and again else, in which there is none.
    """
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
