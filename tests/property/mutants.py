"""Mapping files made wrong: one to four mutations of a real file's tree and of its text, from a seeded generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from mappings.reference import feed_json_schema
from mappings.spec.values import STEPS

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests" / "feeds", ROOT / "mappings" / "feeds")
FEEDS = tuple(sorted(path for folder in FOLDERS for path in folder.glob("[!_]*.yaml")))
_FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONTEXTS = ("do", "rows", "let", "event", "source", "publish", "schedule", "examples", "key", "steps", "include", "when")

Slot = tuple[Any, Any]
"""A mapping or a list of a tree, and the key or the position of one of its entries."""


def _atoms() -> tuple[Any, ...]:
    texts = ("seven", "", " ", "$", "$$", "$nothing", "$day", "$item", "0", "-1", "7", "1e999", "nan", "Infinity", "9" * 40)
    words = ("true", "off", "reject", "warn", "draft", "next_day", "(", "[a-", "a{9999}", "%Y", "%", "{", "\\", "\\9", "é\u0301")
    names = ("_x", "a.b", "a..b", ".", "offers[0]", "..", "/", "http://[", "file:///etc")
    zones = ("UTC", "Europe/Lisbon", "utf-8", "rot13")
    spans = ("90d", "-90d", "999999d", "0s", "5%", "500%", "2026-02-30", "2026-02-28", "25:00", "0001-01-01T00:00:00Z", "\u0662")
    odd = ("x" * 5_000, "a\nb", "\t", "\u00a0", "\ufeff", "\u202e", "𝄞", "null", "~", "*", "&a", "!!", "- ", "utf-8", "rot13")
    values = (None, True, False, 0, -1, 10**30, 1.5, float("inf"), date(2026, 2, 28), [], {}, [[]], [[["x"]]], {"": ""}, [None])
    blocks = ({"use": "x"}, {"use": []}, {"from": []}, {"from": "$a"}, {"column": "A"}, [{}], {"a": {"b": {"c": 1}}}, ["x", "x"])
    return (*texts, *words, *names, *zones, *spans, *odd, *values, *blocks)


ATOMS = _atoms()


def _slots(tree: Any, met: set[int] | None = None) -> Iterator[Slot]:
    """Yield every entry of a tree, those of a part with two places once."""
    met = set() if met is None else met
    if id(tree) in met:
        return
    met.add(id(tree))
    entries = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, value in entries:
        yield tree, key
        yield from _slots(value, met)


def _contexts(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield each entry of the lists and mappings whose name says what may stand in them, under that name."""
    for holder, key in _slots(tree):
        value = holder[key]
        if key in _CONTEXTS and isinstance(value, list | dict):
            yield from ((key, entry) for entry in (value if isinstance(value, list) else value.items()))


@cache
def _donors() -> dict[str, list[Any]]:
    """Return what real files, the documentation and the steps' own examples put into each context."""
    texts = [path.read_text("utf-8") for folder in FOLDERS for path in folder.glob("*.yaml")]
    texts += [fence for page in (ROOT / "docs").glob("*.md") for fence in _FENCE.findall(page.read_text("utf-8"))]
    found: dict[str, list[Any]] = {name: [] for name in _CONTEXTS}
    for text in texts:
        try:
            tree = yaml.load(text, yaml.CBaseLoader)  # texts only
        except yaml.YAMLError:
            continue
        for name, entry in _contexts({"fence": tree}):
            found[name].append(entry)
    for step in STEPS.values():
        found["do"] += [yaml.load(shown.step, yaml.CBaseLoader) for shown in step.examples]
    return found


def replace(random: Random, tree: Any, atoms: Sequence[Any] = ATOMS) -> None:
    holder, key = random.choice(list(_slots(tree)) or [({}, "")])
    holder[key] = deepcopy(random.choice(atoms))


def delete(random: Random, tree: Any) -> None:
    if slots := list(_slots(tree)):
        holder, key = random.choice(slots)
        del holder[key]


def double(random: Random, tree: Any) -> None:
    if slots := [slot for slot in _slots(tree) if isinstance(slot[0], list)]:
        holder, at = random.choice(slots)
        holder.insert(at, deepcopy(holder[at]))


def rename(random: Random, tree: Any) -> None:
    if slots := [slot for slot in _slots(tree) if isinstance(slot[0], dict)]:
        holder, key = random.choice(slots)
        others = [str(other) for _, other in _slots(tree)]
        name = random.choice([*others, str(key) + "s", str(key).upper(), "", "$x", "a.b", "x" * 300])
        holder[name] = holder.pop(key)


