"""All checks in the order in which a reader should see them, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gstinfer.doctor import deepstream, hardware, libraries, loader, plugins
from gstinfer.doctor.rows import Row, fail

__all__ = ["CHECKS", "run_checks"]

Check = Callable[[], Iterable[Row]]

CHECKS: tuple[Check, ...] = (
    loader.check_tools,
    loader.check_conda,
    loader.check_loader,
    loader.check_libpython,
    loader.check_registry,
    loader.check_plugin_file,
    loader.check_shells,
    plugins.check_plugin_files,
    libraries.check_plugins,
    libraries.check_typelibs,
    libraries.check_runtimes,
    libraries.check_packages,
    libraries.check_entry_points,
    hardware.check_cuda,
    hardware.check_deepstream,
    deepstream.check_layout,
    deepstream.check_bindings,
)


def run_checks(checks: Iterable[Check] = CHECKS) -> Iterator[Row]:
    """The rows of every check. One that raises becomes a row itself, and the others go on."""
    for check in checks:
        try:
            yield from check()
        except Exception as error:
            name = check.__name__.removeprefix("check_").replace("_", " ")
            hint = getattr(error, "hint", "") or "see the other rows"
            message = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            yield fail(name, f"it could not be checked: {message}", hint)
