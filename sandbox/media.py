"""POST /media: images, recognised by their content whatever they are called.

Where they are kept is `records`'s; the pages that show them are `pages`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from sandbox.answers import Answer, invalid, said
from sandbox.bodies import media_type, read_body, wrong_media_type
from sandbox.keys import ApiKey
from sandbox.once import answer_once
from sandbox.service import Sandbox, Visit

_MULTIPART: Final = "multipart/form-data"
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


async def upload_image(sandbox: Sandbox, visit: Visit) -> Answer:
    """One image, kept once under its idempotency key, sent as a form or as it is."""
    key = sandbox.admit(visit, sandbox.switches.media_scope)
    is_form = _is_form(sandbox, visit)
    body = await read_body(visit.request, sandbox.switches.max_image_bytes)
    image = await _image_of_form(sandbox, visit, body) if is_form else body
    # The same image is the same request, whatever boundary a form library drew this time.
    return await answer_once(sandbox, visit, image, partial(_keep, sandbox, visit, key, image))


def image_type(image: bytes) -> str:
    """The media type that the first bytes show: JPEG, PNG, GIF or WebP; "" for anything else."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if image.startswith(signature)), "")


def _is_form(sandbox: Sandbox, visit: Visit) -> bool:
    declared, accepted = media_type(visit.request), sandbox.switches.media_encoding
    if declared == _MULTIPART and accepted != "raw":
        return True
    if declared.startswith("image/") and accepted != "multipart":
        return False
    raise wrong_media_type({"any": f"{_MULTIPART} or image/*", "multipart": _MULTIPART, "raw": "image/*"}[accepted])


async def _image_of_form(sandbox: Sandbox, visit: Visit, body: bytes) -> bytes:
    wanted, form = sandbox.switches.media_field, await _form(visit, body)
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and wanted in {"any", name}:
                return await value.read()
    finally:
        await form.close()
    raise invalid("file" if wanted == "any" else wanted, "is required, as a file")


async def _form(visit: Visit, body: bytes) -> FormData:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        return await MultiPartParser(visit.request.headers, stream()).parse()
    except (MultiPartException, KeyError) as unreadable:
        raise invalid("body", "is not a readable multipart form") from unreadable


def _keep(sandbox: Sandbox, visit: Visit, key: ApiKey, image: bytes) -> Answer:
    kind = image_type(image)
    if not kind:
        raise invalid("file", "must be a JPEG, PNG, GIF or WebP image")
    number = sandbox.records.add_image(kind, image, key.name, visit.attempt.at)
    return said({"doc": {"id": number, "mimeType": kind, "filesize": len(image)}}, sandbox.switches.success_status)