def _swap(random: Random, tree: Any) -> None:
    slots = list(_slots(tree))
    (one, here), (other, there) = random.choice(slots), random.choice(slots)
    one[here], other[there] = deepcopy(other[there]), deepcopy(one[here])


def _alias(random: Random, tree: Any) -> None:
    """Put a part of the tree in another place as well: an alias, which may lead into itself."""
    slots = list(_slots(tree))
    (one, here), (other, there) = random.choice(slots), random.choice(slots)
    one[here] = other[there]


def _wrap(random: Random, tree: Any) -> None:
    holder, key = random.choice(list(_slots(tree)))
    value = holder[key]
    holder[key] = random.choice([[value], [value, value], {"from": value}, {"x": value}, {"use": value}, {"first_of": value}])


def _deepen(random: Random, tree: Any) -> None:
    holder, key = random.choice(list(_slots(tree)))
    for _ in range(random.choice([5, 40, 70])):
        holder[key] = [holder[key]] if random.random() < 0.5 else {random.choice(["all", "any", "not", "x", "join"]): holder[key]}


def _go_in_a_circle(random: Random, tree: Any) -> None:
    let = tree["let"] if isinstance(tree.get("let"), dict) else {}
    tree["let"] = let
    names = [*list(let)[:3], *random.sample(["round", "about", "again"], random.randint(1, 3))]
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        uses = (f"${following}", {"from": f"${following}", "do": ["trim"]}, {"first_of": [f"${following}", "x"]})
        let[name] = deepcopy(random.choice(uses))
    holder, key = random.choice(list(_slots(tree)))
    holder[key] = f"${names[0]}"


def _chain(random: Random, tree: Any) -> None:
    """Name values that need each other one after the other, or each of them the next one twice."""
    length, is_double = random.choice([(40, True), (12, True), (40, False), (400, False)])
    links = [[f"$link{number}"] * 2 if is_double else f"$link{number}" for number in range(1, length)]
    shape = random.choice(["first_of", "from", ""])
    let = {f"link{number}": {shape: link} if shape else link for number, link in enumerate(links)}
    tree["let"] = {**(tree["let"] if isinstance(tree.get("let"), dict) else {}), **let, f"link{length - 1}": "x"}
    holder, key = random.choice([slot for slot in _slots(tree.get("event")) if slot[1] != "from"] or [(tree, "event")])
    holder[key] = "$link0"


@cache
def _words() -> list[tuple[str, list[Any]]]:
    """Return every key that the JSON Schema names, with the choices and examples that it gives for it."""
    found: dict[str, list[Any]] = {}
    for holder, key in _slots(feed_json_schema()):
        for name, value in holder[key].items() if key == "properties" else ():
            found.setdefault(name, []).extend(_choices(value))
    return sorted(found.items())


def _choices(node: Any) -> list[Any]:
    if isinstance(node, list):
        return [choice for inner in node for choice in _choices(inner)]
    if not isinstance(node, dict):
        return []
    own = [*node.get("enum", []), *node.get("examples", []), *([node["const"]] if "const" in node else [])]
    return own + _choices([value for key, value in node.items() if key in {"anyOf", "oneOf", "items"}])


def _say(random: Random, tree: Any) -> None:
    """Add a key of the language to some block, with one of its own choices or with anything."""
    blocks = [value for holder, key in _slots(tree) if isinstance(value := holder[key], dict)] or [tree]
    name, choices = random.choice(_words())
    random.choice(blocks)[name] = deepcopy(random.choice(choices if choices and random.random() < 0.5 else ATOMS))


def _add(random: Random, tree: Any) -> None:
    """Add to a context, or replace in it, what stands in such a context elsewhere."""
    places = [(key, holder[key]) for holder, key in _slots(tree) if key in _CONTEXTS and isinstance(holder[key], list | dict)]
    if not places:
        return
    name, place = random.choice(places)
    donor = deepcopy(random.choice(_donors()[name]))
    inside = list(_slots(donor[1] if isinstance(donor, tuple) else donor))
    if inside and random.random() < 0.5:
        holder, key = random.choice(inside)
        holder[key] = deepcopy(random.choice(ATOMS))
    if isinstance(place, list):
        entry = dict([donor]) if isinstance(donor, tuple) else donor
        at = random.randint(0, len(place))
        place[at : at + random.randint(0, 1)] = [entry]
    elif isinstance(donor, tuple):
        place[random.choice([donor[0], donor[0], *place])] = donor[1]


