"""What every runtime offers: named arrays in, named arrays out. One file per runtime beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gstinfer.heads.base import NetworkInfo

__all__ = ["Runtime"]


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
