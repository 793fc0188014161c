"""Answers that Salesforce once gave, given again to the real simple-salesforce: over HTTP, from a server that only repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from lookalikes import threaded
from lookalikes.salesforce_reader import VirtualClock
from pydantic import SecretStr

from connectors.sources.contract import Access, BadSourceError, Reading, SalesforceAccess, SourceRefusedError
from connectors.sources.salesforce.org import Org
from connectors.sources.salesforce.query import Shapes
from connectors.sources.salesforce.source import read_salesforce
from mappings.errors import SyncError
from mappings.spec.source import SalesforceSource

RECORDED = Path(__file__).parent / "recorded" / "salesforce"
LOGIN = (200, "auth_success_response")
DESCRIBED = (200, "sobject_sobject_describe_success_response")
Answer = tuple[int, str]
TOKEN = json.loads((RECORDED / "auth_success_response.json").read_text())["access_token"]


@dataclass
class Repeater:
    """Gives the answers of `script` by the first part of a path that suits, each but the last once."""

    script: dict[str, list[Answer]]
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler, _body: bytes) -> threaded.Answer:
        self.asked.append((request.path, request.headers.get("Authorization")))
        answers = next(answers for path, answers in self.script.items() if path in request.path)
        status, name = answers.pop(0) if len(answers) > 1 else answers[0]
        return threaded.Answer((RECORDED / f"{name}.json").read_bytes(), status, {"Content-Type": "application/json"})


@contextmanager
def repeating(script: dict[str, list[Answer]]) -> Iterator[tuple[Repeater, Access]]:
    repeater = Repeater({"/oauth2/token": [LOGIN], "/describe": [DESCRIBED]} | script)
    with threaded.answering_by(repeater.answer) as url:
        app = SalesforceAccess(consumer_key="key", consumer_secret=SecretStr("secret-of-app"), domain="a.my", instance_url=url)
        yield repeater, Access(salesforce=app)


def _read(access: Access, columns: set[str], **words: Any) -> tuple[Reading, list[dict[str, str]]]:
    spec = SalesforceSource.model_validate({"kind": "salesforce", "api": "rest"} | words)
    with read_salesforce(spec, spec.request(columns), access, "", VirtualClock().clockwork) as reading:
        return reading, [dict(row.cells) for row in reading.rows]


def test_auth_success_its_token_is_sent_from_then_on() -> None:
    with repeating({"/query": [(200, "sobject_query_empty_response")]}) as (server, access):
        _, rows = _read(access, {"Name"}, object="Whizbang")
    assert rows == []
    assert {sent for path, sent in server.asked if "token" not in path} == {f"Bearer {TOKEN}"}
    assert access.mask.hide(f"see {TOKEN}") == "see [key]"


@pytest.mark.parametrize(
    ("path", "answer", "error", "said"),
    [
        ("/query", (400, "sobject_query_error_response"), BadSourceError, "400 INVALID_FIELD to the query: error_message"),
        ("/query", (200, "sobject_get_deleted_success_response"), BadSourceError, "lacks 'records'"),
        (
            *("/oauth2/token", (400, "auth_error_response")),
            *(SourceRefusedError, "(invalid_grant): authentication failure - Invalid Password"),
        ),
    ],
    ids=["an error", "ids of deleted records in place of a page", "a refused login"],
)
def test_an_answer_that_is_no_page_is_named_with_its_words_and_is_never_an_empty_list(
    path: str, answer: Answer, error: type[SyncError], said: str
) -> None:
    with repeating({path: [answer]}) as (_, access), pytest.raises(error) as caught:
        _read(access, set(), query="SELECT Id FROM Whizbang")
    assert said in str(caught.value)


def test_expired_session_leads_to_one_login_and_the_same_question_again() -> None:
    answers = [(401, "expired_session_response"), (200, "sobject_query_empty_response")]
    with repeating({"/query": answers}) as (server, access):
        assert _read(access, {"Name"}, object="Whizbang")[1] == []

    paths = [path.partition("?")[0] for path, _ in server.asked]
    assert paths.count("/services/oauth2/token") == 2
    assert server.asked[2][0] == server.asked[4][0]


def test_describe_tells_the_fields_their_types_and_where_relationships_lead() -> None:
    with repeating({}) as (_, access):
        shape = Shapes(Org(access, VirtualClock().clockwork).describe).of("Whizbang")
    assert shape.fields["datetime_field"].kind == "datetime"
    assert shape.fields["picklist_multiselect_field"].kind == "multipicklist"
    assert shape.parents["owner"] == ("Owner", ("Group", "User"))
    assert shape.parents["parentwhizbang__r"][0] == "ParentWhizbang__r"


def test_query_success_gives_each_kind_of_value_as_its_cell() -> None:
    soql = (
        "SELECT Checkbox_Label, Text_Label, Date_Label, DateTime_Label, Picklist_Multiselect_Label, ParentWhizbang__r.Name,"
        " ParentWhizbang__r.Text_Label, (SELECT Name FROM Whizbangs__r) FROM Whizbang"
    )
    with repeating({"/query": [(200, "sobject_query_success_response")]}) as (_, access):
        _, rows = _read(access, {"Text_Label"}, query=soql)
    said = "false|Hi there!|2010-01-01|2011-07-07T00:37:00Z|four;six|Parent Whizbang|Hello|" + '[{"Name": "Child Whizbang"}]'
    assert ["|".join(row.values()) for row in rows] == [said]


def test_paginated_query_goes_from_the_first_page_to_the_last() -> None:
    script = {
        "/v26.0/query/01gD": [(200, "sobject_query_paginated_last_page_response")],
        "/query": [(200, "sobject_query_paginated_first_page_response")],
    }
    with repeating(script) as (server, access):
        _, rows = _read(access, set(), query="SELECT Text_Label FROM Whizbang")
    assert [row["Text_Label"] for row in rows] == ["First Page", "Last Page"]
    assert server.asked[-1][0] == "/services/data/v26.0/query/01gD"


def test_groups_and_an_org_have_long_ids_and_plain_numbers() -> None:
    soql = "SELECT CampaignId, SUM(Amount) FROM Opportunity GROUP BY CampaignId"
    with repeating({"/query": [(200, "sobject_query_aggregate_success_response")]}) as (_, access):
        _, rows = _read(access, set(), query=soql)
    assert [row["expr0"] for row in rows] == ["300", "100", "400"]
    assert [row["CampaignId"] for row in rows] == ["701E0000000JuFHIA0", "701E00000005ZqAIAU", ""]
    with repeating({"/query": [(200, "sobject_org_query_response")]}) as (_, access):
        assert _read(access, set(), query="SELECT Id FROM Organization")[1] == [{"Id": "00Dx0000000BV7zEAG"}]


def test_every_recording_is_given_again_by_a_test() -> None:
    source = Path(__file__).read_text("utf-8")
    assert [path.stem for path in RECORDED.glob("*.json") if f'"{path.stem}"' not in source] == []
