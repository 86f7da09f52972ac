"""What a check says."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Row", "fail", "ok", "warn"]


@dataclass(frozen=True)
class Row:
    """One finding.

    Attributes:
        name: What was looked at.
        status: ``"ok"``, ``"warn"`` (something may be missed) or ``"fail"`` (something does not work).
        detail: What was found.
        fix: What to do, a command where there is one; empty when all is well.
    """

    name: str
    status: str
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, detail: str) -> Row:
    """A finding in order."""
    return Row(name, "ok", detail)


def warn(name: str, detail: str, fix: str = "") -> Row:
    """A finding that need not matter."""
    return Row(name, "warn", detail, fix)


def fail(name: str, detail: str, fix: str) -> Row:
    """A finding that keeps something from working."""
    return Row(name, "fail", detail, fix)
