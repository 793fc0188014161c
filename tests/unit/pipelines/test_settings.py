"""The environment: read once, all problems at once, and no secret in any message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import pytest

from connectors.masking import MASK
from mappings.errors import ConfigError
from pipelines.settings import read_settings

SECRET = "sk-unit-very-secret-0042"
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


HERE = Path("/srv/events")
DEFAULTS = {
    "feeds": HERE / "mappings" / "feeds",
    "state_url": f"sqlite:///{HERE}/.eventsync/state.db",
    "dagster_home": HERE / ".eventsync" / "dagster",
    "namespace": "default",
    "log_format": "pretty",
    "log_level": "warning",
    "allow_private_images": False,
    "access.google.credentials": None,
    "access.google.api_url": "",
    "access.salesforce.username": "",
    "access.salesforce.domain": "login",
}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, DEFAULTS),
        ({"EVENTSYNC_LOG": "json"}, {"log_format": "json", "log_level": "info"}),
        ({"EVENTSYNC_LOG": "debug"}, {"log_format": "pretty", "log_level": "debug"}),
        ({"EVENTSYNC_LOG": "json,warning"}, {"log_format": "json", "log_level": "warning"}),
        ({"EVENTSYNC_LOG": ""}, {"log_format": "pretty", "log_level": "warning"}),
        ({"EVENTSYNC_STATE_URL": "sqlite:///here.db"}, {"state_url": f"sqlite:///{HERE}/here.db"}),
        ({"EVENTSYNC_STATE_URL": "sqlite:////var/here.db"}, {"state_url": "sqlite:////var/here.db"}),
        ({"EVENTSYNC_STATE_URL": "postgresql+psycopg://db.example/x"}, {"state_url": "postgresql+psycopg://db.example/x"}),
    ],
)
def test_settings_have_sound_defaults_and_are_found_from_the_working_folder(
    environ: dict[str, str], found: dict[str, object]
) -> None:
    assert {name: attrgetter(name)(read_settings(environ, HERE)) for name in found} == found


def test_a_dotenv_file_and_files_with_keys_are_read_and_the_environment_goes_before_them(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(b"\xef\xbb\xbf" + f"{SECRET}\r\n".encode())
    for environ in ({"EVENT_API_KEY": f"{SECRET} "}, {"EVENT_API_KEY": f"\n{SECRET}\n"}, {"EVENT_API_KEY_FILE": "key.txt"}):
        assert read_settings(environ, tmp_path).api_key.get_secret_value() == SECRET
    (tmp_path / ".env").write_text(f"EVENT_API_KEY={SECRET}\nEVENTSYNC_NAMESPACE=from-file\n", "utf-8")
    settings = read_settings({"EVENTSYNC_NAMESPACE": "from-environment"}, tmp_path)
    assert (settings.api_key.get_secret_value(), settings.namespace) == (SECRET, "from-environment")


def test_access_to_sources_is_read_from_where_it_is_said_to_be(tmp_path: Path) -> None:
    access = read_settings(all_set(tmp_path), tmp_path).access
    assert (access.google.credentials, access.google.api_url) == (tmp_path / "google.json", "http://127.0.0.1:8123")
    org = access.salesforce
    secrets = (org.password, org.security_token, org.consumer_secret)
    assert [one.get_secret_value() for one in secrets] == [PASSWORD, TOKEN, CONSUMER]
    assert (org.username, org.consumer_key) == ("sync@example.org", "3MVG9example")
    assert (org.privatekey_file, org.domain) == (tmp_path / "org.pem", "acme--uat.sandbox.my")
    assert org.instance_url == "https://acme.my.salesforce.com"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {
                "EVENT_API_KEY": f"{SECRET}\nnext line",
                "EVENTSYNC_LOG": "loud,json",
                "EVENTSYNC_ALLOW_PRIVATE_IMAGES": "perhaps",
                "EVENTSYNC_ALLOW_COMMANDS": "perhaps",
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


@pytest.mark.parametrize("host", ["db.example", "[db.example"])
def test_the_password_of_an_address_is_masked_as_it_stands_and_as_it_is_meant_even_where_the_address_cannot_be_read(
    tmp_path: Path, host: str
) -> None:
    settings = read_settings({"EVENTSYNC_STATE_URL": f"postgresql://sync:p%40ss-words-17@{host}/state"}, tmp_path)
    assert "words" not in settings.mask.hide("p%40ss-words-17 and p@ss-words-17")


def test_the_destination_keeps_services_and_namespaces_apart_however_the_address_ends(tmp_path: Path) -> None:
    def destination(url: str, namespace: str) -> str:
        return read_settings({"EVENT_API_BASE_URL": url, "EVENTSYNC_NAMESPACE": namespace}, tmp_path).destination

    ends = ("", "/", "/api/public/v1", "/api/public/v1/")
    assert {destination(f"https://events.example.org{end}", "default") for end in ends} == {"https://events.example.org#default"}
    assert len({destination(url, name) for url in ("https://a.example", "https://b.example") for name in ("x", "y")}) == 4


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
