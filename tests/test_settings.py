"""Options: text and numbers are read, ranges and names are held."""

from __future__ import annotations

import pytest

from gstinfer import ConfigError, UnknownNameError, option
from gstinfer.settings import Settings


def few(text: str) -> str:
    if len(text) > 3:
        raise ConfigError(f"{text!r} is too long", hint="three letters")
    return text


class Base(Settings):
    rate = option(float, 0.5, "A rate", minimum=0, maximum=1)
    note = option(str, None, "Words")


class Thing(Base):
    fast_mode = option(bool, False, "Go fast")
    mode = option(str, "a", "Mode", choices=("a", "b"))
    limit = option(int, None, "Limit", minimum=1, unset=0)
    style = option(str, "", "Style", choices=("", "bold", "thin"))
    short = option(str, "", "A word", check=lambda value: few(value))
    even = option(int, 2, "Even", check=lambda value: value // 2 * 2)


def test_an_option_that_cannot_be_a_property_is_refused_where_it_stands():
    with pytest.raises(ConfigError, match="cannot be of type list"):
        option(list, [], "Words")
    with pytest.raises(ConfigError, match=r"default=300 is out of range .*0 to 255"):
        option(int, 300, "Level", minimum=0, maximum=255)
    with pytest.raises(ConfigError, match="default='c' is not known"):
        option(str, "c", "Way", choices=("a", "b"))


def test_defaults_and_keywords_under_both_spellings():
    thing = Thing(**{"fast-mode": "yes"}, rate="0.25")
    assert (thing.fast_mode, thing.rate, thing.mode, thing.limit, thing.note) == (True, 0.25, "a", None, None)
    names = ["rate", "note", "fast_mode", "mode", "limit", "style", "short", "even"]
    assert list(Thing.options()) == names, "base classes first"
    assert Thing.fast_mode.key == "fast-mode" and thing.values()["rate"] == 0.25
    assert Thing().rate == 0.5, "instances do not share values"


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_true(text):
    assert Thing(fast_mode=text).fast_mode is True


@pytest.mark.parametrize("text", ["0", "false", "No", "off"])
def test_false(text):
    assert Thing(fast_mode=text).fast_mode is False


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rate": 1.5}, r"rate=1.5 is out of range \(use 0 to 1\)"),
        ({"rate": "fast"}, "rate='fast' is not a valid float"),
        ({"rate": float("nan")}, "out of range"),
        ({"fast-mode": "maybe"}, "fast-mode='maybe'"),
        ({"mode": "c"}, r"mode='c' is not known \(use one of a, b\)"),
        ({"style": "odd"}, r"style='odd' is not known \(use one of bold, thin, or leave it empty\)"),
        ({"short": "long"}, r"^short: 'long' is too long \(three letters\)"),
        ({"limit": -3}, r"out of range \(use at least 1\)"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        Thing(**values)


def test_an_unknown_name_lists_the_known_and_suggests():
    with pytest.raises(
        UnknownNameError, match=r"no setting 'fastmode'; available: .*fast-mode.*did you mean 'fast-mode'"
    ):
        Thing(fastmode=True)


def test_unset():
    thing = Thing(limit=5)
    thing.limit = 0
    assert thing.limit is None
    thing.rate = None
    assert thing.rate == 0.5
    assert Thing(even=7).even == 6
