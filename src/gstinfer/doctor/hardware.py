"""Checks of NVIDIA's driver, of GStreamer's CUDA elements and of DeepStream; all of them optional."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

from gstinfer.doctor import machine
from gstinfer.doctor.rows import Row, fail, ok, warn

__all__ = ["check_cuda", "check_deepstream"]

DEEPSTREAM = Path("/opt/nvidia/deepstream")
LIBRARIES = ("libnvds_meta.so", "libnvdsgst_meta.so", "libnvbufsurface.so", "libnvbufsurftransform.so")


def check_cuda() -> Iterator[Row]:
    """The driver, its devices, and GStreamer's elements that decode on them."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield ok("CUDA", "no NVIDIA driver; models run on the CPU")
        return
    code = cuda.cuInit(0)
    if code != 0:
        yield fail("CUDA", f"the driver is installed but does not start (CUDA error {code})", "nvidia-smi says more")
        return
    driver, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(driver))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for index in range(count.value):
        device, text = ctypes.c_int(), ctypes.create_string_buffer(128)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(text, len(text), device)
        names.append(f"cuda:{index} {text.value.decode(errors='replace')}")
    version = f"{driver.value // 1000}.{driver.value % 1000 // 10}"
    if not names:
        yield warn("CUDA", f"driver for CUDA {version} without a device", "nvidia-smi says more")
        return
    yield ok("CUDA", f"driver for CUDA {version}: {', '.join(names)}")
    if machine.gst_inspect("--exists", "nvh264dec").returncode == 0:
        yield ok("CUDA decoding", "nvh264dec is there")
    else:
        yield warn(
            "CUDA decoding",
            "GStreamer finds no nvh264dec, so video is decoded on the CPU",
            machine.apt_line("gstreamer1.0-plugins-bad") + "; the driver must bring libnvcuvid.so.1",
        )


def check_deepstream(root: Path = DEEPSTREAM) -> Iterator[Row]:
    """DeepStream's version and the libraries that hold its metadata and surfaces.

    Args:
        root: Where its versions are installed.
    """
    folders = sorted({f.resolve() for f in root.glob("deepstream*") if f.is_dir()}) if root.is_dir() else []
    if not folders:
        yield ok("DeepStream", "not installed; not needed")
        return
    for folder in folders:
        version = folder / "version"
        text = version.read_text(errors="replace") if version.is_file() else ""
        number = re.search(r"\d+\.\d+(?:\.\d+)?", text)
        named = f"DeepStream {number[0] if number else 'of unknown version'} in {folder}"
        missing, broken = [], []
        for name in LIBRARIES:
            file = folder / "lib" / name
            if not file.exists():
                missing.append(name)
                continue
            try:
                ctypes.CDLL(str(file))
            except OSError as error:
                broken.append(f"{name} ({error})")
        if missing or broken:
            said = "; ".join(filter(None, (f"missing {', '.join(missing)}" if missing else "", *broken)))
            yield fail(
                "DeepStream",
                f"{named}: {said}",
                f"reinstall it, or add {folder}/lib to /etc/ld.so.conf.d and run ldconfig",
            )
        else:
            yield ok("DeepStream", named)
