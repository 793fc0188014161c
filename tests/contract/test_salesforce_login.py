"""Being let into Salesforce, by each of the ways, and being told why not: never with a secret in the telling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from lookalikes.salesforce_reader import Reader, event, events, org_of, reader_of
from pydantic import SecretStr

from connectors.sources.catalogue import probe_org
from connectors.sources.contract import NO_ACCESS, SourceRefusedError, SourceUnavailableError
from connectors.sources.salesforce.source import OrgProbe
from mappings.errors import ConfigError, SyncError
from mappings.spec.source import SalesforceSource

NOBODY: dict[str, Any] = {"username": "", "password": SecretStr(""), "security_token": SecretStr("")}


def test_user_password_and_token_let_in() -> None:
    reader = reader_of(org_of(events(2)))
    assert len(reader.read({"Name"}).rows) == 2
    assert reader.org.asked[0] == ("POST", "soap login")


def test_client_credentials_let_in_at_the_orgs_own_domain() -> None:
    reader = reader_of(org_of(events(2)))
    app = NOBODY | {"consumer_key": reader.org.consumer_key, "consumer_secret": SecretStr(reader.org.consumer_secret)}
    assert len(reader.read({"Name"}, access=reader.access(**app, domain="example.my")).rows) == 2
    assert reader.org.asked[0] == ("POST", "token client_credentials")
    with pytest.raises(ConfigError) as caught:
        reader.read({"Name"}, access=reader.access(**app))
    assert "SALESFORCE_DOMAIN=example.my" in caught.value.hint


def test_a_private_key_lets_in(tmp_path: Path) -> None:
    reader, path = reader_of(org_of(events(2))), tmp_path / "key.pem"
    key, pem = rsa.generate_private_key(public_exponent=65537, key_size=2048), serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    reader.org.public_key = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    app = {"password": SecretStr(""), "consumer_key": reader.org.consumer_key, "privatekey_file": path}
    assert len(reader.read({"Name"}, access=reader.access(**app)).rows) == 2
    assert reader.org.asked[0] == ("POST", "token urn:ietf:params:oauth:grant-type:jwt-bearer")
    path.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----")
    with pytest.raises(ConfigError, match=r"key\.pem is not the private key"):
        reader.read({"Name"}, access=reader.access(**app))
    path.unlink()
    with pytest.raises(ConfigError, match="SALESFORCE_PRIVATEKEY_FILE cannot be read"):
        reader.read({"Name"}, access=reader.access(**app))


WRONG = {
    "INVALID_LOGIN": ({"password": SecretStr("wrong-password-1")}, "security token"),
    "invalid_client": (NOBODY | {"consumer_key": "x", "consumer_secret": SecretStr("wrong-1"), "domain": "a.my"}, "KEY"),
    "invalid_grant": (
        NOBODY | {"username": "a@b", "consumer_key": "x", "consumer_secret": SecretStr("y"), "password": SecretStr("wrong-2")},
        "certificate",
    ),
}


@pytest.mark.parametrize("code", WRONG)
def test_a_refused_login_says_why_and_what_would_help(code: str) -> None:
    wrong, hint = WRONG[code]
    reader = reader_of(org_of(events(1)))
    with pytest.raises(SourceRefusedError) as caught:
        reader.read({"Name"}, access=reader.access(**wrong))
    assert f"({code})" in str(caught.value)
    assert hint in caught.value.hint
    assert reader.org.logins == 0


_FAULT = '<E xmlns:sf="x"><sf:exceptionCode>{}</sf:exceptionCode><sf:exceptionMessage>{}</sf:exceptionMessage></E>'
USED_UP = _FAULT.format("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")


@pytest.mark.parametrize(
    ("answer", "error", "said", "retry_after_s"),
    [
        ((503, "<html><body>Down for maintenance</body></html>"), SourceUnavailableError, "Down for maintenance", None),
        ((429, "<html><body>Too many</body></html>"), SourceUnavailableError, "Too many", None),
        ((500, USED_UP), SourceUnavailableError, "REQUEST_LIMIT_EXCEEDED", 3600.0),
        ((200, "<html><body>Welcome</body></html>"), SourceRefusedError, "is not Salesforce", None),
    ],
)
def test_a_login_that_is_down_or_out_of_requests_is_for_a_later_run_and_a_page_in_place_of_one_is_refused(
    answer: tuple[int, str], error: type[SyncError], said: str, retry_after_s: float | None
) -> None:
    org = org_of(events(1))
    org.troubles.login_answer = answer
    with pytest.raises(error, match=said) as caught:
        reader_of(org).read({"Name"})
    assert getattr(caught.value, "retry_after_s", None) == retry_after_s


def test_no_login_at_all_names_the_variables_that_make_one() -> None:
    with pytest.raises(ConfigError) as caught:
        reader_of(org_of([])).read({"Name"}, access=NO_ACCESS)
    assert "SALESFORCE_PASSWORD" in caught.value.hint
    assert "SALESFORCE_PRIVATEKEY_FILE" in caught.value.hint


def test_a_netrc_file_does_not_replace_our_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert len(reader_of(org_of(events(2))).read({"Name"}).rows) == 2


def test_without_its_extra_a_feed_says_what_to_install() -> None:
    """In a process of its own: what is imported once stays."""
    program = """
import sys
from pathlib import Path
from connectors.sources.catalogue import open_source
from mappings.errors import ConfigError
from mappings.spec.source import SalesforceSource
sys.modules["simple_salesforce"] = None
try:
    with open_source(SalesforceSource(kind="salesforce", object="Event__c"), Path(), frozenset({"Name"})).read():
        pass
except ConfigError as error:
    print(error, "|", error.hint)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "simple_salesforce" in told
    assert told.endswith("| pip install 'eventsync[salesforce]'\n")


def _look(reader: Reader, columns: set[str], **words: Any) -> OrgProbe:
    spec = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c"} | words)
    return probe_org(spec, frozenset(columns), access=reader.access(), clock=reader.clock.clockwork)


def test_a_look_counts_the_records_and_the_days_requests_and_reads_none() -> None:
    reader = reader_of(org_of([*events(25), event(26, IsDeleted=True)]))
    reader.org.used = 100
    assert str(_look(reader, {"Name"})) == (
        "Event__c: 2 columns, 25 records, read in pages by about 1 requests; the org has 14898 of its 15000 requests of the"
        " day left, 750 of which we leave to others (`stop_at`)"
    )
    assert (reader.queries, reader.org.jobs) == (["SELECT COUNT() FROM Event__c"], {})


def test_a_look_tells_of_many_records_that_they_come_in_bulk_and_when_the_day_is_too_short() -> None:
    reader = reader_of(org_of(events(10_001)))
    assert "read in bulk by about 7 requests" in str(_look(reader, {"Name"}))
    reader.org.used = 14_300
    assert not _look(reader, {"Name"}).is_enough
    assert _look(reader, {"Name"}, stop_at="off").is_enough


def test_a_look_leaves_columns_to_the_cells_and_tables_that_they_come_from() -> None:
    reader = reader_of(org_of(events(2), {"Sessions__c": "textarea"}))
    assert _look(reader, {"Name", "Sessions__c[0].Name"}, json_columns=["Sessions__c"]).columns == 3
