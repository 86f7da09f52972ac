"""What a running job shows: a progress bar on a terminal, a line now and then elsewhere, a summary at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gstinfer.app.branch import Branch
    from gstinfer.app.session import Session

__all__ = ["Reporter", "step_times"]

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


class _Rate(ProgressColumn):
    """Frames, frames per second, and the seconds left where the end is known."""

    def render(self, task: Any) -> Text:
        branch: Branch = task.fields["branch"]
        total = branch.expected
        frames, fps = branch.counts.frames, branch.counts.fps
        text = f"{frames}/{total}" if total else f"{frames}"
        text += f" frames  {fps:.1f} fps"
        if total and fps > 0:
            text += f"  {max(0, total - frames) / fps:.0f} s left"
        return Text(text)


class Reporter:
    """Shows a session.

    Args:
        session: What runs.
        to_stderr: Whether the summary must keep off standard output too.
    """

    def __init__(self, session: Session, *, to_stderr: bool = False) -> None:
        self.session = session
        self.errors = Console(stderr=True, soft_wrap=True, highlight=False)
        self.out = self.errors if to_stderr else Console(soft_wrap=True, highlight=False)
        self._progress: Progress | None = None
        self._tasks: dict[TaskID, Branch] = {}
        self._next_line = time.monotonic() + LINE_SECONDS
        self._said: set[tuple[str, str]] = set()

    def __enter__(self) -> Reporter:
        if self.errors.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), _Rate(), console=self.errors
            )
            for branch in self.session.branches:
                task = self._progress.add_task(branch.source.stream_id, total=None, branch=branch)
                self._tasks[task] = branch
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.tick(self.session)
        if self._progress is not None:
            self._progress.stop()

    def tick(self, session: Session) -> None:
        """Called while the session runs."""
        for branch in session.branches:
            for text in branch.warnings:
                self._say("warning", branch, text)
            if branch.state == "failed":
                self._say("error", branch, branch.error)
        if self._progress is not None:
            for task, branch in self._tasks.items():
                self._progress.update(task, total=branch.expected, completed=branch.counts.frames)
        elif time.monotonic() >= self._next_line:
            self._next_line += LINE_SECONDS
            for branch in session.branches:
                total = f" of {branch.expected}" if branch.expected else ""
                counts = branch.counts
                self._line(f"{branch.source.text}: {counts.frames}{total} frames, {counts.fps:.1f} fps")

    def _say(self, kind: str, branch: Branch, text: str) -> None:
        if (branch.source.text, text) not in self._said:
            self._said.add((branch.source.text, text))
            self._line(f"{kind}: {branch.source.text}: {text}")

    def _line(self, text: str) -> None:
        # No markup: a file's name may hold square brackets. One line: a name may hold line breaks.
        self.errors.print(" ".join(text.splitlines()), markup=False)

    def summary(self) -> None:
        """Frames, fps, tracks, objects per class and time per step, of every input that gave frames."""
        shown = [branch for branch in self.session.branches if branch.counts.frames]
        if not shown:
            return
        table = Table(box=None, pad_edge=False, show_header=len(shown) > 1)
        table.add_column("")
        for branch in shown:
            table.add_column(Text(branch.source.stream_id), justify="right")
        rows: list[tuple[str, list[str]]] = [
            ("frames", [str(b.counts.frames) for b in shown]),
            ("fps", [f"{b.counts.fps:.1f}" for b in shown]),
        ]
        if self.session.job.track != "none":
            rows.append(("tracks", [str(len(b.counts.tracks)) for b in shown]))
        total: Counter[str] = sum((b.counts.objects for b in shown), Counter())
        rows += [(label, [str(b.counts.objects[label]) for b in shown]) for label, _ in total.most_common()]
        times = [step_times(b.stats) for b in shown]
        steps = dict.fromkeys(step for found in times for step in found)
        rows += [(step, [f"{found[step]:.2f} ms" if step in found else "" for found in times]) for step in steps]
        for name, values in rows:
            table.add_row(Text(name), *values)
        self.out.print(table)
        for branch in shown:
            if branch.written:
                self.out.print(f"wrote {branch.output}", markup=False)
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
