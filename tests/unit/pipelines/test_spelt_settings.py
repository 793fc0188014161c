"""What an environment means, however it is spelt: one service has one place in the ledger, a key file holds the key alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.settings import read_settings


@pytest.mark.parametrize("end", ["", "/", "/api/public/v1", "/api/public/v1/"])
def test_an_address_with_the_apis_prefix_is_the_same_destination(tmp_path: Path, end: str) -> None:
    settings = read_settings({"EVENT_API_BASE_URL": f"https://events.example.org{end}"}, tmp_path)
    assert settings.destination == "https://events.example.org#default"


def test_a_key_file_as_some_editors_save_it_holds_the_key_alone(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(b"\xef\xbb\xbfsk-test-1234567890\r\n")
    settings = read_settings({"EVENT_API_KEY_FILE": "key.txt"}, tmp_path)
    assert settings.api_key.get_secret_value() == "sk-test-1234567890"
