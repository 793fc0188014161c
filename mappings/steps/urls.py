"""Steps that make web addresses from partners' texts, and find e-mail addresses. Nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote, unquote_plus, urljoin, urlsplit, urlunsplit

import idna
from pydantic import AfterValidator, Field, field_validator

from mappings.lookup_table import SPACES
from mappings.patterns import compile_pattern
from mappings.reasons import Detail, ReasonCode, Refusal
from mappings.steps.step import Family, Run, Step, plain_step
from mappings.strict import Text, Texts, mistake

_SOUND = re.compile(
    r"https?://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d{1,5})?"
    r"(?:[/?](?:(?:[\w/?:@!$&'()*+,;=~.-]++|%[0-9A-Fa-f]{2})++(?<=[\w/=-]))?)?",
    re.ASCII,
)
"""Addresses that need no change, as most do."""
_FIRST = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_BARE = re.compile(r"(?:www\.)?(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}(?::\d+)?(?:[/?#][^\s<>\"']*)?")
_OTHER_SCHEME = re.compile(r"(?:mailto|tel|javascript|data|ftp|file):", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAILBOX = re.compile(r"([\w.!#$%&'*+/=?^`{|}~-]{1,64})@((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,63})", re.IGNORECASE | re.ASCII)
_TRAILING = ".,;:!?)]}»”’"
_LONGEST = 4000


@plain_step("encode_spaces", Family.ADDRESSES, refuses=False)
def encode_spaces(text: str) -> str:
    """Encode the spaces inside an address as %20, for cells with nothing but an address; `url` ends at a space.

    Examples:
        encode_spaces: " https://example.org/photo 1.jpg" -> "https://example.org/photo%201.jpg"
    """
    return re.sub(r"\s", "%20", text.strip(SPACES))


@plain_step("url", Family.ADDRESSES)
def clean_url(text: str) -> str:
    """Find the first web address, add https:// if the scheme is missing, percent-encode exactly once.

    Addresses other than http and https (mailto, tel) are refused.

    Examples:
        url: "Bilhetes: https://example.org/a b" -> "https://example.org/a"
        url: "www.example.org/café" -> "https://www.example.org/caf%C3%A9"
        url: "https://example.org/a%7Cb|c" -> "https://example.org/a%7Cb%7Cc"
        url: "mailto:box@example.org" -> not_a_url
    """
    if len(text) < _LONGEST and _SOUND.fullmatch(text):
        return text
    if len(text) > _LONGEST:
        raise Refusal(ReasonCode.NOT_A_URL, f"expected an address of at most {_LONGEST} characters")
    if found := _FIRST.search(text):
        return _encode(_without_tail(found[0]))
    bare = text.strip()
    if _OTHER_SCHEME.match(bare) or not _BARE.fullmatch(bare):
        raise _no_url()
    return _encode("https://" + bare)


def _no_url() -> Refusal:
    return Refusal(ReasonCode.NOT_A_URL, "expected an address like https://example.org/tickets")


def _without_tail(url: str) -> str:
    """Remove trailing punctuation of the surrounding sentence, but keep a bracket that the address itself opens."""
    while url and url[-1] in _TRAILING and not (url[-1] == ")" and url.count("(") >= url.count(")")):
        url = url[:-1]
    return url


def _encode(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = _encode_host(parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:
        raise _no_url() from None
    safe = (("path", "/:@!$&'()*+,;=~-._%"), ("query", "/?:@!$&'()*+,;=~-._%"), ("fragment", "/?:@!$&'()*+,;=~-._%"))
    quoted = [quote(_BAD_ESCAPE.sub("%25", getattr(parts, part)), safe=signs, errors="replace") for part, signs in safe]
    return urlunsplit((parts.scheme.lower(), host, *quoted))


def _encode_host(host: str) -> str:
    if host.isascii() and re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", host):
        return host
    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError(host) from error


def check_address(text: str) -> str:
    """Check an address in the mapping file.

    Raises:
        PydanticCustomError: it is not a web address.
    """
    try:
        clean_url(text)
    except Refusal as refusal:
        raise mistake(f'"{text}" is not a web address', refusal.hint or "write it like https://example.org/a.jpg") from None
    return text


class Resolve(Step, name="resolve", family=Family.ADDRESSES):
    """Complete a relative address, such as a link on a page of this address.

    Examples:
        {resolve: "https://ex.org/agenda/"}: "show.php?id=7" -> "https://ex.org/agenda/show.php?id=7"
        {resolve: "https://ex.org/agenda/"}: "/img/a.jpg" -> "https://ex.org/img/a.jpg"
        {resolve: "https://ex.org/agenda/"}: "https://other.org/" -> "https://other.org/"
    """

    base: Annotated[Text, AfterValidator(check_address)] = Field(
        alias="resolve", description="The address that relative addresses start from."
    )

    def apply(self, text: str) -> str:
        try:
            return urljoin(self.base, text.strip(SPACES))
        except ValueError:
            raise _no_url() from None


class UrlTemplate(Step, name="url_template", family=Family.ADDRESSES, refuses=False):
    """Put a value into an address, percent-encoded.

    Examples:
        {url_template: "https://ex.org/e/{}?from=agenda"}:
            "jazz & blues/7" -> "https://ex.org/e/jazz%20%26%20blues%2F7?from=agenda"
    """

    template: Text = Field(alias="url_template", description="The address, with {} where the value belongs.")

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if template.count("{}") != 1:
            raise mistake(f'"{template}" needs one {{}}, the place of the value', 'write it like "https://example.org/event/{}"')
        check_address(template.replace("{}", "x"))
        return template

    def apply(self, text: str) -> str:
        return self.template.replace("{}", quote(text.strip(SPACES), safe="", errors="replace"))


class SetQuery(Step, name="set_query", family=Family.ADDRESSES, refuses=False):
    """Set query parameters of an address; an existing one gets the new value.

    Examples:
        {set_query: {from: our agenda}}:
            "https://ex.org/a?id=7#top" -> "https://ex.org/a?id=7&from=our%20agenda#top"
        {set_query: {id: 8}}: "https://ex.org/a?id=7" -> "https://ex.org/a?id=8"
    """

    parameters: dict[str, Text] = Field(alias="set_query", min_length=1, description="The parameters and their values.")

    def function(self) -> Run:
        wanted = {name: f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.parameters.items()}

        def change(pairs: list[str]) -> list[str]:
            changed = [wanted.get(_name_of(pair), pair) for pair in pairs]
            return changed + [new for new in wanted.values() if new not in changed]

        return lambda text: _with_query(text, change)


class DropQuery(Step, name="drop_query", family=Family.ADDRESSES, refuses=False):
    """Remove query parameters from an address, such as those for tracking.

    Examples:
        {drop_query: [utm_*, fbclid]}:
            "https://ex.org/a?id=7&utm_source=x&fbclid=y#top" -> "https://ex.org/a?id=7#top"
        {drop_query: "*"}: "https://ex.org/a?id=7" -> "https://ex.org/a"
    """

    names: Texts = Field(alias="drop_query", min_length=1, description="Their names; * stands for any characters.")

    def function(self) -> Run:
        is_dropped = _matcher(self.names)
        return lambda text: _with_query(text, lambda pairs: [pair for pair in pairs if not is_dropped(_name_of(pair))])


class OnlyHosts(Step, name="only_hosts", family=Family.ADDRESSES):
    """Refuse an address at any other host than these.

    Examples:
        {only_hosts: [ex.org, "*.ex.org"]}: "https://tickets.ex.org/7" -> "https://tickets.ex.org/7"
        {only_hosts: ex.org}: "https://ex.org.evil.example/7" -> not_a_url
    """

    hosts: Texts = Field(alias="only_hosts", min_length=1, description="The hosts; * stands for any characters.")

    def function(self) -> Run:
        is_allowed = _matcher(tuple(host.lower() for host in self.hosts))

        def only_hosts(text: str) -> str:
            if not is_allowed(urlsplit(clean_url(text)).hostname or ""):
                hint = f"expected an address at {' or '.join(self.hosts)}"
                raise Refusal(ReasonCode.NOT_A_URL, hint, detail=Detail.NOT_OUR_HOST, particulars={"hosts": self.hosts})
            return text

        return only_hosts


@plain_step("email", Family.ADDRESSES)
def first_mailbox(text: str) -> str:
    """Find the first e-mail address in a text. Refuses a text without one.

    Examples:
        email: "Info: Box.Office@Example.ORG (mornings)" -> "Box.Office@example.org"
        email: "mailto:box@example.org" -> "box@example.org"
        email: "box at example.org" -> bad_text
    """
    found = _MAILBOX.search(text)
    if found is None:
        raise Refusal(ReasonCode.BAD_TEXT, "expected an e-mail address like box@example.org", detail=Detail.NO_MAILBOX)
    return f"{found[1].lstrip('.')}@{found[2].lower()}"


def _with_query(text: str, change: Callable[[list[str]], list[str]]) -> str:
    address, hash_sign, fragment = text.strip(SPACES).partition("#")
    address, _, query = address.partition("?")
    pairs = change([pair for pair in query.split("&") if pair])
    return address + ("?" if pairs else "") + "&".join(pairs) + hash_sign + fragment


def _name_of(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0])


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that tests whether a name matches one of several patterns, in which * stands for any characters."""
    choices = ("(?s:.*)".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return compile_pattern(rf"\A(?:{'|'.join(choices)})\z").finds
