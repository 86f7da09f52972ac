"""Structured answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gstinfer.errors import ConfigError
from gstinfer.vlm.schema import AnswerSchema

GATE = {
    "type": "object",
    "properties": {
        "state": {"enum": ["open", "closed"], "x-gstinfer": "class"},
        "sure": {"type": "number", "minimum": 0, "maximum": 1, "x-gstinfer": "confidence"},
    },
    "required": ["state"],
}


def load(tmp_path: Path, schema: Any) -> AnswerSchema:
    path = tmp_path / "s.json"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return AnswerSchema.load(path)


def test_an_answer_that_fits_gives_data_and_classes(tmp_path: Path) -> None:
    schema = load(tmp_path, GATE)
    assert "x-gstinfer" not in json.dumps(schema.schema)
    for text in ('{"state": "closed", "sure": 0.75}', '```json\n{"state": "closed", "sure": 0.75}\n```'):
        data, invalid = schema.read(text)
        assert data == {"state": "closed", "sure": 0.75} and not invalid
    (classes,) = schema.classifications(data, 17)
    assert classes.label == ["closed"] and classes.class_id.tolist() == [1]
    assert classes.confidence.tolist() == [0.75] and classes.component_id == 17


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The gate is open.", "not JSON"),
        ('{"state": "ajar"}', "state: 'ajar' is not one of"),
        ('{"sure": 1}', "'state' is a required property"),
        ('{"state": "open", "sure": NaN}', "not JSON"),
        ("", "not JSON"),
    ],
)
def test_an_answer_that_does_not_fit_is_told(tmp_path: Path, text: str, words: str) -> None:
    data, invalid = load(tmp_path, GATE).read(text)
    assert data is None and words in invalid


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object, got list"),
        ({"type": "objekt"}, "is not a JSON Schema: 'objekt' is not valid.*at type"),
        ({"properties": {"a": {"type": "string", "x-gstinfer": "class"}}}, "does not fit the property 'a'"),
    ],
)
def test_what_is_no_schema_is_refused(tmp_path: Path, schema: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, schema)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        AnswerSchema.load(tmp_path / "none.json")
