"""Whether there is an NVIDIA GPU, asked of the driver itself: no CUDA library has to be installed."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from gstinfer.errors import ConfigError
from gstinfer.image import Device

__all__ = ["device_count", "require"]


@lru_cache(maxsize=1)
def device_count() -> int:
    """Number of GPUs that the driver shows; 0 without a driver (``cuInit``, ``cuDeviceGetCount``)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def require(device: Device) -> None:
    """Refuses a GPU that is not there, so that nothing runs on the CPU in silence.

    Raises:
        ConfigError: The device is a GPU and this machine has none of that number.
    """
    if not device.is_cuda or device.index < device_count():
        return
    count = device_count()
    found = "no NVIDIA GPU" if not count else f"{count} NVIDIA GPU{'s' if count > 1 else ''} (cuda:0 to cuda:{count - 1})"
    raise ConfigError(f"device={device} was asked for, this machine has {found}", hint="use device=cpu, or gstinfer doctor")
