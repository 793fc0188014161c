"""The digests of identity are pinned to literal values: another value would send every event of every deployment again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mappings.row_key
from mappings.row_key import FeedName, RowKey, duplicate_digest, fingerprint, idempotency_key, row_digest, row_key

ROOT = Path(mappings.row_key.__file__).parent.parent
FEED = FeedName("lisbon-agenda")

IDEMPOTENCY_KEYS = {
    ("default", "lisbon-agenda", "17", "create", 0): "es1-8af8353b5e5b488203b85a3a5ead3161",
    ("default", "lisbon-agenda", "17", "create", 1): "es1-44f9de710656accbb61362c73437cad3",
    ("default", "lisbon-agenda", "17", "draft", 0): "es1-00a191d5f08cc222adde6854e4a83e8a",
    ("prod", "lisbon-agenda", "17", "create", 0): "es1-4fa94674e0bce033ec5d8d00c3b9f78d",
    ("default", "ünï", "Æ|\\|日本", "create", 0): "es1-51073b18f9ffc1ae4c574eed5d873e44",
}
ELSEWHERE = """
import json
from mappings.row_key import fingerprint, idempotency_key, row_digest, row_key, duplicate_digest
keys = [idempotency_key(n, f, k, action=a, revision=r) for n, f, k, a, r in json.loads(input())]
print(json.dumps([*keys, row_key(["A 17", "x|y", " e\\u0301\\u2003"]), fingerprint(b"{}", "u"), row_digest(b"m", "ab").hex(),
    duplicate_digest(7, "Stra\\u00dfe", "s", "\\u00c9vora").hex()]))
"""


@pytest.mark.parametrize(("parts", "expected"), IDEMPOTENCY_KEYS.items())
def test_an_idempotency_key_is_the_same_for_ever(parts: tuple[str, str, str, str, int], expected: str) -> None:
    namespace, feed, key, action, revision = parts
    assert idempotency_key(namespace, FeedName(feed), RowKey(key), action=action, revision=revision) == expected


def test_the_digests_of_rows_are_the_same_for_ever() -> None:
    assert fingerprint(b'{"title":"Jazz"}') == "0dd7e975344af1ce96c03c3287e7667a"
    assert fingerprint(b'{"title":"Jazz"}', "https://img.example/a.jpg") == "e9cac7faf4bc823a5f782a56427d5d19"
    assert row_digest(b"m" * 16, ["a", "b", ""]).hex() == "e7e4b50dddfadb52f2671d267de4a852"
    twin = duplicate_digest(7, "Jazz & Blues", "2026-04-01T20:00:00+02:00", "Lisboa")
    assert twin.hex() == "dae8e5313e3ae8d86f861719ed72ff48"


def test_a_row_key_joins_its_parts_legibly() -> None:
    assert row_key(["A 17", "x|y", "b\\c", " \u00a0é\u2003"]) == "A 17|x\\|y|b\\\\c|é"


def test_the_two_spellings_of_an_accent_are_one_row_key() -> None:
    assert row_key(["e\u0301vora"]) == row_key(["\u00e9vora"])


def test_copies_are_recognised_whatever_their_capitals() -> None:
    assert duplicate_digest(7, "JAZZ", "s", "LISBOA") == duplicate_digest(7, "jazz", "s", "lisboa")


def _digests(interpreter: str, seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(
        [interpreter, "-c", ELSEWHERE],
        input=json.dumps(list(IDEMPOTENCY_KEYS)),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    digests: list[str] = json.loads(told.stdout)
    return digests


def _interpreter(name: str) -> str | None:
    """Find a Python that starts, on the path or among pyenv's; pyenv's own command fails for versions that are not selected."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"versions/*/bin/{name}")))]
    return next((one for one in found if one and _starts(one)), None)


def _starts(interpreter: str) -> bool:
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_hash_randomisation_changes_no_digest(seed: str) -> None:
    assert _digests(sys.executable, seed)[: len(IDEMPOTENCY_KEYS)] == list(IDEMPOTENCY_KEYS.values())
    assert _digests(sys.executable, seed) == _digests(sys.executable, "2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python3.11", "python3.12", "python3.13"])
def test_every_python_gives_the_same_digests(name: str) -> None:
    interpreter = _interpreter(name)
    if interpreter is None:
        pytest.skip(f"no {name} here")
    assert _digests(interpreter, "0") == _digests(sys.executable, "0")
