"""A machine without a browser leaves the tests of the UI out; one that promises a browser must not."""

from __future__ import annotations

import pytest
from browser.system_browser import REQUIRED, VARIABLE, WHY, chromium_or_leave


def test_the_first_chromium_of_the_path_is_taken() -> None:
    installed = {"google-chrome": "/opt/google-chrome", "chromium-browser": "/usr/bin/chromium-browser"}
    assert chromium_or_leave({}, installed.get) == "/usr/bin/chromium-browser"
    assert chromium_or_leave({VARIABLE: REQUIRED}, installed.get) == "/usr/bin/chromium-browser"


def test_another_browser_can_be_named() -> None:
    installed = {"chromium": "/usr/bin/chromium", "/opt/brave": "/opt/brave"}
    assert chromium_or_leave({VARIABLE: "/opt/brave"}, installed.get) == "/opt/brave"


def test_without_one_the_test_is_skipped_and_says_what_to_install() -> None:
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        chromium_or_leave({}, {}.get)


@pytest.mark.parametrize("asked", [REQUIRED, "/opt/brave"])
def test_without_one_that_was_asked_for_the_test_fails(asked: str) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        chromium_or_leave({VARIABLE: asked}, {}.get)
    assert str(failed.value) == WHY
