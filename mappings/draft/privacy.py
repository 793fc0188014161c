"""Finds the columns that say which events are private or hidden, as Outlook and The Events Calendar export them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PRIVATE = re.compile(
    r"priv(?:ate?|at[oa]|ad[oa]|[ée])|prywatn[ey]|confidential|confiden[ct]iel|confidencial|vertraulich|vertrouwelijk|riservat[oa]"
    r"|poufn[ey]|persona[le]|personale|personnel|persönlich|persoonlijk|hidden|versteckt|secret|unlisted|invisible|internal|intern"
    r"|unpublished|draft|pending|trash|nicht öffentlich|非公開|비공개",
    re.IGNORECASE,
)
"""Texts that mean that an event is private or hidden."""
_SWITCHES = (
    *(("true", "false"), ("yes", "no"), ("1", "0"), ("y", "n"), ("t", "f"), ("on", "off"), ("x", ""), ("ja", "nein")),
    *(
        ("wahr", "falsch"),
        ("ein", "aus"),
        ("oui", "non"),
        ("vrai", "faux"),
        ("sí", "no"),
        ("si", "no"),
        ("verdadero", "falso"),
        ("sim", "não"),
    ),
    *(("verdadeiro", "falso"), ("vero", "falso"), ("ja", "nee"), ("waar", "onwaar"), ("tak", "nie"), ("prawda", "fałsz")),
)
"""Texts of a switch that is on, and off."""
_OPEN = re.compile(
    r"public|publish(?:ed)?|öffentlich|publique|públic[oa]|pubblic[oa]|publiczn[ey]|openbaar|公開|공개", re.IGNORECASE
)
_STATE = re.compile(rf"{_OPEN.pattern}|future|scheduled|archived|live|cancel\w*|postponed", re.IGNORECASE)
"""Texts of public events, and of states beside them: a column of these and of private ones says which events are private."""
_LEVEL = re.compile(r"sensitivity|privacy|vertraulichkeit|sensib|confidencialidad|riservatezza|gevoeligheid")
_SHOWN = re.compile(
    r"(?:is )?(?:publi[ck]|publiek|public[oa]|pubblic[oa]|öffentlich|publicly visible|visible|listed|published|veröffentlicht)"
    r"|visibility|visibilit[eéàa]|visibilidade?|sichtbar(?:keit)?|公開|공개|(?:show|display) (?:in|on) (?:calendar|website)"
)
_HIDDEN = re.compile(
    r"(?:is )?(?:priv(?:ate?|ates|at[oa]|ad[oa]|[ée])|prywatn[ey]|confidential|unlisted|hidden|versteckt|internal|intern|besloten"
    r"|nicht öffentlich|非公開|비공개)(?: (?:event|entry|termin))?|hide(?: event)?(?: (?:from|in|on)\b.*)?"
)
"""Names of columns: a level of privacy, a switch whose off means private, one whose on does."""
_BREAK = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")


def hidden_texts(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of private or hidden events if the column says which events are, else nothing.

    Where no event is private yet, these are the usual texts.
    """
    words = " ".join(filter(None, _BREAK.split(name))).casefold().removeprefix("event ")
    level, shown = _LEVEL.match(words), _SHOWN.fullmatch(words)
    others = [text for text in texts if not _PRIVATE.fullmatch(text)]
    is_level_by_texts = len(others) < len(texts) and any(map(_OPEN.fullmatch, others)) and all(map(_STATE.fullmatch, others))
    if not (level or is_level_by_texts or shown or _HIDDEN.fullmatch(words)):
        return ()
    switches = [] if level else [(off, on) if shown else (on, off) for on, off in _SWITCHES]
    hiding, showing = {on for on, _ in switches}, {off for _, off in switches}
    found = [text for text in texts if text.casefold() in hiding or _PRIVATE.fullmatch(text)]
    folds = {text.casefold() for text in texts}
    if found or shown or not (level or folds <= showing):
        return tuple(found)
    return tuple(
        [on for on, off in switches if off and off in folds] or (["private", "confidential"] if level else ["yes", "true", "1"])
    )
