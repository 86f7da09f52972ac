"""What every runtime offers: named arrays in, named arrays out. One file per runtime beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from gstinfer.heads.base import NetworkInfo

__all__ = ["Runtime", "in_parts"]


class Runtime(Protocol):
    """A network file opened by some library. ``models.network.NetworkModel`` drives it."""

    info: NetworkInfo
    """Known once it is opened."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch.

        Args:
            feeds: Arrays by input name, batch first, in the inputs' own types.

        Returns:
            Arrays by output name, valid until the next run.
        """

    def close(self) -> None:
        """Lets go of the file and its memory."""


def in_parts(
    run: Callable[[Mapping[str, Any]], dict[str, Any]], feeds: Mapping[str, Any], limit: int | None
) -> dict[str, Any]:
    """Runs a batch that is larger than a network takes at once in parts of at most ``limit`` rows."""
    count = max(len(value) for value in feeds.values())
    if limit is None or count <= limit:
        return run(feeds)
    parts = [
        run({name: value[start : start + limit] for name, value in feeds.items()}) for start in range(0, count, limit)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
