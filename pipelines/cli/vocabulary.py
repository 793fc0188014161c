"""`eventsync vocabulary`: the mapping language's reference, whole or one word. Where it comes from is `mappings.reference`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson

Word = Annotated[str | None, typer.Argument(metavar="[WORD]", help="A step, a value, a rule, a key or a reason's code.")]


def vocabulary(word: Word = None, as_json: AsJson = False) -> int:
    """Print the reference of the mapping language, or what one of its words means, with examples.

    For example:

        # One step
        eventsync vocabulary truncate
        # A key, wherever it may stand
        eventsync vocabulary on_empty
        # The whole page, in Markdown
        eventsync vocabulary > vocabulary.md

    Exit codes: 0, or 2 for a word that the language does not have.
    """
    from pipelines.cli.reference_page import give_reference  # noqa: PLC0415  # keeps `--help` fast

    return give_reference(word, as_json=as_json)
