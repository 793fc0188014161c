"""What comes of files as partners really write them: rows, problems of a row, or the refusal of the whole file."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
import yaml
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.connectors_sources.reading import cells, column, read, rows_of

from connectors.sources.catalogue import open_source
from connectors.sources.contract import (
    BadSourceError,
    EmptySourceError,
    MissingColumnsError,
    RepeatedColumnsError,
    Source,
    SourceRefusedError,
    SourceUnavailableError,
)
from connectors.sources.rows import LARGEST_RECORD
from mappings.columns import ColumnRequest, column_names, header_texts, matched
from mappings.spec.source import CsvSource
from pipelines.run.outcome import outcome_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JOIN = {"source": {"kind": "csv", "path": "venues.csv"}, "by": {"VENUE": "id"}, "prefix": "venue."}
XML: dict[str, Any] = {"kind": "xml", "records": "event"}
KINDS: dict[str, dict[str, Any]] = {"csv": {}, "tsv": {}, "xlsx": {}, "json": {}, "ndjson": {}, "xml": XML, "ics": {}}
in_a_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# sentence :: content (b: bytes) :: source, columns wanted, words of the hint => names / number and cells of each row ! problems
# or `no:` or `lacks:` with the words of the refusal. Columns and cells stand between bars.
FILES = r"""
names are trimmed, numbered and found by any spelling :: \u200bREF\xa0,, Nome do  Evento ,REF,,INÍCIO\n1,2,3,4,5,6\n
  :: wanted: ref#1|NOME DO EVENTO|INÍCIO|#5 => ref#1|#2|NOME DO EVENTO|REF#2|#5|INÍCIO / 2 1|2|3|4|5|6
two columns that differ in case have numbers :: NAME,Name\nx,y\n :: wanted: Name#2 => NAME#1|Name#2 / 2 x|y
both of two columns that differ in case :: NAME,Name\nx,y\n :: wanted: NAME|Name => NAME|Name / 2 x|y
two columns of one name that the mapping does not use :: title,id,Title,title\nx,1,y,z\n :: wanted: id
  => title#1|id|Title#2|title#3 / 2 x|1|y|z
a column is asked for by letter or position :: a,b,c\n1,2,3\n :: wanted: '#C|#2' => a|#2|#C / 2 1|2|3
the header may stand further down :: Programme 2025\n\n"printed\non Monday",,\nid,text\n1,x\n :: header: {row: 4} => id|text
  / 6 1|x
the first row with a cell that matches is the header :: Programme 2026\n,,\nNr,Datum,Titel\n1,2026-05-03,Jazz\n
  :: wanted: Titel, header: {matches: ^Datum$} => Nr|Datum|Titel / 4 1|2026-05-03|Jazz
a header of several rows is joined :: Start,,End,\nday,hour,day,hour\n1,2,3,4\n :: wanted: Start day|End day, header: {rows: 2}
  => Start day|hour#1|End day|hour#2 / 3 1|2|3|4
names for a file without any :: 1,x\n :: header: {row: 0, names: [id, text]} => id|text / 1 1|x
names for a file with wrong ones :: Scouts,Start\n1,x\n :: header: {row: 1, names: [id, text]} => id|text / 2 1|x
a column answers to an alias :: note, TITEL ,datum\nx,y,z\n :: wanted: TITLE|DAY, columns: {TITLE: [Titel, Name], DAY: Datum}
  => note|TITLE|DAY / 2 x|y|z
an alias that the mapping itself uses :: Title,Name\nx,y\n :: wanted: TITLE|Name, columns: {TITLE: [Name]}
  => TITLE|Name / 2 x|y
an optional column may be absent :: id\n1\n :: wanted: id|end, optional: end => id|end / 2 1|
a short row is filled up :: a,b\n1\n => a|b / 2 1|
trailing delimiters are no surplus :: a,b\n1,2,, \xa0,\n => a|b / 2 1|2
a surplus rejects its row :: a,b\n1,2,3\n => a|b / 2 1|2 ! 2 ragged  3
a surplus is cut if the mapping says so :: a,b\n1,2,3\n :: long_rows: cut => a|b / 2 1|2
a short row is rejected where the mapping says so, a blank one is not :: a,b,\n1,2,\n1\n\n1,2\n :: short_rows: reject => a|b|#3
  / 2 1|2| / 3 1|| / 4 || / 5 1|2| ! 3 ragged  1
a last row that alone lacks cells, and has no line end, is cut off :: a,b,c\n1,2,3\n\n4,"5\n6"
  :: hint: 'the last row has 2 of 3 cells and no line end; fetch the file again'
  => a|b|c / 2 1|2|3 / 3 || / 4 4|5\n6| ! 4 ragged  4,5\n6
a row that is cut off has one problem, however short rows are read :: a,b\r1,2\r3 :: short_rows: reject => a|b / 2 1|2 / 3 3|
  ! 3 ragged  3
a last row with all its named cells may lack its line end :: a,b,\n1,2,\n3,4 => a|b|#3 / 2 1|2| / 3 3|4|
a last row is as short as others may be :: a,b\n1\n2,3\n4 => a|b / 2 1| / 3 2|3 / 4 4|
a short last row with a line end is whole :: a,b\r1,2\r4\r => a|b / 2 1|2 / 3 4|
blanks at the end are no cut off row :: a,b\n1,2\n\x20 => a|b / 2 1|2 / 3 \x20|
broken quotes within a line reject that row only :: id,text,end\n1,x,y\n2,"The "Big" Show",y\n3,x,y\n => id|text|end / 2 1|x|y
  / 3 2|The Big" Show"|y / 4 3|x|y ! 3 bad_text  2,"The "Big" Show",y
quotes mean nothing :: id\ttext\n1\t"Big" Show\n :: delimiter: "\t", quote: null => id|text / 2 1|"Big" Show
blanks before a quote are skipped if the mapping says so :: "id", "text", "end"\n1, "a, b",   "say ""x"" "\n2,c , d\n
  :: wanted: id|text, skip_blanks: true => id|text|end / 2 1|a, b|say "x"\x20 / 3 2|c |d
