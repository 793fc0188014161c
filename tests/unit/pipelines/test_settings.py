"""The environment: read once, all problems at once, and no secret in any message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from connectors.masking import MASK
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
    google, salesforce = settings.access.google, settings.access.salesforce
    assert (google.credentials, google.api_url, salesforce.username, salesforce.domain) == (None, "", "", "login")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {
                "EVENT_API_KEY": f"{SECRET}\nnext line",
                "EVENTSYNC_LOG": "loud,json",
                "EVENTSYNC_ALLOW_PRIVATE_IMAGES": "perhaps",
                "EVENTSYNC_METRICS_PORT": "94640",
            },
            [],
        ),
        (
            {
                "EVENT_API_KEY_FILE": "absent",
                "EVENTSYNC_NOTIFY_FILE": "absent",
                "EVENTSYNC_SHEETS_URL": "http://sheets.example.org",
                "SALESFORCE_PASSWORD_FILE": "absent",
                "SALESFORCE_PRIVATEKEY_FILE": "gone.pem",
                "SALESFORCE_DOMAIN": "https://acme.my.salesforce.com/",
                "SALESFORCE_INSTANCE_URL": f"https://sync:{SECRET}@acme.my.salesforce.com",
            },
            ["EVENT_API_KEY_FILE: cannot read", "EVENTSYNC_NOTIFY_FILE: cannot read", '"acme.my"'],
        ),
        *(({"EVENT_API_KEY": key}, []) for key in (f"{SECRET} {SECRET}", f"{SECRET}é", f"{SECRET}\x00")),
        *(
            ({"EVENTSYNC_SHEETS_URL": url}, [])
            for url in ("ftp://h/x", "h.example", "https://", "https://[::1", "http://10.0.0.1")
        ),
    ],
)
def test_all_problems_are_told_at_once_each_at_its_variable_and_without_a_secret(
    tmp_path: Path, environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(environ, tmp_path)
    told = str(refused.value)
    assert sorted(line.partition(":")[0] for line in told.splitlines()) == sorted(environ)
    assert [word for word in words if word not in told] == []
    assert SECRET not in told + refused.value.hint + repr(refused.value)


@pytest.mark.parametrize("name", ["EVENTSYNC_STATE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"])
@pytest.mark.parametrize("host", ["db.example", "[db.example"])
def test_the_password_of_an_address_is_masked_as_it_stands_and_as_it_is_meant_even_where_the_address_cannot_be_read(
    tmp_path: Path, name: str, host: str
) -> None:
    settings = read_settings({name: f"postgresql://sync:p%40ss-words-17@{host}/state"}, tmp_path)
    assert "words" not in settings.mask.hide("p%40ss-words-17 and p@ss-words-17")


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


def test_the_destination_keeps_services_and_namespaces_apart_however_the_address_ends(tmp_path: Path) -> None:
    def destination(url: str, namespace: str) -> str:
        return read_settings({"EVENT_API_BASE_URL": url, "EVENTSYNC_NAMESPACE": namespace}, tmp_path).destination

    ends = ("", "/", "/api/public/v1", "/api/public/v1/")
    assert {destination(f"https://events.example.org{end}", "default") for end in ends} == {"https://events.example.org#default"}
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


def test_blanks_around_a_key_do_not_count_nor_what_some_editors_put_before_it(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(b"\xef\xbb\xbf" + f"{SECRET}\r\n".encode())
    for environ in ({"EVENT_API_KEY": f"{SECRET} "}, {"EVENT_API_KEY": f"\n{SECRET}\n"}, {"EVENT_API_KEY_FILE": "key.txt"}):
        assert read_settings(environ, tmp_path).api_key.get_secret_value() == SECRET


PASSWORD, TOKEN, CONSUMER = "Sommer-Regen-77", "tok9QxWv3LmZ", "cs-4417-very-secret"
KEY_LINES = (
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
    "vQ==",
)
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----", ""])


def all_set(folder: Path) -> Mapping[str, str]:
    (folder / "org.pem").write_text(KEY, "ascii")
    (folder / "consumer").write_text(f"{CONSUMER}\n", "utf-8")
    account = {"type": "service_account", "client_email": "rows@demo.iam.gserviceaccount.com", "private_key": KEY}
    (folder / "google.json").write_text(json.dumps(account), "utf-8")
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": "google.json",
        "EVENTSYNC_SHEETS_URL": "http://127.0.0.1:8123/",
        "SALESFORCE_USERNAME": "sync@example.org",
        "SALESFORCE_PASSWORD": PASSWORD,
        "SALESFORCE_SECURITY_TOKEN": TOKEN,
        "SALESFORCE_CONSUMER_KEY": "3MVG9example",
        "SALESFORCE_CONSUMER_SECRET_FILE": "consumer",
        "SALESFORCE_PRIVATEKEY_FILE": "org.pem",
        "SALESFORCE_DOMAIN": "acme--uat.sandbox.my",
        "SALESFORCE_INSTANCE_URL": "https://acme.my.salesforce.com",
    }


def test_everything_is_read_from_where_it_is_said_to_be(tmp_path: Path) -> None:
    access = read_settings(all_set(tmp_path), tmp_path).access
    assert access.google.credentials == tmp_path / "google.json"
    assert access.google.api_url == "http://127.0.0.1:8123"
    org = access.salesforce
    assert [org.password.get_secret_value(), org.security_token.get_secret_value()] == [PASSWORD, TOKEN]
    assert (org.username, org.consumer_key) == ("sync@example.org", "3MVG9example")
    assert org.consumer_secret.get_secret_value() == CONSUMER
    assert (org.privatekey_file, org.domain) == (tmp_path / "org.pem", "acme--uat.sandbox.my")
    assert org.instance_url == "https://acme.my.salesforce.com"


def test_no_secret_is_shown_with_the_settings_and_each_is_masked_in_what_leaves_the_process(tmp_path: Path) -> None:
    settings = read_settings({**all_set(tmp_path), "EVENT_API_KEY": SECRET}, tmp_path)
    shown = (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump()), repr(settings.access))
    assert [secret for secret in (SECRET, PASSWORD, TOKEN, CONSUMER, *KEY_LINES) if secret in "".join(shown)] == []
    mask = settings.mask
    for secret in (SECRET, PASSWORD, TOKEN, CONSUMER, *KEY_LINES[:2]):
        assert mask.hide(f"the answer was {secret}!") == f"the answer was {MASK}!"
        assert secret not in mask.hide(json.dumps({"said": secret}))
    hidden = mask.hide(json.dumps({"private_key": KEY}))
    assert not [line for line in KEY_LINES[:2] if line in hidden or line[:20] in hidden]


@pytest.mark.parametrize("content", [None, "", "[]", "no json", '{"private_key": 5}', "\ufeff{}"])
def test_an_odd_or_absent_credentials_file_is_the_sources_to_complain_of(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "odd.json").write_text(content, "utf-8")
    settings = read_settings({"GOOGLE_APPLICATION_CREDENTIALS": "odd.json"}, tmp_path)
    assert settings.access.google.credentials == tmp_path / "odd.json"
    assert settings.mask.hide("nothing") == "nothing"
