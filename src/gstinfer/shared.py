"""Runners by model-instance-id: elements that name the same one share it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gstinfer.errors import ConfigError
from gstinfer.model import LoadedModel
from gstinfer.runner import After, ModelRunner, RunnerConfig

__all__ = ["release", "share"]

_shared: dict[str, tuple[ModelRunner, int]] = {}
_shared_lock = threading.Lock()


def share(
    key: str, config: RunnerConfig, load: Callable[[], LoadedModel], after: After | None = None
) -> ModelRunner:
    """The started runner of a key, made at first use; pair it with ``release``.

    Args:
        key: The model-instance-id; an empty one is never shared.
        config: Must agree with the runner that is there.
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
            if runner.config != config:
                was, now = vars(runner.config), vars(config)
                differ = ", ".join(f"{k}: {was[k]} there, {now[k]} here" for k in was if was[k] != now[k])
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
