"""What a running job shows: a table on a terminal, a line now and then elsewhere, a summary at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gstinfer.app.running import Running, Stream

__all__ = ["Reporter", "live_table", "step_times"]

STYLES = {"failed": "red", "stalled": "yellow", "connecting": "yellow", "ended": "dim"}

BAR_WIDTH = 20
"""Characters of the bar of a stream whose end is known."""

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


def live_table(session: Running) -> Table:
    """One row per stream: state, frames, frames per second, lag, drops; a bar and the seconds left where the end is known."""
    table = Table(box=None, pad_edge=False)
    for title in ("", "", "frames", "fps", "lag", "drops", "", ""):
        table.add_column(title, justify="left" if not title else "right")
    for branch in session.branches:
        row = branch.report()
        total, fps = row["expected"], row["fps"]
        frames = f"{row['frames']}/{total}" if total else f"{row['frames']}"
        lag = "" if row["lag"] is None else f"{row['lag']:.2f} s"
        left = f"{max(0, total - row['frames']) / fps:.0f} s left" if total and fps > 0 and branch.running else ""
        drops = str(row["dropped"] + row["skipped"])
        cells = (row["name"], row["state"], frames, f"{fps:.1f}", lag, drops)
        style = STYLES.get(row["state"], "")
        bar = ProgressBar(total, min(row["frames"], total), width=BAR_WIDTH) if total else ""
        table.add_row(*(Text(str(cell), style=style) for cell in cells), bar, Text(left, style=style))
    return table


class Reporter:
    """Shows a session.

    Args:
        session: What runs.
        to_stderr: Whether the summary must keep off standard output too.
    """

    def __init__(self, session: Running, *, to_stderr: bool = False) -> None:
        self.session = session
        self.errors = Console(stderr=True, soft_wrap=True, highlight=False)
        self.out = self.errors if to_stderr else Console(soft_wrap=True, highlight=False)
        self._live: Live | None = None
        self._next_line = time.monotonic() + LINE_SECONDS
        self._said: set[tuple[str, str]] = set()

    def __enter__(self) -> Reporter:
        if self.errors.is_terminal:
            # What the elements print must not be held back or styled.
            self._live = Live(
                console=self.errors, get_renderable=lambda: live_table(self.session), refresh_per_second=4,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.tick(self.session)
        if self._live is not None:
            self._live.stop()

    def tick(self, session: Running) -> None:
        """Called while the session runs."""
        for branch in session.branches:
            for text in branch.warnings:
                self._say("warning", branch, text)
            if branch.state == "failed":
                self._say("error", branch, branch.error)
        if session.error:
            self._tell("error", "", session.error)
        if self._live is None and time.monotonic() >= self._next_line:
            self._next_line += LINE_SECONDS
            for branch in session.branches:
                row = branch.report()
                total = f" of {row['expected']}" if row["expected"] else ""
                state = "" if row["state"] in ("playing", "ended") else f", {row['state']}"
                self._line(f"{row['source']}: {row['frames']}{total} frames, {row['fps']:.1f} fps{state}")

    def _say(self, kind: str, branch: Stream, text: str) -> None:
        self._tell(kind, f"{branch.source.text}: ", text)

    def _tell(self, kind: str, where: str, text: str) -> None:
        if (where, text) not in self._said:
            self._said.add((where, text))
            self._line(f"{kind}: {where}{text}")

    def _line(self, text: str) -> None:
        # No markup: a file's name may hold square brackets. One line: a name may hold line breaks.
        self.errors.print(" ".join(text.splitlines()), markup=False)

    def summary(self) -> None:
        """Frames, fps, tracks, objects per class and time per step, of every input that gave frames."""
        shown = [row for row in self.session.report()["streams"] if row["frames"]]
        if not shown:
            return
        table = Table(box=None, pad_edge=False, show_header=len(shown) > 1)
        table.add_column("")
        for row in shown:
            table.add_column(Text(row["name"]), justify="right")
        lines: list[tuple[str, list[str]]] = [
            ("frames", [str(row["frames"]) for row in shown]),
            ("fps", [f"{row['fps']:.1f}" for row in shown]),
        ]
        if self.session.job.track != "none":
            lines.append(("tracks", [str(row["tracks"]) for row in shown]))
        total: Counter[str] = sum((Counter(row["labels"]) for row in shown), Counter())
        lines += [(label, [str(row["labels"].get(label, 0)) for row in shown]) for label, _ in total.most_common()]
        times = [step_times(row["elements"]) for row in shown]
        steps = dict.fromkeys(step for found in times for step in found)
        lines += [(step, [f"{found[step]:.2f} ms" if step in found else "" for found in times]) for step in steps]
        for name, values in lines:
            table.add_row(Text(name), *values)
        self.out.print(table)
        for path in self.session.written:
            self.out.print(f"wrote {path}", markup=False)
        sys.stdout.flush()


def step_times(stats: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Milliseconds a frame by step, from the ``stats`` of elements: every ``NAME-seconds`` over the frames they saw."""
    found = {}
    for element, values in stats.items():
        frames = values.get("frames") or 0
        for key, value in values.items():
            if frames and key.endswith("-seconds"):
                step = key.removesuffix("-seconds")
                found[step if element == "pyinfer" else f"{element.removeprefix('py')} {step}"] = 1000 * value / frames
    return found
