"""Runners by model-instance-id: elements that name the same one share it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gstinfer.errors import ConfigError
from gstinfer.model import LoadedModel
from gstinfer.runner import UNSET, After, ModelRunner, RunnerConfig

__all__ = ["release", "share"]

_shared: dict[str, tuple[ModelRunner, int]] = {}
_shared_lock = threading.Lock()


def share(
    key: str, config: RunnerConfig, load: Callable[[], LoadedModel], after: After | None = None
) -> ModelRunner:
    """The started runner of a key, made at first use; pair it with ``release``.

    Args:
        key: The model-instance-id; an empty one is never shared.
        config: Must agree with the runner that is there, as it is or was: its model may have been exchanged since.
        load: Makes and loads the model.
        after: See ``ModelRunner``; that of the first user serves all.

    Raises:
        ConfigError: The key runs something else.
    """
    if not key:
        runner = ModelRunner(load, config, after)
        runner.start()
        return runner
    with _shared_lock:
        if key in _shared:
            runner, users = _shared[key]
            if differ := ", ".join(_differences(runner, config)):
                raise ConfigError(
                    f"model-instance-id={key} is in use with other settings ({differ})",
                    hint="use the same settings in every element of one id, or another id",
                )
            _shared[key] = (runner, users + 1)
            return runner
        runner = ModelRunner(load, config, after)
        runner.start()
        _shared[key] = (runner, 1)
        return runner


def _differences(runner: ModelRunner, config: RunnerConfig) -> list[str]:
    there, here = runner.config.flat(), config.flat()
    return [
        f"{name}: {there.get(name, UNSET)} there, {here.get(name, UNSET)} here"
        for name in {**there, **here}
        if here.get(name, UNSET) not in {there.get(name, UNSET), *runner.past.get(name, ())}
    ]


def release(key: str, runner: ModelRunner) -> None:
    """Gives a runner back; the last user stops it."""
    if key:
        with _shared_lock:
            held, users = _shared.get(key, (runner, 1))
            if held is runner and users > 1:
                _shared[key] = (runner, users - 1)
                return
            if held is runner:
                _shared.pop(key, None)
    runner.stop()
