"""The script everybody writes first: a loop over the rows, httpx, a ledger in SQLite; one request after the other.

Its asynchronous sister is `by_hand_async.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
from books import Books, body_of
from job import PATH, headers, mapping, read


def main(url: str, folder: Path) -> None:
    to_event, books = mapping(folder), Books(folder)
    with httpx.Client(base_url=url, timeout=30) as http:
        for cells in read(folder):
            body, digest = body_of(to_event(cells))
            if books.has(cells["id"], digest):
                continue
            answer = http.post(PATH, content=body, headers=headers(cells))
            answer.raise_for_status()
            books.write(cells["id"], digest, answer.json()["doc"]["id"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
