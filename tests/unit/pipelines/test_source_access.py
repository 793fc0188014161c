"""Who we are to the services that rows are read from: read from the environment at once, wholly masked, in no message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from connectors.masking import MASK
from mappings.errors import ConfigError
from pipelines.settings import Settings, read_settings

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


def test_an_empty_environment_names_nobody(tmp_path: Path) -> None:
    access = read_settings({}, tmp_path).access
    assert (access.google.credentials, access.google.api_url) == (None, "")
    assert (access.salesforce.username, access.salesforce.domain) == ("", "login")


def test_everything_is_read_from_where_it_is_said_to_be(tmp_path: Path) -> None:
    access = read_settings(all_set(tmp_path), tmp_path).access
    assert access.google.credentials == tmp_path / "google.json"
    assert access.google.api_url == "http://127.0.0.1:8123"
    org = access.salesforce
    assert [org.password.get_secret_value(), org.security_token.get_secret_value()] == [PASSWORD, TOKEN]
    assert (org.username, org.consumer_key, org.consumer_secret.get_secret_value()) == (
        "sync@example.org",
        "3MVG9example",
        CONSUMER,
    )
    assert (org.privatekey_file, org.domain) == (tmp_path / "org.pem", "acme--uat.sandbox.my")
    assert org.instance_url == "https://acme.my.salesforce.com"


def shown(settings: Settings) -> str:
    return "".join(
        (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump()), repr(settings.access))
    )


def test_no_secret_is_shown_with_the_settings(tmp_path: Path) -> None:
    told = shown(read_settings(all_set(tmp_path), tmp_path))
    assert [secret for secret in (PASSWORD, TOKEN, CONSUMER, *KEY_LINES) if secret in told] == []


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN, CONSUMER, *KEY_LINES[:2]])
def test_every_secret_is_masked_in_what_leaves_the_process(tmp_path: Path, secret: str) -> None:
    mask = read_settings(all_set(tmp_path), tmp_path).mask
    assert mask.hide(f"the answer was {secret}!") == f"the answer was {MASK}!"
    assert secret not in mask.hide(json.dumps({"said": secret}))


def test_a_private_key_that_is_repeated_whole_loses_every_line(tmp_path: Path) -> None:
    hidden = read_settings(all_set(tmp_path), tmp_path).mask.hide(json.dumps({"private_key": KEY}))
    assert not [line for line in KEY_LINES[:2] if line in hidden or line[:20] in hidden]


def test_all_that_is_wrong_is_told_at_once_without_a_secret(tmp_path: Path) -> None:
    environ = {
        "EVENTSYNC_SHEETS_URL": "http://sheets.example.org",
        "SALESFORCE_PASSWORD_FILE": "absent",
        "SALESFORCE_PRIVATEKEY_FILE": "gone.pem",
        "SALESFORCE_DOMAIN": "https://acme.my.salesforce.com/",
        "SALESFORCE_INSTANCE_URL": f"https://sync:{PASSWORD}@acme.my.salesforce.com",
    }
    with pytest.raises(ConfigError) as refused:
        read_settings(environ, tmp_path)
    told = str(refused.value)
    assert {line.partition(":")[0] for line in told.splitlines()} == set(environ)
    assert '"acme.my"' in told
    assert PASSWORD not in told


@pytest.mark.parametrize("address", ["ftp://h/x", "sheets.example.org", "https://", "https://[::1", "http://10.0.0.1"])
def test_secrets_are_sent_over_https_or_to_this_machine_only(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="EVENTSYNC_SHEETS_URL"):
        read_settings({"EVENTSYNC_SHEETS_URL": address}, tmp_path)


def test_a_credentials_file_that_is_not_there_stops_no_feed_that_needs_none(tmp_path: Path) -> None:
    assert read_settings({"GOOGLE_APPLICATION_CREDENTIALS": "absent.json"}, tmp_path).access.google.credentials is not None


@pytest.mark.parametrize("content", ["", "[]", "no json", '{"private_key": 5}', "\ufeff{}"])
def test_an_odd_credentials_file_is_the_sources_to_complain_of(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.json").write_text(content, "utf-8")
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "odd.json")}
    assert read_settings(environ, tmp_path).mask.hide("nothing") == "nothing"
