from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from mappings.reference import read_vocabulary
from mappings.spec.values import COMPANIONS, MARKERS, From
from mappings.steps.catalogue import STEPS

ROOT = Path(__file__).parents[3]


def test_the_vocabulary_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "vocabulary.md").read_text("utf-8") == read_vocabulary().text, "generate it again: make reference"


def test_the_published_json_schema_is_what_the_code_says(editor: Draft202012Validator) -> None:
    published = json.loads((ROOT / "mappings" / "eventsync.schema.json").read_text("utf-8"))
    assert published == editor.schema, "generate it again: make reference"


def test_the_json_schema_knows_every_step_and_each_of_its_parameters(editor: Draft202012Validator) -> None:
    definitions = editor.schema["$defs"]
    offered = {choice.get("const") for choice in definitions["Step"]["oneOf"]}
    for name, step in STEPS.items():
        schema = definitions[step.__name__]
        assert name in schema["required"]
        assert schema["description"]
        assert all("description" in parameter for parameter in schema["properties"].values())
        assert (name in offered) is not any(parameter.is_required() for parameter in step.model_fields.values())


def test_no_object_field_can_be_mistaken_for_a_value(editor: Draft202012Validator) -> None:
    forbidden = set(editor.schema["$defs"]["Fields"]["propertyNames"]["not"]["enum"])
    assert forbidden == {*MARKERS, *COMPANIONS, "when", "require"}
    assert {field.alias or name for name, field in From.model_fields.items()} <= forbidden


@pytest.mark.parametrize("path", sorted((ROOT / "mappings" / "feeds").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_editor_accepts_the_feeds_we_ship_and_underlines_a_mistake(path: Path, editor: Draft202012Validator) -> None:
    document = json.loads(json.dumps(yaml.safe_load(path.read_text("utf-8")), default=str))
    assert [error.message for error in editor.iter_errors(document)] == []
    document["event"]["title"]["do"] = ["trimm"]
    assert list(editor.iter_errors(document))
