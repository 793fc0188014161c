"""Uploading one image: its encoding is not shown by the spec, so both usual ones are tried, and the good one kept.

Where the image came from is `media`'s; what its id is used for is the caller's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import assert_never

import httpx
from pydantic import ValidationError

from connectors.event_api import complaints
from connectors.event_api.answers import Foreign, KeyUsed, Meaning, Refused
from connectors.event_api.media import Image, ImageProblem
from connectors.event_api.questions import Questions, Read
from connectors.event_api.wire import Told
from connectors.pacing import Closed

_OTHER_ENCODING = frozenset({400, 415, 422})
"""Refusals that may mean the encoding rather than the image."""


class _Encoding(Enum):
    FORM = auto()
    RAW = auto()


class _Id(Told):
    id: int


class _Uploaded(Told):
    """The answer's shape beyond the id is not shown (spec, POST media): the id is taken from where it usually stands."""

    id: int | None = None
    doc: _Id | None = None
    data: _Id | None = None


class Uploader:
    """Uploads over one route, and remembers which encoding the service took."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._url = questions.exchange.url("/media")
        self._known: _Encoding | None = None

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Return the id of the media document, or why there is none. Never raises for an image.

        `key` is the idempotency key of this image's upload; a second encoding is another request and gets its own.
        """
        met = await self._try(image, key, self._known or _Encoding.FORM)
        if self._known is None and isinstance(met, Refused | Foreign) and met.answer.status in _OTHER_ENCODING:
            second = await self._try(image, f"{key}-raw", _Encoding.RAW)
            met = second if isinstance(second, Read) or met.answer.status == 415 else met
        return met.value if isinstance(met, Read) else self._problem(met)

    async def _try(self, image: Image, key: str, encoding: _Encoding) -> Read[int] | Meaning | Closed:
        met = await self._questions.insist(lambda: self._request(image, key, encoding), _media_id)
        if isinstance(met, Read):
            self._known = encoding
        return met

    def _request(self, image: Image, key: str, encoding: _Encoding) -> httpx.Request:
        match encoding:
            case _Encoding.FORM:
                content_type, content = _form(image)
            case _Encoding.RAW:
                content_type, content = image.content_type, image.content
            case _:
                assert_never(encoding)
        headers = {"content-type": content_type, "idempotency-key": key}
        return self._questions.exchange.request("POST", self._url, content=content, headers=headers)

    def _problem(self, met: Meaning | Closed) -> ImageProblem:
        if isinstance(met, Closed):
            return ImageProblem(f"The image could not be uploaded: {met.cause}.", is_passing=True, cause=met.cause)
        if isinstance(met, Refused | Foreign):
            return ImageProblem(f"The service refuses the image: {complaints.in_short(met.answer)}.")
        if isinstance(met, KeyUsed):
            return ImageProblem("The service says that this image was uploaded before, and not under which number.")
        cause = self._questions.complaint(met, "the upload of an image")
        return ImageProblem(f"The image could not be uploaded: {cause}.", is_passing=True, cause=cause)


def _form(image: Image) -> tuple[str, bytes]:
    """Encode as a form with one file; the boundary comes from the image, so that a retry sends the same bytes."""
    name = image.digest.hex()
    boundary = f"eventsync-{name}"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}.{image.extension}"\r\n'
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
