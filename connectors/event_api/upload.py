"""Uploading one image: its encoding is not shown by the spec, so its page and the usual ones are tried, and the good one kept.

Where the image came from is `media`'s; what its id is used for is the caller's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from connectors.admission import Closed
from connectors.event_api import complaints
from connectors.event_api.answers import Foreign, KeyUsed, Meaning, Refused
from connectors.event_api.media import Image, ImageProblem
from connectors.event_api.questions import Questions, Read
from connectors.event_api.wire import Told

_OTHER_ENCODING = frozenset({400, 415, 422})
"""Refusals that may mean the encoding rather than the image."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """A form with the image in `field`, or the image itself where there is none. `key_end` sets the requests of one image
    apart: each has a key of its own.
    """

    field: str
    key_end: str


_USUAL = (_Encoding("file", ""), _Encoding("", "-raw"), _Encoding("image", "-image"))
"""The encodings in the order of trying, where the service's page tells nothing."""
_TOLD_KEY_END = "-field"
LONGEST_KEY_END = max(len(end) for end in (_TOLD_KEY_END, *(encoding.key_end for encoding in _USUAL)))
"""By how many characters the key of an upload may be longer than that of an event."""
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Id(Told):
    id: int


class _Uploaded(Told):
    """The answer's shape beyond the id is not shown (spec, POST media): the id is taken from where it usually stands."""

    id: int | None = None
    doc: _Id | None = None
    data: _Id | None = None


class Uploader:
    """Uploads over one route, several images at once, and remembers which encoding the service took."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._url = questions.exchange.url("/media")
        self._known: _Encoding | None = None
        self._order: tuple[_Encoding, ...] = _USUAL

    def expect(self, field: str) -> None:
        """Try a form with the image in `field` first, as the service's page shows it; "" or what is no name changes nothing."""
        if _FIELD.fullmatch(field):
            told = next((usual for usual in _USUAL if usual.field == field), _Encoding(field, _TOLD_KEY_END))
            self._order = (told, *(usual for usual in _USUAL if usual != told))

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Return the id of the media document, or why there is none. Never raises for an image.

        `key` is the idempotency key of this image's upload; another encoding is another request and gets its own.
        """
        encoding: _Encoding | None = self._known or self._order[0]
        tried: list[_Encoding] = []
        told: list[Read[int] | Meaning | Closed] = []
        while encoding is not None:
            tried.append(encoding)
            told.append(await self._try(image, key, encoding))
            encoding = self._next(tried) if _may_mean_the_encoding(told[-1]) else None
        return told[-1].value if isinstance(told[-1], Read) else self._problem(_about_the_image(told))

    def _next(self, tried: list[_Encoding]) -> _Encoding | None:
        """Return what to try after refusals; an upload under way beside this one may have found the good one meanwhile."""
        if self._known is not None:
            return None if self._known in tried else self._known
        return next((encoding for encoding in self._order if encoding not in tried), None)

    async def _try(self, image: Image, key: str, encoding: _Encoding) -> Read[int] | Meaning | Closed:
        met = await self._questions.insist(lambda: self._request(image, key, encoding), _media_id)
        if isinstance(met, Read):
            self._known = encoding
        return met

    def _request(self, image: Image, key: str, encoding: _Encoding) -> httpx.Request:
        content_type, content = _form(image, encoding.field) if encoding.field else (image.content_type, image.content)
        headers = {"content-type": content_type, "idempotency-key": key + encoding.key_end}
        return self._questions.exchange.request("POST", self._url, content=content, headers=headers)

    def _problem(self, met: Meaning | Closed) -> ImageProblem:
        if isinstance(met, Closed):
            return ImageProblem(f"The image could not be uploaded: {met.cause}.", is_passing=True, cause=met.cause)
        if isinstance(met, Refused | Foreign):
            return ImageProblem(f"The service refuses the image: {complaints.in_short(met.answer)}.")
        if isinstance(met, KeyUsed):
            told = "The service says that this image was uploaded before, and not under which number."
            return ImageProblem(told, is_passing=met.is_under_way, is_key_used=True)
        cause = self._questions.complaint(met, "the upload of an image")
        return ImageProblem(f"The image could not be uploaded: {cause}.", is_passing=True, cause=cause)


def _may_mean_the_encoding(met: Read[int] | Meaning | Closed) -> bool:
    return isinstance(met, Refused | Foreign) and met.answer.status in _OTHER_ENCODING


def _about_the_image(told: list[Read[int] | Meaning | Closed]) -> Meaning | Closed:
    """Return the first complaint that is not about the encoding alone (415), else the last one."""
    complaints_told = [met for met in told if not isinstance(met, Read)]
    return next((met for met in complaints_told if isinstance(met, Closed) or met.answer.status != 415), complaints_told[-1])


def _form(image: Image, field: str) -> tuple[str, bytes]:
    """Encode as a form with one file in `field`; the boundary comes from the image, so that a retry sends the same bytes."""
    name = image.digest.hex()
    boundary = f"eventsync-{name}"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="{field}"; filename="{name}.{image.extension}"\r\n'
        f"content-type: {image.content_type}\r\n\r\n"
    )
    return f"multipart/form-data; boundary={boundary}", head.encode("ascii") + image.content + f"\r\n--{boundary}--\r\n".encode(
        "ascii"
    )


def _media_id(body: bytes) -> int | None:
    try:
        told = _Uploaded.model_validate_json(body)
    except ValidationError:
        return None
    return next((found.id for found in (told.doc, told.data) if found is not None), told.id)
