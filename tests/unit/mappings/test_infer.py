"""Guesses from a sample: the draft of any partner's table is a mapping file that may run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mappings.draft.draft import SourceSample, draft_feed, feed_name, with_examples
from mappings.draft.guesses import Role, guess_roles, read_columns, roles_by_name
from mappings.draft.source import SourceGuess, guess_source
from mappings.draft.times import find_times
from mappings.draft.zone import guess_zone
from mappings.examples import run_examples
from mappings.yaml.loader import parse_feed

NAMES = st.sampled_from(["id", "title", "date", "time", "ende", "miasto", "url", "price", "status", "Kategorie", "#3", "$x"])
LIKELY = "| |Jazz|03/04/2026|13/04/2026|2026-05-01|19:30|7pm|19:00-20:00|https://e.org/a b|12,50|=1+1"
CELLS = st.sampled_from(LIKELY.split("|"))
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
TABLES = st.lists(st.one_of(NAMES, ANY_TEXT.filter(str.strip)), min_size=1, max_size=7, unique=True).flatmap(
    lambda names: st.tuples(
        st.just(tuple(names)),
        st.lists(st.lists(st.one_of(CELLS, ANY_TEXT), min_size=len(names), max_size=len(names)), min_size=1, max_size=6),
    )
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TABLES)
def test_every_table_gives_a_mapping_that_may_run_and_examples_that_come_true(
    tmp_path: Path, table: tuple[tuple[str, ...], Sequence[Sequence[str]]]
) -> None:
    names, cells = table
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    sample = SourceSample("partner.csv", "partner.csv", SourceGuess({"kind": "csv"}), names, rows)
    text = with_examples(draft_feed(sample, "partner")[0], tmp_path / "partner.yaml", rows)
    mapping = parse_feed(text, tmp_path / "partner.yaml")
    assert run_examples(mapping) == ()
    known = ("filled in", "is a guess", "which partners edit", "no examples", "no example is a rejection")
    assert [problem for problem in mapping.warnings if not any(text in str(problem) for text in known)] == []


TIMES = """
date %Y-%m-%d: 2026-05-01 | 2026-05-02
date %d/%m/%Y: 13/04/2026 | 3/4/2026
datetime %m/%d/%Y %H:%M: 4/13/2026 18:00 | 4/3/2026 9:00
moment %Y-%m-%dT%H:%M:%S%z: 2026-05-03T17:30:00Z | 2026-05-03T17:30:00+02:00
time %H:%M: 19:30 | 20:00
time %Hh%M, %Hh: 19h30 | 20h
time %I:%M %p: 7:30 PM | 11:00 am
date %d de %B de %Y: 28 de agosto de 2025 | 1 de maio de 2026
date %A, %d. %B %Y: Samstag, 12. Juli 2025
date %a, %d.%m.%Y: Fr, 12.07.2030 | Sa, 13.07.2030
date %a, %d.%m.%Y, %d.%m.%Y: Fr., 12.07.2030 | Sa., 13.07.2030 | 31.07.2030
date %Y年%m月%d日: 2026年5月3日
date %Y년 %m월 %d일: 2026년 5월 3일
time %H.%M Uhr, %H Uhr: 19.30 Uhr | 20 Uhr
datetime %d.%m.%Y %H.%M Uhr: 13.07.2030 19.30 Uhr
datetime %d/%m/%Y %Hh%M: 13/07/2030 20h30
datetime %A, %d %B %Y, godz. %H:%M: piątek, 5 marca 2027, godz. 19:00
datetime %Y.%m.%d. %H:%M: 2027.03.05. 19:00
clock : 19 Uhr 30 | 20:00 h | kl. 19
clock_range : 7-9pm | 8pm | ganztägig
dates %d %B %Y: 3, 5 and 7 May 2027 | 8 May 2027
dates %d de %B de %Y: 3, 5 e 7 de maio de 2026
dates %B %d, %Y: May 3, 2026; May 4, 2026
date_range %d %b %Y: 3-5 May 2027 | 28 Feb - 2 Mar 2027
date_range %Y-%m-%d: 2026-05-01 to 2026-05-03 | 2026-05-04
"""


@pytest.mark.parametrize("line", TIMES.strip().splitlines())
def test_formats_are_found_by_evidence(line: str) -> None:
    way, _, cells = line.partition(": ")
    seen = find_times(cells.split(" | "))
    assert seen is not None
    assert f"{seen.ways[0].kind} {', '.join(seen.ways[0].formats)}" == way
    assert (seen.share, seen.is_ambiguous) == (1.0, False)


@pytest.mark.parametrize("cells", ["London | Paris", "1771656 | 3066", "34.7111 | 135.4829", "", "TBA | 2026-05-01 | ?"])
def test_what_is_mostly_no_date_is_none(cells: str) -> None:
    seen = find_times(cells.split(" | "))
    assert seen is None or seen.share < 1


def test_an_order_that_cells_contradict_stays_open() -> None:
    seen = find_times(["13/04/2026", "04/13/2026"])
    assert seen is not None
    assert (seen.is_ambiguous, seen.in_other_order().ways[0].formats) == (True, ("%m/%d/%Y",))


NAMED = """TITLE: Veranstaltung 名称; START: data_rozpoczęcia startDate Ημερομηνία Kiedy; END: DTEND 終演時間; CLOCK: Godzina
VENUE: 会場 Helyszín Τόπος; CITY: Ville; CATEGORY: ジャンル; URL: 申込URL; IMAGE: link_do_obrazka; ASIDE: cfpUrl 開場"""


def test_columns_are_known_by_their_names_in_many_languages() -> None:
    for role, names in (named.split(": ") for named in NAMED.replace("\n", "; ").split("; ")):
        assert [name for name in names.split() if Role[role] not in roles_by_name(name)] == []


HEADERS = (
    *("Data do, Data od, Nazwa: Data od - Data do: Nazwa", "Do, Od, Nazwa wydarzenia: Od - Do: Nazwa wydarzenia"),
    *("Data a, Data da, Nome: Data da - Data a: Nome", "data_do_evento, Data fim, Nome: data_do_evento - Data fim: Nome"),
    "開催日, 終了日, イベントID, イベント名: 開催日 - 終了日: イベント名",
)


@pytest.mark.parametrize("case", HEADERS)
def test_the_last_day_is_not_taken_for_the_first_nor_an_identifier_for_the_title(case: str) -> None:
    columns, days, title = case.split(": ")
    header = tuple(columns.split(", "))
    cells = [(f"2030-05-{day:02d}", "2030-06-01", f"E-{day}", f"能 {day}") for day in (1, 2, 3)]
    words = {} if len(header) == 4 else {title: "Jazz i blues"}
    rows = [dict(zip(header, row, strict=False)) | words for row in cells]
    found = guess_roles(read_columns(header, rows, {}))
    assert f"{found[Role.START].column.name} - {found[Role.END].column.name}" == days
    assert found[Role.TITLE].column.name == title


def encoding_of(content: bytes, *, is_whole: bool = True) -> str:
    return str(guess_source("a.csv", content, is_whole=is_whole).settings.get("encoding", "utf-8"))


def test_the_japanese_of_windows_is_reported_by_its_own_letters() -> None:
    text = "ID,名称,会場\n" + "".join(f"E-{n},①春の髙橋～コンサート,㈱ライブハウス\n" for n in range(9))
    assert text.encode("cp932").decode(encoding_of(text.encode("cp932"))) == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp949", "1,서울 불꽃축제,여의도 한강공원\n2,재즈 공연,예술의전당\n3,봄꽃 축제,진해\n"),
        ("cp932", "1,なにわ淀川花火大会,新淀川河川敷\n2,ジャズの夕べ,大阪城ホール\n"),
        ("gb18030", "1,国庆音乐会,上海大剧院\n2,春节文化展览,北京展览馆\n"),
        ("big5", "1,國慶音樂會,台北市大安公園\n2,春節文化展覽,高雄市文化中心\n"),
    ],
)
@pytest.mark.parametrize("times", [4, 300])
def test_an_east_asian_file_is_known_by_what_it_reads_as_with_broken_bytes_too(encoding: str, text: str, times: int) -> None:
    content = (text * times).encode(encoding)
    assert encoding_of(content) == encoding
    odd = [place for place, byte in enumerate(content) if byte > 0x7F]
    for first in odd[:8]:
        broken = content[:first] + b"\xff" + content[first + 1 :]
        seen = guess_source("a.csv", broken, is_whole=True)
        assert (seen.settings["encoding"], "must be corrected at the source" in seen.why["encoding"]) == (encoding, True)
        assert encoding_of(content[:first] + content[first + 1 :]) == encoding


ACCENTED = ["Café", "Müller", "São", "Größe", "Señor", "Łódź", "śpiewa", "żywej", "źdźbło", "Gęś", "Žižkov", "ŻÓŁW", "noite"]


@pytest.mark.parametrize("encoding", ["windows-1250", "windows-1252", "iso-8859-2"])
@given(words=st.lists(st.sampled_from(ACCENTED), max_size=8, unique=True))
@settings(deadline=None)
def test_accents_of_western_and_central_europe_are_not_taken_for_east_asian_words(encoding: str, words: list[str]) -> None:
    content = ", ".join(words).encode(encoding, "ignore")
    assert encoding_of(content) not in {"cp932", "cp949", "gb18030", "big5"}


@pytest.mark.parametrize(
    ("name", "cells", "zone"),
    [
        ("land", "Deutschland, Germany", "Europe/Berlin likely"),
        ("city", "Paris, Berlin", " unsure"),
        ("datum", "12. Mai 2030, 13. Juli 2030", " unsure"),
    ],
)
def test_a_zone_is_that_of_the_only_country_and_cities_of_several_zones_tell_none(name: str, cells: str, zone: str) -> None:
    columns = read_columns((name,), [{name: cell} for cell in cells.split(", ")], {})
    guess = guess_zone(guess_roles(columns), columns)
    assert f"{guess.zone} {guess.surety}" == zone


@pytest.mark.parametrize(
    ("encoding", "text", "place", "put"),
    [
        ("windows-1252", "id;name\n" + "1;\xa0\xa0\xa0\xa0Jazz\n" * 6, "J", b"J"),
        ("utf-8", "id;nome\n" + "1;Programação da Praça\n" * 9, "ç", b"\xe7"),
        ("cp932", "No,イベント名,会場\n0,花火大会,河川敷\n", "会", b"\x89\xff"),
    ],
)
def test_spaces_and_a_broken_cell_do_not_hide_the_encoding(encoding: str, text: str, place: str, put: bytes) -> None:
    assert encoding_of(text.encode(encoding).replace(place.encode(encoding), put, 1)) == encoding


@pytest.mark.parametrize(
    ("content", "encoding", "delimiter", "row"),
    [
        (b"id\tname\n1\tJazz, live\n", "utf-8", "\t", 1),
        (b"Agenda 2030\n\nid,name,date\n1,Jazz,x\n2,Fado,y\n", "utf-8", ",", 3),
        ("id,name\n1,Jazz\n".encode("utf-16"), "utf-16", ",", 1),
        (b'id|name\n1|"a, b; c"\n', "utf-8", "|", 1),
        ("id;заголовок\n1;Концерт джаза в парке Горького\n2;Выставка картин\n".encode("cp1251"), "windows-1251", ";", 1),
    ],
)
def test_a_dialect_is_reported_by_its_first_rows(content: bytes, encoding: str, delimiter: str, row: int) -> None:
    settings = guess_source("a.csv", content, is_whole=True).settings
    tab = "\t" if settings["kind"] == "tsv" else ","
    assert (settings.get("delimiter", tab), settings.get("header", {"row": 1})) == (delimiter, {"row": row})
    assert encoding_of(content) == encoding


def test_a_file_that_is_cut_in_the_middle_of_a_character_is_utf8_all_the_same() -> None:
    assert encoding_of("id,name\n1,Fado à".encode()[:-1], is_whole=False) == "utf-8"


def test_a_feed_is_named_after_its_file() -> None:
    assert list(map(feed_name, ("Événements 2030", "2030_plan", "花火"))) == ["evenements-2030", "feed-2030-plan", "feed"]
