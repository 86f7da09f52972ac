"""Processor time by kind of thread: ``filesrc:src`` decodes, ``queue:src`` runs elements, others are Python's and CUDA's."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def thread_seconds() -> Counter[str]:
    """Seconds so far of this process's threads, by name without numbers."""
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except OSError:
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        found[re.sub(r"\d+", "", name)] += (int(fields[11]) + int(fields[12])) / TICKS
    return found


def shown(seconds: Counter[str], frames: int, most: int = 5) -> str:
    """The busiest kinds, in microseconds a frame."""
    return ", ".join(f"{name} {value / max(1, frames) * 1e6:.0f}" for name, value in seconds.most_common(most))