a surplus behind a blank before a quote :: id,text\n1, "a, b"\n :: hint: 'a blank before the quote; write `skip_blanks: true`'
  => id|text / 2 1| "a ! 2 ragged   b"
comments and all after the end are no rows :: id,text\n# draft,\n1,x\n,\n2,y\n\nsum,2\n# late,\n :: comment: '#', until: ^sum$
  => id|text / 3 1|x / 4 | / 5 2|y / 6 |
what follows the end is no row :: id,t\n1,x\n\nsum,2\nprinted,today\n\n :: until: ^sum$ => id|t / 2 1|x / 3 |
texts that mean nothing are empty cells :: id,price,note\n1,NULL,-\n2, n/a ,NULLS\n3,-,null\n
  :: empty_if: ['NULL', n/a], empty_in: {NOTE: '-'} => id|price|note / 2 1|| / 3 2||NULLS / 4 3|-|null
the mark of each of several files put together is gone :: b:\xef\xbb\xbf"id",t\n1,x\n\xef\xbb\xbf"id",t\n1,x\n => id|t / 2 1|x
  / 3 id|t / 4 1|x
undecodable bytes are a problem in a mapped column, else a warning :: b:id,text,note\n1,caf\xe9,x\n2,x,caf\xe9\n3,caf\xc3\xa9,x\n
  :: wanted: id|text, hint: utf-8 => id|text|note / 2 1|caf�|x / 3 2|x|caf� / 4 3|café|x ! 2 undecodable text caf\\xe9
  ! 3 warning undecodable note caf\\xe9
undecodable bytes of json :: b:[{"t": "\xe9", "u": "\xe9"}] :: wanted: t, kind: json => t|u / 1 �|� ! 1 undecodable t \\xe9
  ! 1 warning undecodable u \\xe9
undecodable bytes of ndjson :: b:{"t": "\xe9", "u": "\xe9"} :: wanted: t, kind: ndjson => t|u / 1 �|� ! 1 undecodable t \\xe9
  ! 1 warning undecodable u \\xe9
undecodable bytes of xml :: b:<a><event><t>\xe9</t><u>\xe9</u></event></a> :: wanted: t, kind: xml => t|u / 1 �|�
  ! 1 undecodable t \\xe9 ! 1 warning undecodable u \\xe9
a NUL byte costs its row only :: id,text,note\n1,x,y\n2,x\x00,y\n3,x,\x00\n4,x,y\n :: wanted: id|text => id|text|note / 2 1|x|y
  / 3 2|x�|y / 4 3|x|� / 5 4|x|y ! 3 bad_text text x\\x00 ! 4 warning bad_text note \\x00
numbers of JSON are the text that stands there
  :: [{"a": 12.50, "b": 1e5, "c": 918000000000000123456, "d": true, "e": null, "f": "02134"}] :: kind: json => a|b|c|d|e|f
  / 1 12.50|1e5|918000000000000123456|true||02134
nested values are columns named by their path
  :: {"data": {"page": 1, "events": [{"v": {"a": {"city": "Łódź"}}, "images": [{"url": "x"}, {"url": "y"}]}]}}
  :: wanted: 'v.a.city|images[1].url|images[5].url', records: data.events, optional: 'images[5].url', kind: json
  => v.a.city|images|images[1].url|images[5].url / 1 Łódź|[{"url": "x"}, {"url": "y"}]|y|
a list of one counts as its element
  :: [{"v": {"n": "A"}}, {"v": [{"n": "B"}]}, {"v": [{"n": "C"}, {"n": "D"}]}, {"v": "E"}] :: wanted: v.n, kind: json
  => v.n|v / 1 A| / 2 B|[{"n": "B"}] / 3 |[{"n": "C"}, {"n": "D"}] / 4 |E
records below keys of an object
  :: {"events": {"7": {"t": "x"}, "9": {"t": "y"}, "n": 2}} :: wanted: '#key|t', records: 'events.*', kind: json
  => t|#key / 1 x|7 / 2 y|9 / 3 | ! 3 bad_text  2
an object of records itself :: {\n"7": {"t": "x"}} :: wanted: t, records: '*', kind: json => t|#key / 1 x|7
lists below keys, and objects among lists
  :: {"days": [{"rooms": {"A": [{"t": 1}, {"t": 2}], "B": []}}, {}, {"rooms": {"B": [{"t": 3}]}}]}
  :: wanted: '#key|t', records: 'days.rooms.*', kind: json => t|#key / 1 1|A / 2 2|A / 3 3|B
keys below keys :: {"d1": {"A": [{"t": 1}]}, "d2": {"B": [{"t": 2}]}} :: wanted: t, records: '*.*', kind: json
  => t|#key|#key2 / 1 1|A|d1 / 2 2|B|d2
a key and a name of the record :: {"7": {"#key": "x"}} :: wanted: '#key', records: '*', kind: json
  => #key / 1 x | 7 ! 1 bad_text #key x | 7
records stand in lists of lists too :: [{"day": 1, "events": [{"id": 1}, {"id": 2}]}, {"day": 2}, {"events": [{"id": 3}]}]
  :: wanted: id, records: '[*].events', kind: json => id / 1 1 / 2 2 / 3 3
lists of plain values are joined :: [{"t": ["a", "b"]}, {"t": "c"}, {"t": []}] :: join_lists: {t: '; '}, kind: json => t / 1 a; b
  / 2 c / 3\x20
lists of plain values stay lists otherwise :: [{"t": ["a", 1.50]}] :: kind: json => t / 1 ["a", 1.50]
a list without records lacks no columns :: {"events": []} :: wanted: id, records: events, kind: json => no rows
an element without records lacks no columns :: <agenda><events/></agenda> :: wanted: id, kind: xml, records: agenda/events/event
  => no rows
