"""Conditions on objects."""

from __future__ import annotations

import pytest

from gstinfer.errors import ConfigError
from gstinfer.results import Attribute, Detections
from gstinfer.vlm.trigger import Condition, Seen, Tracks

SECOND = 1_000_000_000


def objects(*labels: str, ids: list[int] | None = None, attributes: dict[int, str] | None = None) -> Detections:
    n = len(labels)
    rows = [(Attribute(attributes[i], 0, 1.0),) if attributes and i in attributes else () for i in range(n)]
    return Detections([[0, 0, 9, 9]] * n, label=list(labels), tracker_id=ids, attributes=rows if n else None)


def holds(text: str, found: Detections | None) -> bool:
    return Condition(text)(Seen(found, 0, Tracks()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("person", True),
        ("person>=2", True),
        ("person > 2", False),
        ("Person==2", True),
        ("dog", False),
        ("not dog", True),
        ("dog or car", True),
        ("dog and car", False),
        ("dog or car and person>=3", False),
        ("(dog or car) and person>=2", True),
        ("'traffic light'=1", True),
        ("objects>=4", True),
        ("objects<4", False),
        ("car[parked]", True),
        ("person[parked]", False),
        ("not not car", True),
        ("dog==0", True),
        ("dog!=0", False),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    found = objects("person", "person", "car", "traffic light", attributes={2: "parked"})
    assert holds(text, found) is expected


def test_nothing_found() -> None:
    assert not holds("person", None) and holds("person<1", None) and not holds("age(person)>=0", None)


def test_age_is_the_time_that_a_track_has_been_seen() -> None:
    tracks, condition = Tracks(), Condition("age(person)>2")
    said = [condition(Seen(objects("person", ids=[7]), n * SECOND, tracks)) for n in range(5)]
    assert said == [False, False, False, True, True]
    # Another object is young, and one that is not tracked has no age.
    assert not condition(Seen(objects("person", ids=[8]), 5 * SECOND, tracks))
    assert not condition(Seen(objects("person", ids=[-1]), 5 * SECOND, tracks))
    # A track not seen for long is forgotten.
    assert not condition(Seen(objects("person", ids=[7]), 60 * SECOND, tracks))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a label at character 1, got the end"),
        ("person>=", "expected a number at character 9"),
        ("person>=two", "expected a number at character 9, got 'two'"),
        ("person and", "expected a label at character 11"),
        ("(person", "expected '\\)'"),
        ("person car", "'and' or 'or' at character 8, got 'car'"),
        ("person && car", "'&' at character 8"),
        ("car[", "expected an attribute"),
        ("age(person", "expected '\\)'"),
    ],
)
def test_what_cannot_be_read_is_shown(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Condition(text)
