"""Words as coverage masks, in any script for which the machine has a font, kept so that they are set only once."""

from __future__ import annotations

import logging
import subprocess
import unicodedata
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError

__all__ = ["Lettering"]

log = logging.getLogger(__name__)

USUAL = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf")
"""Font files looked for when none is named."""

LOOKUPS = 64
"""Most characters that fontconfig is asked for; further unknown ones show as the font's empty box."""

PROBE_SIZE = 24
NO_GLYPH = "\U0010ffff"


class Lettering:
    """Sets words in one font, with other fonts for the characters it lacks.

    Args:
        font: A font file, or a family name; empty for the first usual sans-serif font there is.

    Raises:
        ConfigError: No such font.
    """

    def __init__(self, font: str = "") -> None:
        self._faces: list[tuple[str, int] | None] = [_find(font)]
        self._lookups = 0
        self._face_of_char: dict[str, int] = {}
        self._sized: dict[tuple[int, int], Any] = {}
        self._empty: dict[int, bytes] = {}
        self.mask = lru_cache(maxsize=2048)(self._mask)
        self.wrap = lru_cache(maxsize=64)(self._wrap)

    def _font(self, face: int, size: int) -> Any:
        from PIL import ImageFont

        font = self._sized.get((face, size))
        if font is None:
            where = self._faces[face]
            font = ImageFont.load_default(size) if where is None else ImageFont.truetype(where[0], size, index=where[1])
            self._sized[face, size] = font
        return font

    def height(self, size: int) -> int:
        """Pixels of a line of text, accents and descenders included."""
        ascent, descent = self._font(0, size).getmetrics()
        return int(ascent + descent)

    def _mask(self, text: str, size: int) -> NDArray[np.uint8]:
        """Coverage ``[height(size), w]`` of a line of text; control characters become spaces."""
        from PIL import Image, ImageDraw

        runs = self._runs(_printable(text))
        widths = [int(np.ceil(self._font(face, size).getlength(run))) for face, run in runs]
        picture = Image.new("L", (max(1, sum(widths)), self.height(size)))
        draw = ImageDraw.Draw(picture)
        x, base = 0, self._font(0, size).getmetrics()[0]
        for (face, run), width in zip(runs, widths):
            draw.text((x, base), run, 255, font=self._font(face, size), anchor="ls")
            x += width
        return np.asarray(picture)

    def _wrap(self, text: str, size: int, width: int, lines: int) -> tuple[str, ...]:
        """A text in at most so many lines of at most ``width`` pixels; an ellipsis at its end if more follows."""
        found: list[str] = []
        for paragraph in text.splitlines():
            line = ""
            for word in _words(_printable(paragraph)):
                if line and self._width(line + word.rstrip(), size) > width:
                    found.append(line.rstrip())
                    line = ""
                    if len(found) > lines:
                        break
                line += word
            if line.strip():
                found.append(line.rstrip())
            if len(found) > lines:
                break
        if len(found) > lines:
            last = found[lines - 1]
            while last and self._width(last + "…", size) > width:
                last = last[:-1]
            found = [*found[: lines - 1], last.rstrip() + "…"]
        return tuple(found)

    def _width(self, text: str, size: int) -> float:
        return sum(float(self._font(face, size).getlength(run)) for face, run in self._runs(text))

    def _runs(self, text: str) -> list[tuple[int, str]]:
        """The text cut where the font changes."""
        runs: list[tuple[int, str]] = []
        for char in text:
            face = self._face(char, runs[-1][0] if runs else 0)
            if runs and runs[-1][0] == face:
                runs[-1] = (face, runs[-1][1] + char)
            else:
                runs.append((face, char))
        return runs

    def _face(self, char: str, current: int) -> int:
        """The number of the first font that has a character; marks and spaces stay with the one before."""
        if char.isspace() or unicodedata.category(char)[0] in "MC":
            return current
        face = self._face_of_char.get(char)
        if face is None:
            face = next((f for f in range(len(self._faces)) if self._has(f, char)), None)
            if face is None:
                face = self._look_up(char)
            if len(self._face_of_char) < 100_000:
                self._face_of_char[char] = face
        return face

    def _has(self, face: int, char: str) -> bool:
        font = self._font(face, PROBE_SIZE)
        if face not in self._empty:
            self._empty[face] = bytes(font.getmask(NO_GLYPH))
        return bytes(font.getmask(char)) != self._empty[face]

    def _look_up(self, char: str) -> int:
        """A further font that fontconfig knows to have the character; the main font where there is none."""
        if self._lookups >= LOOKUPS:
            return 0
        self._lookups += 1
        found = _fontconfig(f":charset={ord(char):x}")
        if found is not None and found[1:] not in self._faces:
            self._faces.append(found[1:])
            try:
                if self._has(len(self._faces) - 1, char):
                    return len(self._faces) - 1
            except OSError as error:
                log.warning("the font %s cannot be used: %s", found[1], error)
            self._faces.pop()
            self._empty.pop(len(self._faces), None)
            self._sized.pop((len(self._faces), PROBE_SIZE), None)
        log.warning("no font has %r (U+%04X); an empty box stands for it", char, ord(char))
        return 0


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text)


def _words(text: str) -> list[str]:
    """Pieces between which a line may break: after a space, and around each ideograph or kana."""
    pieces: list[str] = []
    glue = False
    for char in text:
        wide = unicodedata.east_asian_width(char) in "WF"
        if (pieces and glue and not wide) or (pieces and unicodedata.category(char) in ("Po", "Pe", "Pf")):
            pieces[-1] += char
        else:
            pieces.append(char)
        glue = not (wide or char.isspace())
    return pieces


def _find(font: str) -> tuple[str, int] | None:
    """File and index of a font; None for Pillow's own."""
    from PIL import ImageFont

    for name in (font,) if font else USUAL:
        try:
            return str(ImageFont.truetype(name, PROBE_SIZE).path), 0
        except OSError:
            pass
    found = _fontconfig(font or "sans")
    if found is None or (font and font.lower() not in found[0].lower()):
        if font:
            raise ConfigError(
                f"font={font!r} is neither a font file nor a family that fontconfig knows",
                hint="give the path of a .ttf or .otf file, or leave it empty",
            )
        return None
    return found[1:]


def _fontconfig(pattern: str) -> tuple[str, str, int] | None:
    """Family, file and index of what fontconfig matches to a pattern; None without fontconfig."""
    command = ["fc-match", "-f", "%{family}\n%{file}\n%{index}", "--", pattern]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    family, file, index = [*done.stdout.split("\n"), "", "", ""][:3]
    # A variable font's instance number lies above the lower 16 bits.
    return (family, file, int(index or 0) & 0xFFFF) if file else None
