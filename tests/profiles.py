"""How hypothesis searches here: the same examples every time, or others every time. What is searched stands in each test."""

from __future__ import annotations

import os

from hypothesis import settings

VARIABLE = "EVENTSYNC_TEST_PROFILE"
STEADY, HUNT = "steady", "hunt"
"""`steady`: the same examples in every run, so that a red test is a change of the code. `hunt`: others in every run."""


def load_profile() -> None:
    """Make the profile that the environment names the one of every test that is collected from now on. None asserts a time."""
    settings.register_profile(STEADY, derandomize=True, database=None, print_blob=True, deadline=None)
    settings.register_profile(HUNT, derandomize=False, print_blob=True, deadline=None)
    settings.load_profile(os.environ.get(VARIABLE, STEADY))
