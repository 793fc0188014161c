"""A store of buckets on this machine that answers as S3 does: lists, tells of and gives objects, parts of them too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from lookalikes.threaded import served

OLD = "2023-11-14T22:13:20.000Z"
OLD_S = 1_700_000_000.0


@dataclass
class Bucket:
    """One bucket: its objects by their key. `is_closed`: nobody is let in."""

    name: str = "partner"
    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    is_closed: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, key: str) -> str:
        return f"s3://{self.name}/{key}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key = rest[0] if rest else ""
        self.bucket.asked.append(f"{self.command} {self.path}")
        if self.bucket.is_closed:
            self._say(403, _error("AccessDenied", "Access Denied"))
        elif bucket != self.bucket.name:
            self._say(404, _error("NoSuchBucket", "The specified bucket does not exist"))
        elif not key:
            self._say(200, self._listing({name: values[0] for name, values in parse_qs(parts.query).items()}))
        elif key not in self.bucket.objects:
            self._say(404, _error("NoSuchKey", "The specified key does not exist."))
        else:
            self._give(self.bucket.objects[key])

    def _give(self, content: bytes) -> None:
        etag = _etag(content)
        told = {"ETag": etag, "Last-Modified": formatdate(OLD_S, usegmt=True), "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part:
            start, end = int(part[1]), min(int(part[2]), len(content) - 1)
            told["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            self._say(206, content[start : end + 1], told)
        else:
            self._say(200, content, told)

    def _listing(self, asked: dict[str, str]) -> bytes:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        found, folders = [], set()
        for key, content in sorted(self.bucket.objects.items()):
            if not key.startswith(prefix):
                continue
            inner, mark, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if mark:
                folders.add(f"{prefix}{inner}{delimiter}")
            else:
                etag = escape(_etag(content))
                found.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{OLD}</LastModified><ETag>{etag}</ETag>"
                    f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{self.bucket.name}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found) + len(folders)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(found)}{common}</ListBucketResult>"
        ).encode()

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, text in {"Content-Length": str(len(body)), "Date": formatdate(usegmt=True), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _error(code: str, message: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


@contextmanager
def bucket_server() -> Iterator[Bucket]:
    bucket = Bucket()
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    with served(handler) as bucket.port:
        yield bucket