def _other_steps(random: Random, tree: Any) -> None:
    """Put a value through some steps that stand elsewhere."""
    values = [
        value for holder, key in _slots(tree) if isinstance(value := holder[key], dict) and {"from", "do", "join"} & {*value}
    ]
    for value in random.sample(values, min(len(values), random.choice([1, 1, 3]))):
        value["do"] = deepcopy(random.choices(_donors()["do"], k=random.randint(1, 4)))


TREE: tuple[Callable[[Random, Any], None], ...] = (
    *(replace, replace, replace, delete, rename, _swap, _alias, _wrap, _deepen, _go_in_a_circle),
    *(_add, _add, _add, _add, _add, _say, _say, _chain),
    *(_other_steps, _other_steps),
)


def _cut(random: Random, text: str) -> str:
    return text[: random.randrange(len(text) + 1)]


def _lines(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = random.randrange(len(lines))
    line = lines[at]
    indented = (" " + line, "  " + line, line[1:], line.lstrip(), "\t" + line)
    lines[at] = random.choice([line + line, "", line.rstrip("\n"), *indented])
    return "".join(lines)


def _characters(random: Random, text: str) -> str:
    odd = "\x00\x07\ufeff\u2028\x85\ufffe😀\r\t'\"{}[]:,#|"
    tags = ("&a ", "*a ", "!!binary ", "!!python/object:os.system ", "!x ", "<<: ", "? ", "- ", "---\n", "...\n", "%YAML 1.1\n")
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice([*odd, *tags]) + text[at + random.randint(0, 1) :]


def _anchors(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    values = [at for at, line in enumerate(lines) if ": " in line]
    for mark in ("&a", "*a"):
        if values:
            at = random.choice(values)
            key, _, value = lines[at].partition(": ")
            lines[at] = f"{key}: {mark} {value}" if mark == "&a" else f"{key}: {random.choice(['*a', '{<<: *a}', '[*a, *a]'])}\n"
    return "".join(lines)


TEXT: tuple[Callable[[Random, str], str], ...] = (_cut, _lines, _lines, _characters, _characters, _anchors)

_NO_FILES = (
    *(b"", b"\xef\xbb\xbf", b"\xff\xfea\x00,\x00", b"PK\x03\x04" + bytes(range(256)), b"\x00" * 100, b"\n\r\n \n", b"[" * 10_000),
    *(b",,,\n1,2,3,4\n", b"city\nLisboa\n", b"city,city\nLisboa,Lisboa\n", b'city,"placeId\n' + b"x" * 200_000),
    *(b"city,placeId\n" + b"Lisboa,pt\n" * 20_000, b"let: []\nsteps: x\n", b"let: &let {x: *let, <<: *let}\n"),
    b"let: {a: $b, b: $a}\nsteps: {a: [{use: b}], b: {use: a}}\n",
    b"include: [_campaigns.yaml, _conferences.yaml]\nlet: {}\n",
)
"""What may stand where a lookup file or an included file should be."""


def mutant(path: Path, random: Random) -> bytes:
    """Return the bytes of a real mapping file made wrong."""
    text = path.read_text("utf-8")
    if random.random() < 0.75:
        tree = yaml.load(text, yaml.CBaseLoader)  # texts only
        for _ in range(random.choice([1, 1, 1, 1, 2, 3])):
            if isinstance(tree, dict) and tree:
                random.choice(TREE)(random, tree)
        flow = random.choice([None, False])
        text = yaml.dump(
            tree, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False, default_flow_style=flow, width=10_000
        )
    if random.random() < 0.3:
        for _ in range(random.choice([1, 1, 2])):
            text = random.choice(TEXT)(random, text)
    content = text.encode()
    if random.random() < 0.02:
        at = random.randrange(len(content) + 1)
        content = content[:at] + random.choice([b"\xff", b"\xe3", b"\xff\xfe", b"\x80"]) + content[at:]
    return content


def neighbour(path: Path, random: Random) -> bytes:
    """Return the bytes of a lookup file, or of one that is included, made wrong or put in place of another file."""
    content = path.read_bytes()
    if random.random() < 0.3:
        return random.choice(_NO_FILES)
    return random.choice(TEXT)(random, content.decode("utf-8")).encode()
