"""`eventsync init` on sheets in the shapes that people type, in seven languages, and on sheets that only look so."""

from __future__ import annotations

from typing import Any

import pytest
import xlsxwriter
import yaml
from unit.cli.conftest import Desk
from unit.cli.test_cli_init import drafted, guess, written

from connectors.sources.catalogue import open_source
from mappings.spec.source import SOURCES

MONTH_AND_YEAR = r"^\p{L}+ \d{4}$"
SHAPES = ("headings", "fill_down", "unpivot", "comment")
ONCE = r"^\p{L}"
SHEETS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "German school timetable": (
        """Stunde;Montag;Dienstag;Mittwoch;Donnerstag;Freitag
        08:00;Mathe;Deutsch;Englisch;Kunst;Sport
        08:50;Deutsch;Physik;Mathe;;Musik
        Große Pause;;;;;
        10:00;Bio;;Chemie;Chor;""",
        {"unpivot": {"columns": ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"], "into": "DAY", "cell": "CLASS"}},
        "sure",
        12,
    ),
    "German theatre season": (
        """Tag;Uhrzeit;Stück;Bühne
        Oktober 2026;;;
        Sa 3.;19:30;Faust I;Großes Haus
        So 4.;15:00;Pinocchio;Studio
        November 2026;;;
        Fr 6.;19:30;Woyzeck;Großes Haus""",
        {"headings": {"MONTH": {"column": "Tag", "matches": MONTH_AND_YEAR}}},
        "sure",
        3,
    ),
    "Polish masses": (
        """Godzina;Niedziela;Poniedziałek;Środa;Piątek
        7:00;Msza;Msza;Msza;Msza
        9:30;Suma;;;
        18:00;Msza;;Nowenna;Droga krzyżowa""",
        {"unpivot": {"columns": ["Niedziela", "Poniedziałek", "Środa", "Piątek"], "into": "DAY", "cell": "CLASS"}},
        "likely",
        8,
    ),
    "Dutch club with the day of the week apart": (
        """Dag;Datum;Aanvang;Artiest;Zaal
        JANUARI 2027;;;;
        vr;8;20:30;De Staat;1
        FEBRUARI 2027;;;;
        vr;5;20:00;Spinvis;2""",
        {"headings": {"MONTH": {"column": "Dag", "matches": r"^\p{Lu}+ \d{4}$"}}},
        "sure",
        2,
    ),
    "French church calendar": (
        """Heure;Office;Lieu
        Dimanche 3 janvier 2027;;
        10h30;Messe de l'Épiphanie;Saint-Pierre
        18h00;Vêpres;Saint-Pierre
        Mercredi 6 janvier 2027;;
        19h00;Prière de Taizé;Chapelle""",
        {"headings": {"DATE": {"column": "Heure", "matches": r"^\p{L}+ \d+ \p{L}+ \d{4}$"}}},
        "sure",
        3,
    ),
    "Spanish cinema": (
        """Sala;Película;Fecha;Hora
        Sala 1;Volver;07/05/2027;18:00
        ;Viridiana;07/05/2027;20:30
        ;El sur;08/05/2027;18:00
        Sala 2;Cría cuervos;07/05/2027;19:00
        ;Tasio;08/05/2027;19:00""",
        {"fill_down": ["Sala"]},
        "likely",
        5,
    ),
    "Italian places in blocks": (
        """Luogo;Data;Ora;Titolo
        Biblioteca Civica;04/05/2027;17:00;Lettura
        ;05/05/2027;18:00;Incontro

        Teatro Nuovo;06/05/2027;21:00;La locandiera
        ;07/05/2027;21:00;La locandiera
        ;08/05/2027;16:00;Arlecchino""",
        {"fill_down": ["Luogo"]},
        "likely",
        5,
    ),
    "English festival": (
        """Time;Act;Genre
        Main Stage;;
        Friday;;
        18:00;The Larks;folk
        20:00;Ana Nox;pop
        Saturday;;
        19:00;Low Tide;rock
        Barn;;
        Friday;;
        19:30;Jo & Co;jazz
        Saturday;;
        18:30;Quartet;jazz""",
        {
            "headings": {
                "HEADING": {"column": "Time", "matches": ONCE},
                "DAY": {"column": "Time", "matches": "…friday"},
            }
        },
        "likely",
        5,
    ),
    "French week of workshops": (
        """Heure;lundi 4 janvier;mardi 5 janvier;mercredi 6 janvier
        10h;Poterie;Dessin;Poterie
        14h;Contes;;Marionnettes""",
        {"unpivot": {"columns": ["#2", "#3", "#4"], "into": "DATE", "cell": "CLASS"}},
        "likely",
        5,
    ),
    "German days written once": (
        """Datum;Uhrzeit;Titel;Ort
        03.05.2027;18:00;Lesung;Stadthalle
        ;20:00;Konzert;Kirche
        04.05.2027;17:00;Führung;Museum
        ;19:00;Vortrag;Stadthalle
        ;21:00;Kino;Hof""",
        {"fill_down": ["Datum"]},
        "likely",
        5,
    ),
    "Polish concerts by month": (
        """Dzień;Koncert;Miejsce
        Maj;;
        12 maja 2027;Kwartet;Filharmonia
        19 maja 2027;Chór;Katedra
        Czerwiec;;
        2 czerwca 2027;Orkiestra;Filharmonia
        * wstęp wolny;;""",
        {"headings": {"MONTH": {"column": "Dzień", "matches": "…czerwiec"}}, "comment": "*"},
        "sure",
        3,
    ),
    "Spanish list that leaves out places": (
        """Título;Fecha;Lugar;Notas
        Flamenco;04/05/2027;Teatro;
        Cine;05/05/2027;;entrada libre
        Taller;06/05/2027;Teatro;
        Visita;07/05/2027;Teatro;
        Charla;08/05/2027;;aforo limitado""",
        {},
        "",
        5,
    ),
    "English days with a mark": (
        """Market;Mon;Tue;Wed;Thu;Fri
        Old Square;x;;x;;x
        Harbour;;x;;x;""",
        {"unpivot": {"columns": ["Mon", "Tue", "Wed", "Thu", "Fri"], "into": "DAY", "cell": "CLASS"}},
        "likely",
        5,
    ),
    "German list with a pause": (
        """Titel;Datum;Ort
        Konzert;03.05.2027;Kirche
        Sommerpause;;
        Lesung;03.09.2027;Hof""",
        {},
        "",
        3,
    ),
    "French list that lacks titles": (
        """Date;Titre;Salle
        03/05/2027;Concert;Foyer
        04/05/2027;;
        05/05/2027;;
        06/05/2027;Lecture;Foyer""",
        {},
        "",
        4,
    ),
    "Italian list without a header": (
        """1;04/05/2027;05/05/2027;06/05/2027;Mostra
        2;07/05/2027;08/05/2027;09/05/2027;Fiera
        3;10/05/2027;11/05/2027;12/05/2027;Sagra""",
        {},
        "",
        2,
    ),
}


def fits(found: Any, wanted: Any) -> bool:
    """Whether a setting is the wanted one; `…` stands for a pattern with this word."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and list(found) == list(wanted) and all(fits(found[name], wanted[name]) for name in wanted)
    return wanted[1:] in found if isinstance(wanted, str) and wanted.startswith("…") else bool(found == wanted)


def read(desk: Desk, feed: Any) -> int:
    """How many rows that are not blank the draft reads."""
    spec = SOURCES[feed["source"]["kind"]].model_validate(feed["source"])
    source = open_source(spec, desk.folder / "feeds", frozenset(), folders=[desk.folder])  # type: ignore[arg-type]
    with source.read() as reading:
        return sum(any(row.cells.values()) for row in reading.rows)


@pytest.mark.parametrize("name", SHEETS)
def test_a_shape_is_found_with_its_evidence_and_no_other(desk: Desk, name: str) -> None:
    text, shape, surety, count = SHEETS[name]
    feed, said = drafted(desk, written(desk, "sheet.csv", "\n".join(map(str.strip, text.splitlines())) + "\n"))
    assert fits({key: feed["source"][key] for key in SHAPES if key in feed["source"]}, shape), feed["source"]
    assert [guess(said, f"source.{key}")["surety"] for key in shape if key != "comment"] == [surety] * bool(surety)
    assert read(desk, feed) == count


DAYS_BELOW_MONTHS = {
    "German theatre season": ("Tag", '{date: "%a %d. %B %Y", locale: de}', ["2026-10-03", "2026-10-04", "2026-11-06"]),
    "Dutch club with the day of the week apart": ("Datum", '{date: "%d %B %Y", locale: nl}', ["2027-01-08", "2027-02-05"]),
}


@pytest.mark.parametrize("name", DAYS_BELOW_MONTHS)
def test_a_day_and_the_month_above_it_are_a_date_together(desk: Desk, name: str) -> None:
    text, *_ = SHEETS[name]
    column, step, days = DAYS_BELOW_MONTHS[name]
    feed, said = drafted(desk, written(desk, "sheet.csv", "\n".join(map(str.strip, text.splitlines())) + "\n"))
    assert feed["let"]["starts"] == {"join": [{"from": column}, {"from": "MONTH"}], "do": [yaml.safe_load(step)]}
    guesses = [one for one in said["guesses"] if one["about"] == "startAt" and one["column"] == f"{column}, MONTH"]
    assert [one["surety"] for one in guesses] == ["likely"]
    assert not [one for one in said["guesses"] if one["column"] == column], "a day of a date is nothing else"
    previewed = desk.run("preview", "drafted", "--as-of", "2026-09-01", "--json", code=0).document
    assert [row["event"]["startAt"][:10] for row in previewed["rows"]] == days


def test_a_month_and_a_room_in_merged_cells_apply_to_the_nights_below(desk: Desk) -> None:
    with xlsxwriter.Workbook(desk.folder / "club.xlsx") as workbook:
        page = workbook.add_worksheet("Nights")
        page.write_row(0, 0, ["Night", "Room", "Act", "Doors"])
        for top, month in ((1, "MAY 2027"), (5, "JUNE 2027")):
            page.merge_range(top, 0, top, 3, month)
            page.merge_range(top + 1, 1, top + 2, 1, "Cellar")
            for row, night in enumerate(("Fri 7", "Sat 8", "Sat 15"), start=top + 1):
                page.write_row(row, 0, [night, *([] if row < top + 3 else ["Attic"])])
                page.write_row(row, 2, [f"Act {row}", "20:00"])
    feed, said = drafted(desk, "club.xlsx")
    assert feed["source"]["headings"] == {"MONTH": {"column": "Night", "matches": r"^\p{Lu}+ \d{4}$"}}
    assert (feed["source"]["merged"], guess(said, "source.headings")["surety"], read(desk, feed)) == ("spread", "sure", 6)
