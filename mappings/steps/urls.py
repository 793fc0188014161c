"""Steps that turn what partners type into a web address. Whether it answers is never asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, ClassVar
from urllib.parse import quote, unquote_plus, urljoin, urlsplit, urlunsplit

import idna
from pydantic import AfterValidator, Field, field_validator

from mappings.measures import Switch, Text, Texts, mistake
from mappings.patterns import compile_pattern
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Run, Step, StepExample
from mappings.steps.text import SPACES

_SOUND = re.compile(
    r"https?://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d{1,5})?"
    r"(?:[/?](?:(?:[\w/?:@!$&'()*+,;=~.-]++|%[0-9A-Fa-f]{2})++(?<=[\w/=-]))?)?",
    re.ASCII,
)
"""Addresses that need no change: by far the most."""
_FIRST = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_BARE = re.compile(r"(?:www\.)?(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}(?::\d+)?(?:[/?#][^\s<>\"']*)?")
_OTHER_SCHEME = re.compile(r"(?:mailto|tel|javascript|data|ftp|file):", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRAILING = ".,;:!?)]}»”’"
_LONGEST = 4000
_WANTED = "an address like https://example.org/tickets would be accepted"


class EncodeSpaces(Step, name="encode_spaces", refuses=False):
    """Write the spaces inside an address as %20, where the cell holds nothing but the address; `url` ends at a space."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("encode_spaces", " https://example.org/photo 1.jpg", "https://example.org/photo%201.jpg"),
    )
    switch: Switch = Field(default=True, alias="encode_spaces")

    def function(self) -> Run:
        return lambda text: re.sub(r"\s", "%20", text.strip(SPACES))


class Url(Step, name="url"):
    """Find the first web address, add https:// where the scheme is missing, percent-encode exactly once.

    Addresses other than http and https (mailto, tel) are refused.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("url", "Bilhetes: https://example.org/a b", "https://example.org/a"),
        StepExample("url", "www.example.org/café", "https://www.example.org/caf%C3%A9"),
        StepExample("url", "https://example.org/a%7Cb|c", "https://example.org/a%7Cb%7Cc"),
        StepExample("url", "mailto:box@example.org", ReasonCode.NOT_A_URL),
    )
    switch: Switch = Field(default=True, alias="url")

    def function(self) -> Run:
        return clean_url


def clean_url(text: str) -> str:
    """Return the first web address in a text, in the form in which it can be sent.

    Raises:
        Refusal: there is none, or it is not an address of the web.
    """
    if len(text) < _LONGEST and _SOUND.fullmatch(text):
        return text
    if len(text) > _LONGEST:
        raise Refusal(ReasonCode.NOT_A_URL, f"an address of at most {_LONGEST} characters would be accepted")
    found = _FIRST.search(text)
    if found:
        return _encoded(_without_tail(found[0]))
    bare = text.strip()
    if _OTHER_SCHEME.match(bare) or not _BARE.fullmatch(bare):
        raise Refusal(ReasonCode.NOT_A_URL, _WANTED)
    return _encoded("https://" + bare)


def _without_tail(url: str) -> str:
    """Drop the punctuation of the sentence around it, but keep a bracket that the address itself opens."""
    while url and url[-1] in _TRAILING and not (url[-1] == ")" and url.count("(") >= url.count(")")):
        url = url[:-1]
    return url


def _encoded(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = _host(parts.hostname or "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise Refusal(ReasonCode.NOT_A_URL, _WANTED) from None
    path = _percent(parts.path, "/:@!$&'()*+,;=~-._%")
    query = _percent(parts.query, "/?:@!$&'()*+,;=~-._%")
    fragment = _percent(parts.fragment, "/?:@!$&'()*+,;=~-._%")
    return urlunsplit((parts.scheme.lower(), host + port, path, query, fragment))


def _percent(part: str, safe: str) -> str:
    return quote(_BAD_ESCAPE.sub("%25", part), safe=safe, errors="replace")


def _host(host: str) -> str:
    if host.isascii() and re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", host):
        return host
    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError(host) from error


_MAILBOX = re.compile(r"([\w.!#$%&'*+/=?^`{|}~-]{1,64})@((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,63})", re.IGNORECASE | re.ASCII)


def check_address(text: str) -> str:
    """Check an address that a mapping file itself names.

    Raises:
        PydanticCustomError: it is none.
    """
    try:
        clean_url(text)
    except Refusal as refusal:
        raise mistake(f'"{text}" is not a web address', refusal.hint or "write it like https://example.org/a.jpg") from None
    return text


Address = Annotated[Text, AfterValidator(check_address)]


class DropQuery(Step, name="drop_query", refuses=False):
    """Remove parameters from an address: those that only follow readers around."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(
            "{drop_query: [utm_*, fbclid]}", "https://ex.org/a?id=7&utm_source=x&fbclid=y#top", "https://ex.org/a?id=7#top"
        ),
        StepExample('{drop_query: "*"}', "https://ex.org/a?id=7", "https://ex.org/a"),
    )
    names: Texts = Field(alias="drop_query", min_length=1, description="Their names; * stands for any characters.")

    def function(self) -> Run:
        is_dropped = _matcher(self.names)

        def drop(text: str) -> str:
            return _with_query(text, lambda pairs: [pair for pair in pairs if not is_dropped(_name_of(pair))])

        return drop


