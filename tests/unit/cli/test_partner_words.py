"""What partners read: every sentence in every language of the catalogues, and words that they understand."""

from __future__ import annotations

import csv
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from babel.messages.extract import extract
from babel.messages.pofile import read_po
from jinja2 import Environment
from unit.cli.conftest import HEADER, ROWS, Desk

from mappings import sentences
from mappings.event import event_fields
from mappings.reasons import REASON_TEXTS, Detail, Reason, ReasonCode
from mappings.spec.feed import Language
from pipelines.run import write_back

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "pipelines" / "cli" / "output" / "pages"
CALLS = {"say": None, "count": (1, 2)}


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)


def called() -> Iterator[tuple[str, ...]]:
    """Yield the sentences that code and templates say."""
    for module in ("pipelines/cli/report.py", "pipelines/cli/rows.py", "pipelines/run/write_back.py", "mappings/sentences.py"):
        with (ROOT / module).open("rb") as file:
            for _, said, *_ in extract("python", file, CALLS):
                yield (said,) if isinstance(said, str) else said
    for _, _, said in Environment(extensions=["jinja2.ext.i18n"]).extract_translations(
        (PAGES / "report.html.jinja").read_text("utf-8"), tuple(CALLS)
    ):
        yield tuple(one for one in ((said,) if isinstance(said, str) else said) if one)


def all_sentences() -> set[str]:
    tables = {
        *REASON_TEXTS.values(),
        *write_back.SENTENCES.values(),
        *write_back.GRAVEST_FIRST,
        *(field.name for field in event_fields().values() if field.name),
        sentences.MISSING,
    }
    own = {text for sentence in sentences.SENTENCES.values() for text in sentence if text}
    page = set(strings(tomllib.loads((PAGES / "report.toml").read_text("utf-8"))))
    return tables | own | page | {text for said in called() for text in said}


