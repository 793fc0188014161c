"""One Salesforce org during a reading: its objects and fields, and requests that are repeated while it is busy.

A session that has ended is replaced by a new one; simple-salesforce raises then, and does not repeat requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests
import urllib3
from rapidfuzz import process
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceError, SalesforceExpiredSession
from simple_salesforce.util import exception_handler

from connectors.retry import RetryPolicy
from connectors.sources.contract import Access, Clock
from connectors.sources.errors import BadSourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.formats.records import Number
from connectors.sources.rows import folded
from connectors.sources.salesforce.client import (
    API_VERSION,
    LocatorLostError,
    OrgSession,
    OrgUsage,
    log_in,
    no_such_field,
    refusal_error,
    unreachable,
)
from connectors.sources.service_answers import retry_while_busy
from mappings.errors import PermanentError

NAME_OF_SEVERAL = "Name"
"""The object with the fields that parents of several kinds (an owner: a user or a group) have in common."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that can be selected: its canonical `path`, its `kind` (Salesforce's type, "" if unknown)."""

    path: str
    kind: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys that lead to its value in a record."""
        return tuple(self.path.split("."))


@dataclass(frozen=True, slots=True)
class Shape:
    """One object: its fields, the parts of its compound ones, its parents and its child rows, by lower-case name."""

    name: str
    fields: Mapping[str, Field]
    parts: Mapping[str, Mapping[str, Field]]
    parents: Mapping[str, tuple[str, tuple[str, ...]]]
    children: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Shape:
        """Parse the answer to a describe request; KeyError if it is none."""
        fields = described["fields"]
        return cls(
            described["name"],
            {one["name"].lower(): Field(one["name"], one["type"]) for one in fields},
            _parts(fields),
            {
                one["relationshipName"].lower(): (one["relationshipName"], tuple(one.get("referenceTo") or ()))
                for one in fields
                if one.get("relationshipName")
            },
            {
                one["relationshipName"].lower(): (one["relationshipName"], one["childSObject"])
                for one in described.get("childRelationships") or ()
                if one.get("relationshipName")
            },
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(one.path for one in self.fields.values())

    def has(self, name: str) -> bool:
        """Return whether it has a field of this name, in any case."""
        return name.lower() in self.fields


@dataclass(slots=True)
class Shapes:
    """The shapes of one reading; `describe` requests each object once."""

    describe: Callable[[str], Shape]
    _known: dict[str, Shape] = field(default_factory=dict)

    def of(self, name: str) -> Shape:
        """Return an object's shape."""
        if name not in self._known:
            self._known[name] = self.describe(name)
        return self._known[name]

    def find(self, shape: Shape, path: str) -> Field | None:
        """Return the field of a path in any case; None if there is none that we may see."""
        first, _, rest = path.partition(".")
        if not rest:
            found = shape.fields.get(first.lower())
            return None if found and first.lower() in shape.parts and found.kind in COMPOUND else found
        if part := shape.parts.get(first.lower(), {}).get(rest.lower()):
            return part
        name, parents = shape.parents.get(first.lower(), ("", ()))
        if not parents:
            return None
        above = self._above(parents)
        found = Field(rest) if above is None else self.find(above, rest)
        return Field(f"{name}.{found.path}", found.kind) if found else None

    def near(self, shape: Shape, path: str) -> Iterator[str]:
        """Yield the names at the level where an unknown path goes wrong: one of them was probably meant."""
        first, _, rest = path.partition(".")
        name, parents = shape.parents.get(first.lower(), ("", ()))
        if parts := shape.parts.get(first.lower()):
            yield from (f"{first}.{part}" for part in parts)
        elif rest and parents:
            above = self._above(parents)
            yield from (f"{name}.{inner}" for inner in self.near(above, rest)) if above else ()
        else:
            yield from shape.names
            yield from (name for name, _ in shape.parents.values())

    def _above(self, parents: tuple[str, ...]) -> Shape | None:
        """Return the shape of the parent; None where there are several kinds and the org does not describe what they share."""
        if len(parents) == 1:
            return self.of(parents[0])
        try:
            return self.of(NAME_OF_SEVERAL)
        except PermanentError:
            return None


