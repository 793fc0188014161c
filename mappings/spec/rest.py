"""The blocks of a source of kind `rest`: how its pages follow one another, and how it lets us in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from mappings.spec.source_words import SecretName
from mappings.strict import ANY_SCALAR, Strict, Text, matching, mistake

SINCE = "{since}"
Template = Annotated[Any, WithJsonSchema({"anyOf": [ANY_SCALAR, {"type": ["object", "array"]}]})]
"""Any JSON; its texts may hold `{since}`."""
_JSON_WORD = re.compile(r"""("?)(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)\1""")
"""A value that is no text in JSON; in double quotes it is one."""


class Pages(Strict):
    """How the pages of an API follow one another: one of `link`, `next_url`, `cursor`, `offset`, `page`."""

    link: Text = ""
    """The relation of the next page in the header `Link`: `next`."""
    next_url: Text = ""
    """The path to the next page's address in the answer."""
    cursor: Text = ""
    """The path to the next page's cursor in the answer, which is sent as `param`."""
    param: Text = ""
    """The parameter for the cursor; with `method: POST` a key of the body, as with `offset` and `page`."""
    offset: Text = ""
    """The parameter for the number of records before the page."""
    page: Text = ""
    """The parameter for the page's number."""
    first: int = Field(default=1, ge=0, le=1)
    """The number of the first page."""
    last: Text = ""
    """The path to the number of the last page."""
    more: Text = ""
    """The path to `true` or `false`: whether there are more pages."""
    total: Text = ""
    """The path to the number of all records, which must be met."""
    incomplete: Text = ""
    """The path to `true` or `incomplete` where the API has left records out, which is an error."""

    @property
    def counter(self) -> str:
        """The parameter that is counted up, "" if the answers name the next page."""
        return self.offset or self.page

    def check(self) -> None:
        ways = [name for name in ("link", "next_url", "cursor", "offset", "page") if getattr(self, name)]
        if len(ways) != 1:
            raise mistake("pages follow one another in one way", "write one of link, next_url, cursor, offset, page")
        if bool(self.cursor) != bool(self.param) or (self.last and not self.page):
            hint = "write them like {cursor: paging.next.after, param: after}, {page: page, last: total_pages}"
            raise mistake("cursor and param belong together, and last belongs to page", hint)


class ClientLogin(Strict):
    """The client credentials of OAuth 2 (RFC 6749, section 4.4)."""

    token_url: Annotated[Text, matching("https?://.+", "a web address", "write the token endpoint")] = Field(repr=False)
    """The address that gives tokens."""
    client: Text
    """The client's id."""
    secret: SecretName
    """The name of the client's secret."""
    scope: Text = ""
    """The scope to ask for."""


class Auth(Strict):
    """How an API lets us in; each secret is named: `EXAMPLE` is the variable `REST_EXAMPLE`. It is sent to its own host only."""

    bearer: SecretName | None = None
    """A token for the header `Authorization: Bearer`."""
    basic: SecretName | None = None
    """`user:password`."""
    header: Mapping[str, SecretName] = Field(default_factory=dict, max_length=5)
    """Headers with secrets: `{X-Api-Key: EXAMPLE}`."""
    param: Mapping[str, SecretName] = Field(default_factory=dict, max_length=5)
    """Parameters with secrets: `{api_key: EXAMPLE}`."""
    oauth2: ClientLogin | None = None
    """Client credentials: `token_url`, `client`, `secret`, `scope`."""

    def check(self) -> None:
        if sum(way is not None for way in (self.bearer, self.basic, self.oauth2)) > 1:
            raise mistake("the header Authorization has one value", "write one of bearer, basic, oauth2")


def utc_text(moment: datetime) -> str:
    """Return a moment in UTC, in whole seconds: `2026-05-03T17:30:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def filled(template: Any, since: str) -> Any:
    """Return the template with the moment `since` in place of `{since}`; without one, members that need it are left out."""
    if isinstance(template, str):
        return template.replace(SINCE, since)
    if isinstance(template, Mapping):
        return {key: filled(one, since) for key, one in template.items() if since or SINCE not in str(one)}
    return [filled(one, since) for one in template] if isinstance(template, list | tuple) else template


def as_json(template: Any) -> Any:
    """Return the template with the types of JSON: `50`, `true` and `null` are no texts; `'"50"'` is one."""
    if isinstance(template, Mapping):
        return {str(key): as_json(one) for key, one in template.items()}
    if isinstance(template, list | tuple):
        return [as_json(one) for one in template]
    return json.loads(template) if isinstance(template, str) and _JSON_WORD.fullmatch(template) else template