def placeholders(text: str) -> set[str]:
    return {f"{name}:{form}" for _, name, form, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", [one for one in get_args(Language) if one != "en"])
def test_every_sentence_is_in_the_catalogue_with_the_same_placeholders(language: str) -> None:
    with (sentences.TRANSLATIONS / f"{language}.po").open("rb") as file:
        catalogue = read_po(file, language)
    said = {(one.id, one.string) if isinstance(one.id, str) else (one.id, tuple(one.string)) for one in catalogue if one.id}
    pairs = {
        pair for msgid, text in said for pair in ([(msgid, text)] if isinstance(msgid, str) else zip(msgid, text, strict=True))
    }
    assert all_sentences() == {msgid for msgid, _ in pairs}
    assert [msgid for msgid, text in pairs if not text or placeholders(msgid) != placeholders(text)] == []
    assert not any(message.fuzzy for message in catalogue if message.id)


def test_every_reason_has_a_sentence() -> None:
    assert {*ReasonCode, *Detail} == set(sentences.SENTENCES)


ATTEMPTS = """\
feed: town-hall
language: LANGUAGE
source: {kind: csv, path: ../events.csv}
key: [ID]
let:
  day:
    first_of:
      - {from: KIND, do: [{date: "%Y-%m-%d", on_error: omit}]}
      - {from: DAY, do: [{date: "%Y-%m-%d", on_error: omit}]}
      - {from: DAY, do: [{date: ["%d/%m/%Y", "%d.%m.%Y"], on_error: omit}]}
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [{length: {at_most: 20}}, {regex_extract: "^[A-Z]"}]}
  startAt: {at: {day: $day, clock: {from: HOUR, do: [{time: "%H:%M"}]}, zone: Europe/Warsaw}}
  timezone: Europe/Warsaw
  classifications: {from: GENRE, do: [{map: {concert: music, play: theatre}}]}
  approxLocation: {city: {placeId: krk}}
"""
BAD_ROWS = {
    "2,Jazz,2027-02-30,19:30,,concert": {
        "en": "DAY: 2027-02-30 does not exist (February 2027 has 28 days). | DAY: Correct the date.",
        "de": "DAY: 2027-02-30 gibt es nicht (Februar 2027 hat 28 Tage). | DAY: Berichtigen Sie das Datum.",
    },
    "3,Jazz,31/06/2027,19:30,,concert": {
        "en": "DAY: 31/06/2027 does not exist (June 2027 has 30 days). | DAY: Correct the date.",
    },
    "4,Jazz,tba,19:30,,concert": {
        "en": 'DAY: "tba" is not a date. | DAY: Enter one like 2026-03-31, or leave the row out until it is known.',
        "de": "DAY: „tba“ ist kein Datum. | DAY: Schreiben Sie zum Beispiel 2026-03-31, oder lassen Sie",
    },
    "5,jazz,2027-03-28,02:30,,concert": {
        "en": 'TITLE: "jazz" cannot be used as it is.\nHOUR: 28 Mar 2027, 02:30 does not exist: the clocks go forward then.'
        " | TITLE: Enter another text.\nHOUR: Enter 01:30 or 03:30, whichever is meant.",
        "de": "TITLE: „jazz“ ist so nicht verwendbar.\nHOUR: 28.03.2027, 02:30 gibt es nicht",
    },
    "6,,2027-03-01,tba,,konzert": {
        "en": 'TITLE: This cell is empty.\nHOUR: "tba" is not a time of day.\nGENRE: "konzert" is not one of the words that we'
        " know here. | TITLE: Fill it in, or leave the row out until it is known.\nHOUR: Enter one like 19:30, or leave the row"
        ' out until it is known.\nGENRE: Did you mean "concert"? If not, tell us what the word means.',
    },
    "7,Jazz,2027-03-01,19:30": {
        "en": "The file seems to be cut off here. | Send us the whole file again.",
        "de": "Die Datei ist hier offenbar abgeschnitten. | Schicken Sie uns die ganze Datei noch einmal.",
    },
}


@pytest.mark.parametrize("language", get_args(Language))
def test_the_editor_reads_which_cell_is_wrong_why_and_what_to_enter(desk: Desk, language: Language) -> None:
    desk.mapping(ATTEMPTS.replace("LANGUAGE", language))
    (desk.folder / "events.csv").write_text("\n".join([HEADER, *BAD_ROWS]), "utf-8")
    with desk.service():
        desk.sync("--accept", "rejected")
    desk.run("rows", "town-hall", "--csv", "out.csv", code=0)
    with (desk.folder / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        said = [f"{row['problem']} | {row['hint']}" for row in csv.DictReader(file)]
    wanted = [known.get(language, "") for known in BAD_ROWS.values()]
    assert [text for text, begin in zip(said, wanted, strict=True) if not text.startswith(begin)] == []
    desk.run("report", "town-hall", "--html", "page.html", code=0)
    page = (desk.folder / "page.html").read_text("utf-8")
    assert f'<html lang="{language}">' in page
    row, month = {"en": ("Row 2 of events.csv", "February 2027"), "de": ("Zeile 2 in events.csv", "Februar 2027")}[language]
    assert [text for text in (row, month) if text not in page] == []
    for word in ("on_error", "^[A-Z]", "first_of", "regex", "fill in", "formats"):
        assert word not in page + " ".join(said)


def test_what_came_or_changed_since_the_last_page_is_marked_and_a_part_of_the_source_hides_no_rows(desk: Desk) -> None:
    def sections() -> Any:
        return desk.told("report", "town-hall", "--html", "page.html")

    desk.source(ROWS)
    with desk.service():
        desk.sync("--accept", "rejected")
        assert sections()["sections"]["mend"] == {"rows": 2, "new": 2, "changed": 0, "shown": 2}
        desk.source(
            [ROWS[0].replace("Jazz", "Blues"), ROWS[1].replace("-13-", "-02-"), *ROWS[2:], "7,Odes,2030-05-04,20:00,,rap"]
        )
        desk.sync("--accept", "rejected")
        desk.sync("--accept", "rejected", "--keys", "5")
        report = sections()
        assert (report["rows_read"], report["is_whole"]) == (7, False)
        assert report["sections"]["mend"] == {"rows": 3, "new": 1, "changed": 1, "shown": 3}
        assert report["sections"]["changed"] == {"rows": 1, "new": 0, "changed": 1, "shown": 1}
        assert {one["new"] + one["changed"] for one in sections()["sections"].values()} == {0}


@pytest.mark.parametrize(
    ("language", "path", "said"),
    [
        ("en", "startAt", "start"),
        ("de", "offers[0].url", "Adresse eines Angebots"),
        ("de", "offers[1].fee.sum", "Angebote, fee, sum"),
    ],
)
def test_a_field_without_a_column_is_named_as_people_name_it(language: Language, path: str, said: str) -> None:
    words, reason = sentences.Words(language), Reason(ReasonCode.REQUIRED, path, "", "", "")
    assert (words.place(reason), words.problem(reason).endswith(f": {said}.")) == (said, True)