COMPOUND = frozenset({"address", "location"})
"""The types of fields that are several in one; they are asked for by their parts."""


def _parts(fields: Iterable[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Field]]:
    """Return the fields of each address and location by part: `city` is BillingCity, or Hall__City__s."""
    compounds = {one["name"]: one for one in fields if one["type"] in COMPOUND}
    parts: dict[str, dict[str, Field]] = {name.lower(): {} for name in compounds}
    for one in fields:
        whole = one.get("compoundFieldName")
        if isinstance(whole, str) and whole in compounds and whole != one["name"]:
            stem = whole.removesuffix("__c") + "__" if whole.endswith("__c") else whole.removesuffix("Address")
            part = one["name"].removeprefix(stem).removesuffix("__s")
            parts[whole.lower()][part.lower()] = Field(one["name"], one["type"])
    return parts


T = TypeVar("T")
POLICY = RetryPolicy(attempts=7, budget_s=180.0, first_wait_s=1.0, longest_wait_s=30.0)
"""How often and how long requests to a busy org are repeated."""
_NO_PLACE = "the answer does not look like Salesforce's"
_NO_SALESFORCE = "check SALESFORCE_INSTANCE_URL"
_NEAR_SCORE = 60.0


class _NewSessionRefusedError(SourceRefusedError):
    """A session that was opened a moment ago is not accepted."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a query: `total` of all its pages, `more` the address of the next page, "" at the end."""

    records: Sequence[Mapping[str, Any]]
    total: int
    more: str

    @classmethod
    def of(cls, answer: Any) -> Page:
        """Parse an answer, which has one shape for a query and for child rows."""
        try:
            return cls(answer["records"], int(answer["totalSize"]), "" if answer["done"] else answer["nextRecordsUrl"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadSourceError(_NO_PLACE, f"a page of records lacks {error}", hint=_NO_SALESFORCE) from error


@dataclass(slots=True)
class Org:
    """The org that `access` leads to; the caller closes it. No request is sent before the first method call."""

    access: Access
    clock: Clock
    usage: OrgUsage = field(default_factory=OrgUsage)
    _session: OrgSession = field(init=False)
    _salesforce: Salesforce | None = None

    def __post_init__(self) -> None:
        """Make the session; raises ConfigError if `instance_url` is no address."""
        self._session = OrgSession(self.access.salesforce.instance_url, self.usage)

    @property
    def address(self) -> str:
        """The address under which a person opens the org's records."""
        return self.access.salesforce.instance_url.rstrip("/") or (
            f"https://{self._salesforce.sf_instance}" if self._salesforce else ""
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def describe(self, name: str) -> Shape:
        """Return an object's fields as we may see them.

        Raises:
            SourceRefusedError: there is no such object that we may see; the nearest one is named.
        """
        try:
            return Shape.of(self.call("GET", f"sobjects/{name}/describe", about=name))
        except KeyError as error:
            raise BadSourceError(name, f"Salesforce's answer about its fields lacks {error}", hint=_NO_SALESFORCE) from error
        except SourceRefusedError as error:
            if error.__cause__ is None or " 404" not in str(error):
                raise
            message = f"Salesforce has no object {name} that our user may see"
            raise SourceRefusedError(message, hint=self._nearest_hint(name)) from error

    def query(self, soql: str, *, with_deleted: bool = False) -> Page:
        """Return the first page of a query.

        Raises:
            BadSourceError: it is refused; of a field that is not there, the nearest one is named.
        """
        try:
            return Page.of(self.ask("the query", lambda org: org.query(soql, include_deleted=with_deleted)))
        except BadSourceError as error:
            if found := no_such_field(error):
                field, name = found
                near = process.extractOne(field, self.describe(name).names, processor=folded, score_cutoff=_NEAR_SCORE)
                error.hint = f"did you mean {near[0]}? {error.hint}" if near else error.hint
            raise

    def more(self, address: str) -> Page:
        """Return a further page.

        Raises:
            LocatorLostError: the query is forgotten, or was known to a former session only.
            SourceUnavailableError: the pages have no end.
        """
        try:
            page = Page.of(self.ask("the next page", lambda org: org.query_more(address, identifier_is_url=True)))
        except _NewSessionRefusedError as error:
            raise LocatorLostError(str(error), hint=error.hint) from error
        if page.more == address:
            raise SourceUnavailableError("Salesforce gave a page of records that leads to itself", hint="run again later")
        return page

    def limits(self) -> Mapping[str, Any]:
        """Return the org's limits: of each, `Max` and `Remaining`."""
        return dict(self.ask("its limits", lambda org: org.limits()) or {})

    def call(self, method: str, path: str, content: Mapping[str, Any] | None = None, *, about: str = "") -> Mapping[str, Any]:
        """Send a request under the API's root, with `content` as JSON; `about` is its name in messages."""
        return dict(self.ask(about or path, lambda org: org.restful(path, method=method, json=content)) or {})

    def call_once(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> None:
        """Send a request that is not repeated if the org is busy."""
        self._once(path, lambda org: org.restful(path, method=method, json=content))

    def stream(self, path: str, **params: str | int) -> requests.Response:
        """Request a text that may be long; the caller reads the answer's body and closes it."""

        def request(org: Salesforce) -> requests.Response:
            headers = {**org.headers, "Accept": "text/csv"}
            response = org.session.request("GET", f"{org.base_url}{path}", headers=headers, params=params, stream=True)
            if response.status_code >= 300:
                exception_handler(response, name=path)
            return response

        return self.ask(path, request)

    def ask(self, about: str, request: Callable[[Salesforce], T]) -> T:
        """Send a request; repeat it with a new session if the old one has ended, and a moment later if the org is busy.

        Raises:
            SourceUnavailableError: it stayed busy, or the daily requests are used up.
            SourceRefusedError, BadSourceError: it refuses the request.
            LocatorLostError: it has forgotten the query.
        """
        return retry_while_busy(lambda: self._once(about, request), POLICY, self.clock)

    def _once(self, about: str, request: Callable[[Salesforce], T]) -> T:
        """Send a request once, and again in a new session if the old one has ended."""
        try:
            return self._answer(about, request)
        except SalesforceExpiredSession:
            self._salesforce = None
        try:
            return self._answer(about, request)
        except SalesforceExpiredSession as error:
            message = f"Salesforce lets us in and does not know the session a moment later, when asked for {about}"
            hint = "check the user's session settings: locked to an IP address, or to a domain"
            raise _NewSessionRefusedError(message, hint=hint) from error

    def _answer(self, about: str, request: Callable[[Salesforce], T]) -> T:
        try:
            return request(self._opened())
        except SalesforceExpiredSession:
            raise
        except SalesforceError as error:
            found = refusal_error(about, error.status, error.content, retry_after_s=self.usage.retry_after_s)
            found.args = tuple(self.access.mask.hide(str(arg)) for arg in found.args)
            raise found from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise unreachable(about, self.access.mask.hide(f"{type(error).__name__}: {error}")) from error

    def _opened(self) -> Salesforce:
        if self._salesforce is None:
            token, host = log_in(self.access, self._session, self.usage)
            self._salesforce = Salesforce(
                session_id=token,
                instance=host,
                session=self._session,
                version=API_VERSION,
                parse_float=Number,
                object_pairs_hook=dict,
            )
            # simple-salesforce asks for it; it makes pages half as large again.
            self._salesforce.headers.pop("X-PrettyPrint", None)
        return self._salesforce

    def _nearest_hint(self, name: str) -> str:
        known = [one["name"] for one in self.call("GET", "sobjects").get("sobjects", ())]
        near = process.extractOne(name, known, processor=folded, score_cutoff=_NEAR_SCORE)
        asked = f"did you mean {near[0]}? " if near else ""
        return f"{asked}Objects of one's own end in __c; the user must be allowed to see the object"
