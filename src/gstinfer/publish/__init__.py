"""Publishers carry messages to a target named by a URL. One file each; found by the URL's scheme."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Publisher"]


class Publisher(Protocol):
    """One target. ``publish`` is called on a worker thread, never on the streaming thread."""

    def open(self) -> None:
        """Connects or creates.

        Raises:
            PublishError: The target cannot be used.
        """

    def publish(self, message: dict[str, Any]) -> None:
        """Sends one ``gstinfer/1`` message whole.

        Raises:
            PublishError: It could not be sent.
        """

    def close(self) -> None:
        """Sends what is left and lets go; never raises."""
