from __future__ import annotations

import pytest

from mappings.transforms.text import Newlines


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", " \u00a0", "\n "])
def test_a_cell_of_a_million_blanks_is_passed_at_once(blank: str) -> None:
    tidy = Newlines.model_validate({"newlines": "|"}).function()
    assert tidy("x" + blank * 1_000_000 + "y") == ("x|y" if "\n" in blank else "x" + blank * 1_000_000 + "y")
