"""The environment: read once, all problems at once, and the key in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from mappings.errors import ConfigError
from pipelines.settings import read_settings

SECRET = "sk-unit-very-secret-0042"


def test_an_empty_environment_has_sound_defaults(tmp_path: Path) -> None:
    settings = read_settings({}, tmp_path)
    assert settings.feeds == tmp_path / "mappings" / "feeds"
    assert settings.state_url == f"sqlite:///{tmp_path}/.eventsync/state.db"
    assert settings.dagster_home == tmp_path / ".eventsync" / "dagster"
    assert (settings.namespace, settings.log_format, settings.log_level) == ("default", "pretty", "warning")
    assert settings.allow_private_images is False


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    environ = {
        "EVENT_API_KEY": f"{SECRET}\nnext line",
        "EVENTSYNC_LOG": "loud,json",
        "EVENTSYNC_ALLOW_PRIVATE_IMAGES": "perhaps",
        "EVENTSYNC_METRICS_PORT": "94640",
    }
    with pytest.raises(ConfigError) as refused:
        read_settings(environ, tmp_path)
    told = str(refused.value)
    assert len(told.splitlines()) == 4
    for name in environ:
        assert name in told
    assert SECRET not in told + refused.value.hint


@pytest.mark.parametrize("secret", [f"{SECRET} ", f"\n{SECRET}\n"])
def test_blanks_around_a_key_do_not_count(tmp_path: Path, secret: str) -> None:
    assert read_settings({"EVENT_API_KEY": secret}, tmp_path).api_key.get_secret_value() == SECRET


@pytest.mark.parametrize("secret", [f"{SECRET} {SECRET}", f"{SECRET}é", f"{SECRET}\x00"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(tmp_path: Path, secret: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings({"EVENT_API_KEY": secret}, tmp_path)
    assert "EVENT_API_KEY" in str(refused.value)
    assert SECRET not in repr(refused.value)


def test_the_key_is_masked_wherever_the_settings_are_shown(tmp_path: Path) -> None:
    settings = read_settings({"EVENT_API_KEY": SECRET}, tmp_path)
    shown = (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump()))
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize("name", ["EVENTSYNC_STATE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"])
@pytest.mark.parametrize("host", ["db.example", "[db.example"])
def test_the_password_of_an_address_is_masked_as_it_stands_and_as_it_is_meant_even_where_the_address_cannot_be_read(
    tmp_path: Path, name: str, host: str
) -> None:
    settings = read_settings({name: f"postgresql://sync:p%40ss-words-17@{host}/state"}, tmp_path)
    assert "words" not in settings.mask.hide("p%40ss-words-17 and p@ss-words-17")


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"EVENT_API_KEY_FILE: cannot read .*absent"):
        read_settings({"EVENT_API_KEY_FILE": "absent"}, tmp_path)


def test_a_dotenv_file_is_read_and_the_environment_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"EVENT_API_KEY={SECRET}\nEVENTSYNC_NAMESPACE=from-file\n", "utf-8")
    settings = read_settings({"EVENTSYNC_NAMESPACE": "from-environment"}, tmp_path)
    assert settings.api_key.get_secret_value() == SECRET
    assert settings.namespace == "from-environment"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("sqlite:///here.db", "sqlite:///{cwd}/here.db"),
        ("sqlite:////var/lib/here.db", "sqlite:////var/lib/here.db"),
        ("postgresql+psycopg://db.example/eventsync", "postgresql+psycopg://db.example/eventsync"),
    ],
)
def test_a_state_file_is_found_from_the_working_folder(tmp_path: Path, url: str, kept: str) -> None:
    assert read_settings({"EVENTSYNC_STATE_URL": url}, tmp_path).state_url == kept.format(cwd=tmp_path)


def test_the_destination_keeps_services_and_namespaces_apart(tmp_path: Path) -> None:
    def destination(url: str, namespace: str) -> str:
        return read_settings({"EVENT_API_BASE_URL": url, "EVENTSYNC_NAMESPACE": namespace}, tmp_path).destination

    assert destination("https://a.example/", "default") == destination("https://a.example", "default")
    assert len({destination(url, name) for url in ("https://a.example", "https://b.example") for name in ("x", "y")}) == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("json", ("json", "info")),
        ("debug", ("pretty", "debug")),
        ("json,warning", ("json", "warning")),
        ("", ("pretty", "warning")),
    ],
)
def test_the_log_is_asked_for_in_words(tmp_path: Path, words: str, told: tuple[str, str]) -> None:
    settings = read_settings({"EVENTSYNC_LOG": words}, tmp_path)
    assert (settings.log_format, settings.log_level) == told


@pytest.mark.parametrize("end", ["", "/", "/api/public/v1", "/api/public/v1/"])
def test_an_address_with_the_apis_prefix_is_the_same_destination(tmp_path: Path, end: str) -> None:
    settings = read_settings({"EVENT_API_BASE_URL": f"https://events.example.org{end}"}, tmp_path)
    assert settings.destination == "https://events.example.org#default"


def test_a_key_file_as_some_editors_save_it_holds_the_key_alone(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(b"\xef\xbb\xbfsk-test-1234567890\r\n")
    settings = read_settings({"EVENT_API_KEY_FILE": "key.txt"}, tmp_path)
    assert settings.api_key.get_secret_value() == "sk-test-1234567890"
