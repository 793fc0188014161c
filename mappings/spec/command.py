"""The words of a `command` source: its program, what it speaks, and the name of its configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mappings.strict import mistake

CONFIG, STATE = "{config}", "{state}"
"""What stands in the words for the nameless files with the configuration and the last STATE."""
NOT_ALLOWED = "EVENTSYNC_ALLOW_COMMANDS is not 1 in this environment"
ALLOW = "set EVENTSYNC_ALLOW_COMMANDS=1 where this feed runs, if you trust all who may edit its mapping files"
_BRACES = re.compile(r"\{[a-z]+\}")


def check_words(run: Sequence[str], resume: Sequence[str], speaks: str, stream: str, config: str) -> None:
    """Check that the words of a program fit together.

    Raises:
        PydanticCustomError: they do not.
    """
    if not run[0].strip():
        raise mistake("run names no program", 'write it like `run: [bin/tap-meetup, --config, "{config}"]`')
    for name, words, known in (("run", run, CONFIG), ("resume", resume, STATE)):
        odd = [found for word in words for found in _BRACES.findall(word) if found != known]
        if odd:
            raise mistake(f"{odd[0]} means nothing in `{name}`", f"{known} is what can stand there")
    if any(CONFIG in word for word in run) != bool(config):
        hint = 'write `config: MEETUP` beside `run: [..., --config, "{config}"]`'
        raise mistake("`config` names the configuration that {config} stands for: write both or none", hint)
    if resume and not any(STATE in word for word in resume):
        raise mistake("`resume` must hand back the last STATE", 'write it like `resume: [--state, "{state}"]`')
    if (speaks == "json") != (not stream):
        wrong = "lines of JSON have no streams" if stream else f"{speaks} needs the name of a stream"
        raise mistake(wrong, "write `speaks: singer` and `stream: events` for a tap, none of them for lines of JSON")
    if resume and speaks == "json":
        raise mistake("lines of JSON have no STATE to continue from", "leave `resume` out, or write `speaks: singer`")