class SetQuery(Step, name="set_query", refuses=False):
    """Give an address parameters; one that it has already gets the new value."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(
            "{set_query: {from: our agenda}}", "https://ex.org/a?id=7#top", "https://ex.org/a?id=7&from=our%20agenda#top"
        ),
        StepExample("{set_query: {id: 8}}", "https://ex.org/a?id=7", "https://ex.org/a?id=8"),
    )
    parameters: dict[str, Text] = Field(alias="set_query", min_length=1, description="The parameters and their values.")

    def function(self) -> Run:
        wanted = {name: f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.parameters.items()}

        def change(pairs: list[str]) -> list[str]:
            there = {_name_of(pair) for pair in pairs}
            kept = [wanted.get(_name_of(pair), pair) for pair in pairs]
            return kept + [new for name, new in wanted.items() if name not in there]

        return lambda text: _with_query(text, change)


class Resolve(Step, name="resolve"):
    """Complete an address that begins in the middle, as links on a page of this address do."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{resolve: "https://ex.org/agenda/"}', "show.php?id=7", "https://ex.org/agenda/show.php?id=7"),
        StepExample('{resolve: "https://ex.org/agenda/"}', "/img/a.jpg", "https://ex.org/img/a.jpg"),
        StepExample('{resolve: "https://ex.org/agenda/"}', "https://other.org/", "https://other.org/"),
    )
    base: Address = Field(alias="resolve", description="The address that they are seen from.")

    def function(self) -> Run:
        base = self.base

        def resolve(text: str) -> str:
            try:
                return urljoin(base, text.strip(SPACES))
            except ValueError:
                raise Refusal(ReasonCode.NOT_A_URL, _WANTED) from None

        return resolve


class UrlTemplate(Step, name="url_template", refuses=False):
    """Put a value into an address, percent-encoded."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(
            '{url_template: "https://ex.org/e/{}?from=agenda"}',
            "jazz & blues/7",
            "https://ex.org/e/jazz%20%26%20blues%2F7?from=agenda",
        ),
    )
    template: Text = Field(alias="url_template", description="The address, with {} where the value belongs.")

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if template.count("{}") != 1:
            raise mistake(f'"{template}" needs one {{}}, the place of the value', 'write it like "https://example.org/event/{}"')
        check_address(template.replace("{}", "x"))
        return template

    def function(self) -> Run:
        before, after = self.template.split("{}")
        return lambda text: before + quote(text.strip(SPACES), safe="", errors="replace") + after


class OnlyHosts(Step, name="only_hosts"):
    """Refuse an address at any other host than these."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{only_hosts: [ex.org, "*.ex.org"]}', "https://tickets.ex.org/7", "https://tickets.ex.org/7"),
        StepExample("{only_hosts: ex.org}", "https://ex.org.evil.example/7", ReasonCode.NOT_A_URL),
    )
    hosts: Texts = Field(alias="only_hosts", min_length=1, description="The hosts; * stands for any characters.")

    def function(self) -> Run:
        is_allowed = _matcher(tuple(host.lower() for host in self.hosts))
        wanted = f"an address at {' or '.join(self.hosts)} would be accepted"

        def only_hosts(text: str) -> str:
            if not is_allowed(urlsplit(clean_url(text)).hostname or ""):
                raise Refusal(ReasonCode.NOT_A_URL, wanted)
            return text

        return only_hosts


class Email(Step, name="email"):
    """Find the first e-mail address in a text. Refuses a text without one."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("email", "Info: Box.Office@Example.ORG (mornings)", "Box.Office@example.org"),
        StepExample("email", "mailto:box@example.org", "box@example.org"),
        StepExample("email", "box at example.org", ReasonCode.BAD_TEXT),
    )
    switch: Switch = Field(default=True, alias="email")

    def function(self) -> Run:
        return _first_mailbox


def _first_mailbox(text: str) -> str:
    found = _MAILBOX.search(text)
    if found is None:
        raise Refusal(ReasonCode.BAD_TEXT, "an e-mail address like box@example.org would be accepted")
    return f"{found[1].lstrip('.')}@{found[2].lower()}"


def _with_query(text: str, change: Callable[[list[str]], list[str]]) -> str:
    address, hash_sign, fragment = text.strip(SPACES).partition("#")
    address, _, query = address.partition("?")
    pairs = change([pair for pair in query.split("&") if pair])
    return address + ("?" if pairs else "") + "&".join(pairs) + hash_sign + fragment


def _name_of(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0])


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return the test whether a name is one of several, where * stands for any characters."""
    choices = ("(?s:.*)".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return compile_pattern(rf"\A(?:{'|'.join(choices)})\z").finds
