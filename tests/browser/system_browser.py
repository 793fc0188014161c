"""Which browser looks at the UI: the Chromium of the system, never one that is downloaded for it.

Without one the tests that need it are left out, and say so; where EVENTSYNC_TEST_BROWSER is set, as .ci/run does, they fail.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest

VARIABLE = "EVENTSYNC_TEST_BROWSER"
"""`required`: a Chromium must be on the PATH. Anything else: the name or the path of the one to take."""
REQUIRED = "required"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WHY = f"no Chromium found: install one (Debian: apt-get install chromium), or name it in {VARIABLE}"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
"""Root has no sandbox to be in, which is who runs in most containers; and nothing is asked of anybody but the page."""


def find_chromium(environ: Mapping[str, str]) -> str | None:
    """Return the path of the browser to take, None if there is none."""
    wanted = environ.get(VARIABLE, "")
    names = NAMES if wanted in {"", REQUIRED} else (wanted,)
    return next(filter(None, map(shutil.which, names)), None)


def chromium_or_leave(environ: Mapping[str, str]) -> str:
    """Return the path of the browser; skip the test without one, or fail it where one is required."""
    found = find_chromium(environ)
    if found is not None:
        return found
    if environ.get(VARIABLE):
        pytest.fail(WHY, pytrace=False)
    pytest.skip(WHY)
