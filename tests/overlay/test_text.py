"""Words in any script, and what happens where fonts are missing."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.overlay import text
from gstinfer.overlay.text import Lettering


@pytest.fixture
def lettering() -> Lettering:
    return Lettering("DejaVuSans.ttf")


def test_words_are_as_high_as_a_line_and_grow_with_their_length(lettering: Lettering) -> None:
    short, long = lettering.mask("cat", 16), lettering.mask("cat and dog", 16)
    assert short.shape[0] == long.shape[0] == lettering.height(16) and long.shape[1] > 2 * short.shape[1]
    assert short.max() > 200 and short.dtype == np.uint8


def test_accents_and_descenders_are_not_cut(lettering: Lettering) -> None:
    """As much ink as on a roomy sheet."""
    from PIL import Image, ImageDraw, ImageFont

    sheet = Image.new("L", (200, 100))
    ImageDraw.Draw(sheet).text((0, 50), "Ägypten", 255, font=ImageFont.truetype("DejaVuSans.ttf", 20), anchor="ls")
    assert np.asarray(sheet).sum() == lettering.mask("Ägypten", 20).astype(int).sum() > 0


def test_words_are_set_once(lettering: Lettering) -> None:
    assert lettering.mask("cat", 16) is lettering.mask("cat", 16)


def test_control_characters_are_spaces(lettering: Lettering) -> None:
    assert (lettering.mask("a\nb\tc", 16) == lettering.mask("a b c", 16)).all()
    assert lettering.mask("", 16).shape[0] == lettering.height(16)


def test_a_lone_surrogate_is_survived(lettering: Lettering) -> None:
    assert (lettering.mask("a\ud800b", 16) == lettering.mask("a b", 16)).all()


def test_text_is_wrapped_at_words_and_cut_with_an_ellipsis(lettering: Lettering) -> None:
    words = "one two three four five six seven eight nine ten"
    lines = lettering.wrap(words, 16, 120, 20)
    assert " ".join(lines) == words and len(lines) > 2
    assert all(lettering.mask(line, 16).shape[1] <= 121 for line in lines)
    cut = lettering.wrap(words, 16, 120, 2)
    assert len(cut) == 2 and cut[1].endswith("…") and lettering.mask(cut[1], 16).shape[1] <= 121
    assert lettering.wrap("a\n\nb", 16, 120, 5) == ("a", "b")
    assert lettering.wrap("", 16, 120, 5) == ()


def test_text_without_spaces_is_wrapped_between_ideographs(lettering: Lettering) -> None:
    lines = lettering.wrap("两个人走在街上，一辆自行车经过。", 16, 100, 20)
    assert len(lines) > 1 and "".join(lines) == "两个人走在街上，一辆自行车经过。"
    assert not any(line.startswith(("，", "。")) for line in lines)


def test_another_font_serves_what_the_main_one_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mono font lacks a letter that the sans font has; fontconfig is asked for it once."""
    asked: list[str] = []
    sans = text._find("DejaVuSans.ttf")
    assert sans is not None

    def match(pattern: str) -> tuple[str, str, int]:
        asked.append(pattern)
        return ("DejaVu Sans", *sans)

    lettering = Lettering("DejaVuSansMono.ttf")
    lacking = next(c for c in map(chr, range(0x0400, 0x1F00)) if not lettering._has(0, c) and _sans_has(c))
    monkeypatch.setattr(text, "_fontconfig", match)
    mask = lettering.mask(f"a{lacking}{lacking}b", 20)
    assert asked == [f":charset={ord(lacking):x}"]
    alone = Lettering("DejaVuSans.ttf").mask(lacking, 20)
    assert mask.shape[0] == lettering.height(20) and mask.any()
    assert alone.shape[1] * 2 + lettering.mask("a", 20).shape[1] * 2 == pytest.approx(mask.shape[1], abs=3)


def _sans_has(char: str) -> bool:
    import unicodedata

    return unicodedata.category(char)[0] == "L" and Lettering("DejaVuSans.ttf")._has(0, char)


def test_a_character_no_font_has_is_an_empty_box_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(text, "_fontconfig", lambda pattern: None)
    lettering = Lettering("DejaVuSans.ttf")
    with caplog.at_level(logging.WARNING):
        assert lettering.mask("漢", 20).any()
        lettering.mask("漢漢", 20)
    assert [record.getMessage() for record in caplog.records] == [
        "no font has '漢' (U+6F22); an empty box stands for it"
    ]


def test_fontconfig_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(text, "_fontconfig", lambda pattern: asked.append(pattern))
    lettering = Lettering("DejaVuSans.ttf")
    lettering.mask("".join(map(chr, range(0x4E00, 0x4E00 + 200))), 12)
    assert len(asked) == text.LOOKUPS


def test_without_any_font_the_one_of_pillow_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "USUAL", ("no-such-font.ttf",))
    monkeypatch.setattr(text, "_fontconfig", lambda pattern: None)
    lettering = Lettering()
    assert lettering.mask("cat", 16).max() > 200 and lettering.height(16) >= 12


def test_a_font_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="No Such Family"):
        Lettering("No Such Family")


def test_without_fontconfig_nothing_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert text._fontconfig("sans") is None
