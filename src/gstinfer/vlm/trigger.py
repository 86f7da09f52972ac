"""Conditions on what was found: ``person>=2 and not car[parked] or age(dog)>5``.

A name counts the objects of that label (``objects`` those of any), ``name[attribute]`` those that carry an attribute of that
label too, and ``age(name)`` is the longest time in seconds that a tracked one has been seen. A name alone means at least one.
Names with spaces are put in quotes. ``not`` binds closest, then ``and``, then ``or``; parentheses as usual.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from gstinfer.errors import ConfigError
from gstinfer.results import Detections

__all__ = ["Condition", "Seen", "Tracks"]

TOKEN = re.compile(
    r"\s*(?:(?P<op>>=|<=|==|!=|=|>|<)|(?P<number>\d+(?:\.\d+)?)|(?P<mark>[()\[\]])"
    r"|(?P<quoted>\"[^\"]*\"|'[^']*')|(?P<name>[^\W\d][\w./-]*))"
)
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
ANY = "objects"
FORGET = 10_000_000_000
"""ns after which a track that was not seen is forgotten."""


class Tracks:
    """Since when each tracked object of a stream has been seen."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def ages(self, tracker_id: list[int], pts: int) -> list[float]:
        """Seconds that each object has been seen, -1 where it is not tracked."""
        for track in [t for t, last in self._last.items() if pts - last > FORGET or pts < last]:
            del self._first[track], self._last[track]
        ages = []
        for track in tracker_id:
            if track < 0:
                ages.append(-1.0)
                continue
            first = self._first.setdefault(track, pts)
            self._last[track] = pts
            ages.append((pts - first) / 1e9)
        return ages


class Seen:
    """The objects of one frame, as conditions look at them: (label, attribute labels, age) each, in lower case."""

    def __init__(self, found: Detections | None, pts: int, tracks: Tracks) -> None:
        self.objects: list[tuple[str, frozenset[str], float]] = []
        self.counts: Counter[str] = Counter()
        if found is None or not len(found):
            tracks.ages([], pts)
            return
        labels = found.named(None).label or []
        self.counts.update(labels)
        ids = [-1] * len(found) if found.tracker_id is None else found.tracker_id.tolist()
        attributes = found.attributes or [()] * len(found)
        self.objects = [
            (label.lower(), frozenset(a.label.lower() for a in said), age)
            for label, said, age in zip(labels, attributes, tracks.ages(ids, pts))
        ]

    def matching(self, name: str, attribute: str) -> list[float]:
        """Ages of the objects of a label that carry an attribute, where one is named."""
        return [
            age
            for label, said, age in self.objects
            if (name in (ANY, label)) and (not attribute or attribute in said)
        ]


Test = Callable[[Seen], bool]


class Condition:
    """A condition, read once.

    Args:
        text: As above.
        role: The property that holds it, for messages.

    Raises:
        ConfigError: It cannot be read; the message shows where.
    """

    def __init__(self, text: str, role: str = "only-on") -> None:
        self.text, self.role = text, role
        self._tokens = self._split(text)
        self._place = 0
        self._test = self._either()
        if self._place < len(self._tokens):
            raise self._wrong("the end, 'and' or 'or'")
        del self._tokens

    def __call__(self, seen: Seen) -> bool:
        return self._test(seen)

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        tokens, place = [], 0
        while text[place:].strip():
            match = TOKEN.match(text, place)
            if match is None:
                place += len(text[place:]) - len(text[place:].lstrip())
                raise ConfigError(
                    f"{self.role}={text!r}: {text[place]!r} at character {place + 1} is not understood", hint=HINT
                )
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()
        return tokens

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "", len(self.text))

    def _take(self, *texts: str) -> str:
        """The next token where it is one of these, else empty."""
        kind, text, _ = self._peek()
        if kind != "quoted" and text.lower() in texts:
            self._place += 1
            return text.lower()
        return ""

    def _wrong(self, wanted: str) -> ConfigError:
        _, text, place = self._peek()
        got = repr(text) if text else "the end"
        return ConfigError(f"{self.role}={self.text!r}: expected {wanted} at character {place + 1}, got {got}", hint=HINT)

    def _either(self) -> Test:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda seen: any(part(seen) for part in parts)

    def _both(self) -> Test:
        parts = [self._single()]
        while self._take("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda seen: all(part(seen) for part in parts)

    def _single(self) -> Test:
        if self._take("not"):
            inner = self._single()
            return lambda seen: not inner(seen)
        if self._take("("):
            inner = self._either()
            if not self._take(")"):
                raise self._wrong("')'")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        value = self._value()
        kind, text, _ = self._peek()
        if kind != "op":
            return lambda seen: value(seen) > 0
        self._place += 1
        compare = OPERATORS[text]
        kind, number, _ = self._peek()
        if kind != "number":
            raise self._wrong("a number")
        self._place += 1
        limit = float(number)
        return lambda seen: compare(value(seen), limit)

    def _value(self) -> Callable[[Seen], float]:
        kind, text, _ = self._peek()
        after: Any = self._tokens[self._place + 1] if self._place + 1 < len(self._tokens) else None
        if kind == "name" and text.lower() == "age" and after is not None and after[1] == "(":
            self._place += 2
            name, attribute = self._named()
            if not self._take(")"):
                raise self._wrong("')'")
            return lambda seen: max(seen.matching(name, attribute), default=-1.0)
        name, attribute = self._named()
        return lambda seen: len(seen.matching(name, attribute))

    def _named(self) -> tuple[str, str]:
        """A label and the attribute in brackets behind it, or empty."""
        name = self._name("a label")
        attribute = ""
        if self._take("["):
            attribute = self._name("an attribute")
            if not self._take("]"):
                raise self._wrong("']'")
        return name, attribute

    def _name(self, wanted: str) -> str:
        kind, text, _ = self._peek()
        if kind not in ("name", "quoted") or (kind == "name" and text.lower() in ("and", "or", "not")):
            raise self._wrong(wanted)
        self._place += 1
        return text.strip("\"'").lower()


HINT = "write such as person>=2, car[parked] and not dog, age(person)>5"
