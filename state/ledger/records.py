"""Accounts, reports and answers as the JSON text that the state DB keeps, and back."""

from __future__ import annotations

import json
from dataclasses import asdict

from pydantic import TypeAdapter

from mappings.delivery import Answer
from mappings.refusals import Reason
from state.ledger.accounts import PublishAccount, ReadAccount, StageReport

_READ = TypeAdapter(ReadAccount)
_PUBLISH = TypeAdapter(PublishAccount)
_REPORT = TypeAdapter(StageReport)
_ANSWER = TypeAdapter(Answer)
_REASONS = TypeAdapter(tuple[Reason, ...])
_IN_SHORT = json.JSONEncoder(separators=(",", ":"))


def dump(record: ReadAccount | PublishAccount | StageReport) -> str:
    """Write any of them, in ASCII: raw cells may hold what no database takes as text."""
    return json.dumps(asdict(record))


def dump_answer(answer: Answer) -> str:
    """Write an answer, in ASCII and without what it left unsaid: there is one for every row, and it stays as long as its row.

    Asking a dataclass for its fields costs more than the rest.
    """
    told = {"status": answer.status, "code": answer.code, "message": answer.message}
    told |= {"request_id": answer.request_id, "field": answer.field, "issue": answer.issue}
    return _IN_SHORT.encode({name: said for name, said in told.items() if said != ""})


def load_read(stored: str) -> ReadAccount:
    """Read an account of rows read."""
    return _READ.validate_json(stored)


def load_publish(stored: str) -> PublishAccount:
    """Read an account of rows owed."""
    return _PUBLISH.validate_json(stored)


def load_report(stored: str) -> StageReport:
    """Read a stage's report."""
    return _REPORT.validate_python(json.loads(stored))


def load_answer(stored: str) -> Answer:
    """Read the service's last answer."""
    return _ANSWER.validate_python(json.loads(stored))


def load_reasons(stored: str) -> tuple[Reason, ...]:
    """Read the reasons of a problem."""
    return _REASONS.validate_python(json.loads(stored))