a line that is no JSON object :: {"a": 1}\n\n{"a": \n7\n :: wanted: a, kind: ndjson => a / 1 1 / 3\x20 / 4\x20
  ! 3 bad_text  {"a": \n ! 4 bad_text  7\n
a name that stands twice rejects its row if the column is used
  :: [{"id": "1", "t": "A", "t": "B", "v": {"city": "X", "city": "Y"}}, {"id": "2", "t": "C"}]
  :: wanted: id|t, kind: json, hint: the name "t" occurs twice => id|t|v.city / 1 1|A | B|X | Y / 2 2|C| ! 1 bad_text t A | B
  ! 1 warning bad_text v.city X | Y
two names of a record for one of the mapping reject that record only
  :: [{"id": "1", "title": "A"}, {"ID": "2", "TITLE": "B", "Titel": "C"}, {"id": "3", "TITLE": "D", "note": "x", "NOTE": "y"}]
  :: wanted: id|title, columns: {title: [Titel]}, kind: json, hint: '"TITLE" and "Titel" both answer to the name "title"'
  => id|title|note|NOTE / 1 1|A|| / 2 2|B | C|| / 3 3|D|x|y ! 2 bad_text title B | C
two elements of a record for one name :: <a><event><t>x</t></event><event><t>x</t><T>y</T></event></a> :: wanted: t, kind: xml
  => t / 1 x / 2 x | y ! 2 bad_text t x | y
a path and a name with a dot :: [{"v": {"city": "X"}, "v.city": "Y"}, {"v.city": "Z"}] :: wanted: v.city, kind: json
  => v.city / 1 X | Y / 2 Z ! 1 bad_text v.city X | Y
a property that may stand once :: BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:A\nsummary:B\nEND:VEVENT\nEND:VCALENDAR\n
  :: wanted: SUMMARY, kind: ics, hint: the name "SUMMARY" occurs twice
  => SUMMARY / 2 A | B ! 2 bad_text SUMMARY A | B
a name that stands twice in a line :: {"id": "1", "t": "A", "t": "B"}\n{"id": "2", "t": "C"} :: wanted: t, kind: ndjson => id|t
  / 1 1|A | B / 2 2|C ! 1 bad_text t A | B
a name that stands twice in the JSON of a cell
  :: id;i\n1;"{""city"": ""X"", ""city"": ""Y"", ""n"": 1}"\n2;"{""city"": ""X"", ""n"": 1, ""n"": 2}"\n
  :: wanted: i.city, delimiter: ;, json_columns: [i] => id|i|i.city / 2 1|{"city": "X", "city": "Y", "n": 1}|X | Y
  / 3 2|{"city": "X", "n": 1, "n": 2}|X ! 2 bad_text i.city X | Y ! 3 warning bad_text i.n 1 | 2
a name that says the same twice does no harm :: [{"id": 1, "id": 1, "v": {"a": null, "a": null}}] :: wanted: id, kind: json
  => id|v.a / 1 1|
JSON in a cell is opened :: id,d\n1,"{""price"": {""from"": 1.50}, ""tags"": [""x"", ""y""]}"\n2,oops\n3,\n
  :: wanted: 'id|d.price.from|d.tags[1]', json_columns: d => id|d|d.price.from|d.tags[1]
  / 2 1|{"price": {"from": 1.50}, "tags": ["x", "y"]}|1.50|y / 3 2|oops|| / 4 3||| ! 3 bad_text d oops
prefixes stay and repeated elements are joined
  :: <a xmlns:dc="urn:x"><event><tag>a</tag><tag>b</tag><dc:date>2026-05-03</dc:date></event><event><tag>c</tag></event></a>
  :: wanted: dc:date, kind: xml, records: a/event, join_lists: {tag: ', '} => tag|dc:date / 1 a, b|2026-05-03 / 2 c|
a cell of a second table stands beside a row :: id,VENUE\n1, v2 \n2,v9\n :: wanted: id|venue.city, join: {JOIN}
  => id|VENUE|venue.id|venue.city / 2 1| v2 |v2|Köln / 3 2|v9||
a row without its other half is rejected :: id,VENUE\n2,v9\n
  :: wanted: id|venue.city, join: {JOIN, on_miss: reject}, hint: 'v1, v2' => id|VENUE|venue.id|venue.city / 2 2|v9||
  ! 2 not_in_lookup VENUE v9
a quote never closed :: id,text,end\n1,x,y\n2,"open,y\n3,x,y\n => no: events\.file:3: .*column 2 is never closed
a quote closed in another row :: id,text,end\n1,"open,y\n2,x,y\n3,"closed",y\n => no: events\.file:2: .*breaks on line 4
quotes within quotes and a line break :: id,text,end\n1,"a "b" c\nd",y\n2,x,y\n => no: events\.file:2: .*breaks on line 2
a quote never closed in the header :: id,"text\n1,x\n => no: events\.file:1: .*column 2 is never closed
a quote never closed after the end :: id,text\n1,x\nend,\n2,"open\n :: until: end => no: never closed
a mark and nothing more :: \ufeff => no: events.file.*empty
blank lines :: \n\n => no: row 1 should hold the names
NULs :: \x00\x00 => no: NUL
UTF-16 where UTF-8 is agreed :: b:i\x00d\x00\n\x00 => no: events\.file:1: character 2 is a NUL
half a character of UTF-16 :: b:\xff\xfei\x00d\x00\n\x001\x00\n\x00a => no: events\.file:\d+: .*not utf-16
a web page :: \x20 <!DOCTYPE html><html> => no: web page
a zip archive :: b:PK\x03\x04\x14\x00\x06\x00 => no: the zip archive is damaged or cut off
a PDF :: b:%PDF-1.7\n => no: this is a PDF, not rows of text
no row at all under given names ::  :: header: {row: 0, names: [id]} => no: empty
an end before the header :: id\n1\n :: header: {row: 5} => no: before row 5
an end within the header :: Start\n :: header: {rows: 2} => no: ends within its header
no header that matches :: a,b\n1,2\n :: header: {matches: Datum} => no: no cell of the first 2 rows matches "Datum"
a way to the records that is not there :: {"meta": 1, "events": []} :: records: items, kind: json, hint: 'meta, events'
  => no: no "items"
a list in place of lines of JSON :: [\n{"a": 1}\n] :: kind: ndjson => no: first line is no JSON object
JSON with a word of its own :: [{"a": 1}, {"a": nope}] :: kind: json => no: :1: this is not JSON: Expecting value
JSON without a comma :: [{"a": 1}\n {"a": 2}] :: kind: json => no: :2: expected "," here
JSON and more :: [{"a": 1}] more :: kind: json => no: something follows
JSON with two lists :: {"events": [{"a": 1}], "venues": []} :: kind: json => no: there are lists under events, venues
JSON by id :: {"7": {"a": 1}} :: kind: json, hint: 'with `*` for the values of an object' => no: expected a list of records here
a way through keys to no object :: {"events": {"7": 1}} :: records: 'events.*.*', kind: json => no: expected "\{" here
JSON without a list :: "text" :: kind: json => no: expected a list of records here
an entity that leads to a file :: <!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a><event>&x;</event></a> :: kind: xml
  => no: entity of its own
an entity of another document :: <!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a><event>&x;</event></a> :: kind: xml
  => no: entity of its own
an undefined entity :: <a><event>&nbsp;</event></a> :: kind: xml => no: undefined entity
XML that breaks off :: <a><event> :: kind: xml => no: this is not XML here
XML with tags in a wrong order :: <a><event></a></event> :: kind: xml => no: mismatched tag
text in place of XML :: plain text :: kind: xml => no: this is not XML here
XML without the element :: <a><happening/></a> :: kind: xml => no: there is no element event
XML in idna :: <?xml version="1.0" encoding="idna"?><a/> :: kind: xml => no: which is not known
XML in punycode :: <?xml version="1.0" encoding="punycode"?><a/> :: kind: xml => no: which is not known
XML in undefined :: <?xml version="1.0" encoding="undefined"?><a/> :: kind: xml => no: which is not known
XML in hex :: <?xml version="1.0" encoding="hex"?><a/> :: kind: xml => no: which is not known
XML in no-such :: <?xml version="1.0" encoding="no-such"?><a/> :: kind: xml => no: which is not known
text in place of a calendar :: hello :: kind: ics => no: not an iCalendar file
a calendar that breaks off :: BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\n :: kind: ics => no: :2: the file ends within the VEVENT
an event without an end :: BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n :: kind: ics
  => no: :3: there is END:VCALENDAR where the VEVENT of line 2 should end
an undecodable header :: b:id,pr\xe9nom\n :: wanted: prénom => lacks: "prénom"
a required column that is absent :: id\n1\n :: required: [LINK] => lacks: "LINK"
a column without any of its aliases :: Titel\n :: wanted: TITLE|DAY, columns: {TITLE: [Titel, Name], DAY: Datum} => lacks: "DAY"
a required column beside an optional one :: id\n1\n :: wanted: id|end, optional: end, required: end2 => lacks: "end2"
another delimiter than agreed :: id;title;date\n1;Jazz;2031-05-14\n :: wanted: id|title|date, hint: set `source.delimiter` to ';'
  => lacks: the columns "date", "id", "title"$
a blank before the quotes of the header :: id, "title", "date"\n1, "Jazz", "x"\n
  :: wanted: id|title|date, hint: 'a blank stands before a quote: set `source.skip_blanks` to true' => lacks: the columns "date"
a name with a space that does not break beside it without :: Start\xa0day,startday\nx,y\n :: wanted: start day
  => two: 2 columns answer to "start day": "Start\u00a0day" \(#1, column A\), "startday" \(#2, column B\)
an alias that stands beside its name :: Title,Name\nx,y\n :: wanted: TITLE, columns: {TITLE: [Titel, Name]}
  => two: columns answer to "TITLE": "Title" \(#1, column A\), "Name" \(#2, column B\)
two aliases of one name :: name, TITEL ,datum\nx,y,z\n :: wanted: TITLE, columns: {TITLE: [Titel, Name]}, hint: '"#3" or "#C"'
  => two: 2 columns answer to "TITLE": "name" \(#1, column A\), "TITEL" \(#2, column B\)
a name and the number of another column :: a,#1\nx,y\n :: wanted: '#1' => two: "a" \(#1, column A\), "#1" \(#2, column B\)
two columns for an optional name :: id,end,END\n :: wanted: id|end, optional: end => two: columns answer to "end"
two columns of a second table :: id,VENUE\n1,v1\n
  :: wanted: id|venue.city, join: {source: {kind: csv, path: cities.csv}, by: {VENUE: id}, prefix: venue.}
  => two: in cities\.csv 2 columns answer to "city": "city" \(#2, column B\), "City" \(#3, column C\)
a column beside one of a second table :: id,VENUE,Venue.City\n1,v1,Bonn\n :: wanted: id|venue.city, join: {JOIN}
  => two: "venue.city" of events\.file, "venue.city" of venues\.csv
a column beside one in the JSON of a cell :: id,d,d.price\n1,{},2\n :: wanted: d.price, json_columns: d
  => two: "d.price" in the JSON of a column, "d.price" of events\.file
a column that the second table lacks :: id,VENUE\n :: wanted: id|venue.zip, join: {JOIN}
  => lacks: venues\.csv lacks the column "zip"
two rows of a second table with one key :: id,VENUE\n
  :: wanted: id|venue.city, join: {source: {kind: csv, path: twice.csv}, by: {VENUE: id}, prefix: venue.}
  => no: twice\.csv:2 and again at twice\.csv:4
repeated in a list of objects :: [{"o": [{"u": 1}, {"u": 2, "u": 3}]}] :: kind: json, wanted: o, optional: o
  => o / 1 [{"u": 1}, {"u": "2 | 3"}] ! 1 bad_text o 2 | 3
repeated in an object of a list :: [{"o": [{"u": 1}, {"u": 2, "u": 3}]}] :: kind: json, wanted: 'o[1].u', optional: 'o[1].u'
  => o|o[1].u / 1 [{"u": 1}, {"u": "2 | 3"}]|2 | 3 ! 1 bad_text o[1].u 2 | 3
repeated in a single object as a list :: [{"o": {"u": 1, "u": 3}}] :: kind: json, wanted: 'o[0].u', optional: 'o[0].u'
  => o.u|o[0].u / 1 1 | 3|1 | 3 ! 1 bad_text o[0].u 1 | 3 ! 1 warning bad_text o.u 1 | 3
repeated in an element of a list :: [{"o": [{"u": 1, "u": 3}]}] :: kind: json, wanted: 'o[0]', optional: 'o[0]'
  => o|o[0] / 1 [{"u": "1 | 3"}]|{"u": "1 | 3"} ! 1 bad_text o[0] 1 | 3
repeated in two objects :: [{"o": {"u": 1}, "o": {"w": 2}}] :: kind: json, wanted: o.w, optional: o.w
  => o|o.w / 1 {"u": 1} | {"w": 2}| ! 1 bad_text o.w {"u": 1} | {"w": 2}
repeated in another name that begins alike :: [{"o": {"u": 1}, "ou": 2}] :: kind: json, wanted: ou, optional: ou
  => o.u|ou / 1 1|2
repeated in another name, beside none :: [{"o": 1, "o": null, "ou": 2}] :: kind: json, wanted: ou, optional: ou
  => o|ou / 1 1 | |2 ! 1 warning bad_text o 1 |\x20
"""
LARGE: list[tuple[str, bytes | str, dict[str, Any], str]] = [
    ("a giant surplus rejects its row", "a\n1" + ",x" * 150_000, {}, "a / 2 1 ! 2 ragged  " + "x," * 99 + "x…"),
    ("a large cell is a cell", f"id,text\n1,{'x' * 1_000_000}\n", {}, f"id|text / 2 1|{'x' * 1_000_000}"),
    (
        "a column may turn up late",
        '{"id": 1}\n' * 3000 + '{"id": 2, "end": "x"}',
        {"wanted": "end", "kind": "ndjson"},
        "id|end" + "".join(f" / {number} 1|" for number in range(1, 3001)) + " / 3001 2|x",
    ),
    ("a column that no record has", '{"id": 1}\n' * 3000, {"wanted": "start", "kind": "ndjson"}, 'lacks: "start"'),
    (
        "a record that nests too deeply costs itself only",
        f'[{{"a": 1}}, {{"a": {"[" * 100 + "]" * 100}}}, {{"a": 3}}]',
        {"wanted": "a", "hint": "too deeply", "kind": "json"},
        r"a / 1 1 / 2\x20 / 3 3 ! 2 bad_text \x20",
    ),
    ("a giant cell", "id,text\n1," + "x" * (10 * 2**20 + 1), {}, r"no: events\.file:2: the cell in column 2 is larger"),
    *((f"{count} columns", ",".join("x" * count), {}, f"no: {count} columns") for count in (16_385, 150_000)),
    ("an endless line", "id\n" + "x" * LARGEST_RECORD, {}, r"no: events\.file:2: the line is longer"),
    ("a giant header", 'id,"' + ("x" * 99 + "\n") * 120_000, {}, r"no: events\.file:1: the cell in column 2 is larger"),
    ("JSON that nests too deeply", "[" * 100_000, {"kind": "json"}, "no: nests too deeply"),
    ("a giant record", '[{"a": "' + "x" * (70 * 2**20), {"kind": "json"}, "no: longer than 64 million"),
    ("XML that nests too deeply", "<a>" * 100_000, {"kind": "xml"}, "no: more than 200 elements"),
    ("parts within parts", "BEGIN:X\n" * 100, {"kind": "ics"}, "no: are nested"),
]


FIELD_CASES = Path(__file__).parents[2] / "field_cases"


def test_blanks_are_skipped_as_the_csv_module_skips_them(tmp_path: Path) -> None:
    text = (FIELD_CASES / "space-before-quote.csv").read_text("utf-8")
    rows = read(tmp_path, text, "title", skip_blanks=True)
    assert [row.cells for row in rows] == list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    assert column(rows, "title") == ["Jazz, blues and more", "Fado night", "Rock"]


def test_the_talks_of_every_room_are_rows_with_the_room_as_their_key(tmp_path: Path) -> None:
    content = (FIELD_CASES / "frab-rooms.json").read_bytes()
    for path in (
        "schedule.conference.days.rooms.*",
        "schedule.conference.days[*].rooms.*",
        "schedule.conference.days.rooms.*[*]",
    ):
        rows = read(tmp_path, content, "#key", "title", kind="json", records=path)
        assert [(row.cells["#key"], row.cells["title"]) for row in rows] == [
            ("Saal 1", "Opening"),
            ("Saal 2", "Talk"),
            ("Saal 1", "Closing"),
        ]
        assert str(rows[0].location) == "events.file:13 (record 1)"


def unescaped(text: str) -> str:
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def cases(table: str) -> Iterator[ParameterSet]:
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        case, outcome = line.rsplit(" => ", 1)
        sentence, text, *spec = case.split(" :: ")
        content = unescaped(text).removeprefix("b:")
        words = yaml.safe_load(
            f"{{{''.join(spec)}}}".replace("JOIN", yaml.safe_dump(JOIN, default_flow_style=True).strip()[1:-1])
        )
        yield pytest.param(content.encode("latin-1") if text.startswith("b:") else content, words, outcome, id=sentence)


@pytest.mark.parametrize(
    ("content", "words", "outcome"), [*cases(FILES), *(pytest.param(*case, id=sentence) for sentence, *case in LARGE)]
)
def test_what_comes_of_a_file(tmp_path: Path, content: bytes | str, words: dict[str, Any], outcome: str) -> None:
    (tmp_path / "cities.csv").write_text("id,city,City\nv1,Bonn,Köln\n", "utf-8")
    for name, venues in {"venues": "v1,Bonn\nv2,Köln\n", "twice": "v1,Bonn\nv2,Ulm\n v1,Köln\n"}.items():
        (tmp_path / f"{name}.csv").write_text(f"id,city\n{venues}", "utf-8")
    spec = {**KINDS[words.get("kind", "csv")], **words}
    wanted, hint = str(spec.pop("wanted", "")), spec.pop("hint", "")
    columns = wanted.split("|") if wanted else []
    errors = {"no": BadSourceError, "lacks": MissingColumnsError, "two": RepeatedColumnsError}
    if error := errors.get(outcome.partition(": ")[0]):
        with pytest.raises(error, match=outcome.partition(": ")[2]) as caught:
            read(tmp_path, content, *columns, **spec)
        assert hint in caught.value.hint
        assert str(caught.value).encode(), "it can be printed"
        return
    rows = read(tmp_path, content, *columns, **spec)
    said = [
        f"{row.location.number}{mark} {why.code.value} {why.column} {why.found}"
        for row in rows
        for mark, reasons in (("", row.problems), (" warning", row.warnings))
        for why in reasons
    ]
    shown, *problems = outcome.split(" ! ")
    names = ["|".join(rows[0].cells)] if rows else ["no rows"]
    assert [*names, *(f"{row.location.number} {'|'.join(row.cells.values())}" for row in rows)] == unescaped(shown).split(" / ")
    assert said == [unescaped(problem) for problem in problems]
    assert not hint or hint in next(row.problems[0].hint for row in rows if row.problems)


NO_ROWS: list[tuple[bytes, type[BadSourceError], str, str]] = [
    (b"", EmptySourceError, "empty", ""),
    (b"<!DOCTYPE html><html><body>Please log in", BadSourceError, "web page", "login"),
    (bytes(range(256)) * 50, BadSourceError, "events.file", ""),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("content", "error", "said", "hint"), NO_ROWS, ids=["no bytes", "a login page", "any binary"])
def test_what_is_no_file_of_rows_is_refused_in_each_kind(
    tmp_path: Path, kind: str, content: bytes, error: type[BadSourceError], said: str, hint: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        read(tmp_path, content, *(["id"] if content else []), **{"kind": kind, **KINDS[kind]})
    assert hint in caught.value.hint
    assert content or outcome_of(caught.value).exit_code == 5


RENAMED = {
    "ID,TITLE,DATE,HOUR": {"DAY": "DATE"},
    "ID,TITEL,DAY,HOUR": {"TITLE": "TITEL"},
    "ID,EVENT_TITLE,DAY,HOUR,NOTE": {"TITLE": "EVENT_TITLE"},
    "Id ,Title,day,START HOUR": {"HOUR": "START HOUR"},
    "ID,TITLE,HOUR": {},
}


@pytest.mark.parametrize("header", RENAMED)
def test_a_renamed_column_is_sought_among_those_that_are_not_needed(tmp_path: Path, header: str) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        read(tmp_path, f"{header}\n", "ID", "TITLE", "DAY", "HOUR")
    assert caught.value.nearest == RENAMED[header]


@given(st.lists(st.sampled_from(["a", "a#2", "b", "", "#2", " a "]), max_size=8))
def test_every_column_has_a_name_of_its_own(header: list[str]) -> None:
    texts = header_texts(header)
    found = column_names(texts)
    assert len(set(found)) == len(header)
    asked = [name for name, text in zip(found, texts, strict=True) if name != text or texts.count(text) == 1]
    assert matched(texts, ColumnRequest(frozenset(asked))).names == found


@given(
    records=st.lists(st.lists(st.sampled_from(["", "x", "a\nb", "\r\n\r\n", "q\rq"]), min_size=2, max_size=2), max_size=8),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=9, max_size=9),
)
@in_a_folder
def test_line_numbers_are_those_of_any_text_editor_and_rows_those_of_a_spreadsheet(
    tmp_path: Path, records: list[list[str]], ends: list[str]
) -> None:
    content, expected = "id,text" + ends[0], []
    for record, end in zip(records, ends[1:], strict=False):
        expected.append(len(io.StringIO(content, newline=None).readlines()) + 1)
        content += ",".join(f'"{cell}"' for cell in record) + end
    rows = read(tmp_path, content)
    assert [row.location.number for row in rows] == expected
    assert all(row.location.shown_number == str(number) for number, row in enumerate(rows, start=2))


@pytest.mark.parametrize(("marks", "encoding"), [(1, "utf-8"), (3, "utf-8"), (2, "utf-8-sig"), (1, "windows-1252"), (1, "ascii")])
def test_byte_order_marks_at_the_start_vanish_and_decide(tmp_path: Path, marks: int, encoding: str) -> None:
    content = b"\xef\xbb\xbf" * marks + '"id",text\n1,Łódź\n'.encode()
    assert dict(read(tmp_path, content, encoding=[encoding])[0].cells) == {"id": "1", "text": "Łódź"}


def test_the_first_encoding_that_decodes_the_whole_file_wins(tmp_path: Path) -> None:
    late = b"id,text\n" + b"1,plain\n" * 200_000 + "2,café\n".encode("windows-1252")
    for content in (late, "id,text\n2,café\n"):
        assert cells(read(tmp_path, content, encoding=["utf-8", "windows-1252"]))[-1] == ["2", "café"]


@pytest.mark.parametrize(
    ("encoding", "word"),
    [
        ("windows-1252", "café"),
        ("windows-1250", "Łódź"),
        ("iso-8859-1", "é"),
        ("cp932", "春の祭り"),
        ("gb18030", "Crème brûlée à Orléans"),
    ],
)
def test_utf_8_is_not_published_as_the_letters_of_another_encoding(tmp_path: Path, encoding: str, word: str) -> None:
    content = "id,text\n" + "1,plain\n" * 1000 + f"2,{word}\n"
    with pytest.raises(BadSourceError, match=f"the file is UTF-8, not {encoding}"):
        read(tmp_path, content, encoding=[encoding])
    assert cells(read(tmp_path, content, encoding=["utf-8", encoding]))[-1] == ["2", word]
    legacy = content.encode(encoding)
    assert cells(read(tmp_path, legacy, encoding=[encoding])) == cells(read(tmp_path, legacy, encoding=["utf-8", encoding]))


@pytest.mark.parametrize("encoding", ["cp932", "ms932", "shift_jis"])
@pytest.mark.parametrize("byte", [0x80, 0xA0, 0xFD, 0xFE, 0xFF])
def test_bytes_that_are_no_japanese_cost_their_row_and_become_no_letters(tmp_path: Path, encoding: str, byte: int) -> None:
    lines = ("ID,NAME\n1,春の".encode("cp932"), bytes([byte]), "祭り\n2,髙橋①～\n".encode("cp932"))
    broken, sound = read(tmp_path, b"".join(lines), "ID", "NAME", encoding=(encoding,))
    assert broken.problems
    if encoding != "shift_jis":
        assert (broken.problems[0].found, sound.cells["NAME"], sound.problems) == (f"春の\\x{byte:02x}祭り", "髙橋①～", ())


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_opened_is_refused(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "closed").touch(mode=0o000)
    why = {"pipe": "regular", "folder": "folder", "closed/inner": "may not"}
    why |= {} if os.access(tmp_path / "closed", os.R_OK) else {"closed": "may not"}  # root may read everything
    for path, said in why.items():
        with pytest.raises(SourceRefusedError, match=said):
            rows_of(tmp_path, **{"kind": kind, "path": path, **KINDS[kind]})


@pytest.fixture
def two_rows(tmp_path: Path) -> Source:
    (tmp_path / "events.csv").write_text("id\n1\n2\n")
    return open_source(CsvSource(kind="csv", path="events.csv"), tmp_path, frozenset())


@pytest.mark.parametrize("added", ["3\n", '3\n"half a r'])
def test_a_file_that_grows_while_we_read_is_read_again_later(tmp_path: Path, two_rows: Source, added: str) -> None:
    with two_rows.read() as reading:
        next(reading.rows)
        with (tmp_path / "events.csv").open("a") as partner:
            partner.write(added)
        with pytest.raises(SourceUnavailableError, match="changed"):
            list(reading.rows)


def test_a_file_replaced_as_a_whole_while_we_read_is_read_as_it_was(tmp_path: Path, two_rows: Source) -> None:
    with two_rows.read() as reading:
        next(reading.rows)
        (tmp_path / "new").write_text("id\n8\n9\n10\n")
        (tmp_path / "new").rename(tmp_path / "events.csv")
        assert cells(list(reading.rows)) == [["2"]]


def test_errors_of_the_reader_of_rows_pass_unchanged(two_rows: Source) -> None:
    with pytest.raises(csv.Error, match="theirs"), two_rows.read():
        raise csv.Error("theirs")


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    for number in (1, 9, 10):
        (tmp_path / f"events-{number}.csv").write_text(f"id,c{number}\n{number},x\n", "utf-8")
    return tmp_path


def test_files_follow_one_another_in_the_order_of_their_numbers(numbered: Path) -> None:
    rows = rows_of(numbered, "id", kind="csv", path="events-*.csv")
    assert [str(row.location) for row in rows] == ["events-1.csv:2", "events-9.csv:2", "events-10.csv:2"]
    assert dict(rows[0].cells) == {"id": "1", "c1": "x", "c9": "", "c10": ""}
    assert column(rows_of(numbered, "id", kind="csv", path="events-*.csv", files="newest"), "id") == ["10"]


def test_a_column_that_one_of_the_files_lacks_is_reported_before_any_row(numbered: Path) -> None:
    source = open_source(CsvSource(kind="csv", path="events-*.csv"), numbered, frozenset({"c1"}))
    with pytest.raises(MissingColumnsError, match=r"events-9\.csv lacks"), source.read():
        pytest.fail("the block was entered")


def test_a_file_that_is_replaced_while_the_others_are_read_is_read_again_later(numbered: Path) -> None:
    with open_source(CsvSource(kind="csv", path="events-*.csv"), numbered, frozenset({"id"})).read() as reading:
        next(reading.rows)
        (numbered / "events-10.csv").write_text("id,c10\n11,x\n12,y\n", "utf-8")
        with pytest.raises(SourceUnavailableError, match="changed"):
            list(reading.rows)


def test_a_second_tab_is_a_second_table(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as workbook:
        workbook.add_worksheet("Programme").write_column(0, 0, ["VENUE", "v1"])
        venues = workbook.add_worksheet("Venues")
        venues.write_column(0, 0, ["id", "v1"])
        venues.write_column(0, 1, ["city", "Bonn"])
    join = {**JOIN, "source": {"kind": "xlsx", "path": "a.xlsx", "sheet": "Venues"}}
    assert column(rows_of(tmp_path, "venue.city", kind="xlsx", path="a.xlsx", join=join), "venue.city") == ["Bonn"]


@given(st.lists(st.fixed_dictionaries({"id": TEXTS}), min_size=1, max_size=5), st.integers(1, 3000))
@settings(in_a_folder, max_examples=30)
def test_a_record_may_stand_across_the_end_of_a_piece(tmp_path: Path, records: list[dict[str, str]], pad: int) -> None:
    long = [{"id": "x" * (63 * 1024 + pad)}, *records]
    assert column(read(tmp_path, json.dumps(long), "id", kind="json"), "id") == [record["id"] for record in long]


AGENDA = """<?xml version="1.0" encoding="iso-8859-1"?>
<agenda xmlns:dc="urn:x">
  <event id="7">
    <title>Käse &amp; Brot</title><price currency="EUR">12.50</price>
    <tag>a</tag><tag>b</tag><dc:date>2026-05-03</dc:date>
    <text>Come <b>now</b>!</text><html><![CDATA[<i>x</i>]]></html>
    <venue><city>Bonn</city></venue>
  </event>
  <event id="8"><title>Late</title><tag>c</tag></event>
</agenda>""".encode("iso-8859-1")


def test_elements_attributes_and_what_stands_inside_them_are_columns(tmp_path: Path) -> None:
    first, second = read(tmp_path, AGENDA, "@id", "tag[1]", kind="xml", records="event")
    assert "|".join(first.cells) == "@id|title|price|price.@currency|tag|dc:date|text|text.b|html|venue.city|tag[1]"
    assert "|".join(first.cells.values()) == '7|Käse & Brot|12.50|EUR|["a", "b"]|2026-05-03|Come now!|now|<i>x</i>|Bonn|b'
    assert (second.cells["title"], second.cells["price"], second.cells["tag"]) == ("Late", "", "c")
    assert str(second.location) == "events.file:9 (record 2)"


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        *((name, name) for name in ("utf-8", "utf-16", "shift_jis")),
        *(("utf-16", "utf-8"), ("UTF-16", "utf-8-sig"), ("utf-32", "utf-8"), ("utf-8", "utf-8-sig"), ("utf-8", "utf-16")),
        *(("utf-16", "utf-16-le"), ("x", "utf-16-be")),
    ],
)
def test_xml_is_in_the_encoding_that_it_declares_unless_its_bytes_contradict_it(
    tmp_path: Path, declared: str, encoding: str
) -> None:
    content = f'<?xml version="1.0" encoding="{declared}"?><a><event><t>花火</t></event></a>'.encode(encoding)
    assert column(read(tmp_path, content, **XML), "t") == ["花火"]


CALENDAR = """BEGIN:VCALENDAR
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.org
SUMMARY;LANGUAGE=de:Jazz\\, Blues\\nund m
 ehr
DTSTART;TZID="Europe/Berlin":20260503T193000
DTEND:20260503T200000Z
CATEGORIES:Music,Arts\\, Crafts
URL:https://example.org/a?b=c\\d
BEGIN:VALARM
SUMMARY:not this
END:VALARM
END:VEVENT
BEGIN:VEVENT
UID:2@example.org
DTSTART;VALUE=DATE:20260601
DTEND;VALUE=DATE:20260603
RECURRENCE-ID:20260601
STATUS:CANCELLED
END:VEVENT
END:VCALENDAR
"""


def test_events_of_a_calendar_have_their_properties_as_columns(tmp_path: Path) -> None:
    first, second = read(tmp_path, CALENDAR.replace("\n", "\r\n"), "UID", "SUMMARY", "LOCATION", "DTSTART.TZID", kind="ics")
    assert "|".join(f"{name}={cell}" for name, cell in first.cells.items() if cell) == (
        "X-WR-TIMEZONE=Europe/Berlin|UID=1@example.org|SUMMARY=Jazz, Blues\nund mehr|SUMMARY.LANGUAGE=de"
        "|DTSTART=2026-05-03T19:30:00|DTSTART.TZID=Europe/Berlin|DTEND=2026-05-03T20:00:00Z|CATEGORIES=Music;Arts, Crafts"
        "|URL=https://example.org/a?b=c\\d"
    )
    of_second = [second.cells[name] for name in ("DTSTART", "DTEND", "RECURRENCE-ID", "STATUS", "LOCATION")]
    assert of_second == ["2026-06-01", "2026-06-03", "2026-06-01", "CANCELLED", ""]
    assert str(second.location) == "events.file:21"


def calendar(*events: str) -> str:
    """Return a calendar of events whose lines are separated by spaces."""
    lines = ["\n".join(["BEGIN:VEVENT", *event.split(), "END:VEVENT"]) for event in events]
    return "\n".join(["BEGIN:VCALENDAR", *lines, "END:VCALENDAR\n"])


@pytest.mark.parametrize(
    ("start", "length", "end", "zone"),
    [
        ("DTSTART;TZID=Europe/Paris:20270301T180000", "PT1H30M", "2027-03-01T19:30:00", "Europe/Paris"),
        ("DTSTART:20270301T233000Z", "PT45M", "2027-03-02T00:15:00Z", ""),
        ("DTSTART;VALUE=DATE:20270301", "P2D", "2027-03-03", ""),
        ("DTSTART;VALUE=DATE:20270301", "+P1W", "2027-03-08", ""),
        ("DTSTART:20270301T180000\nDTEND:20270301T200000", "PT1H", "2027-03-01T20:00:00", ""),
        ("DTSTART;VALUE=DATE:20270301", "PT3H", "", ""),
        ("DTSTART:99991231T180000", "P99999D", "", ""),
        ("DTSTART:soon", "PT1H", "", ""),
        *(("DTSTART:20270301T180000", length, "", "") for length in ("-PT1H", "P", "PT")),
    ],
)
def test_an_event_with_a_duration_has_the_end_that_follows(tmp_path: Path, start: str, length: str, end: str, zone: str) -> None:
    (row,) = read(tmp_path, calendar(f"UID:1 {start} DURATION:{length}"), "DTEND", "DTEND.TZID", "DURATION", kind="ics")
    assert (row.cells["DTEND"], row.cells["DTEND.TZID"], row.cells["DURATION"]) == (end, zone if end else "", length)


def test_a_character_cut_in_two_by_a_fold_is_whole_again(tmp_path: Path) -> None:
    content = CALENDAR.encode().replace(b"SUMMARY;LANGUAGE=de:Jazz", b"SUMMARY:Caf\xc3\n \xa9")
    assert read(tmp_path, content, kind="ics")[0].cells["SUMMARY"].startswith("Café")
