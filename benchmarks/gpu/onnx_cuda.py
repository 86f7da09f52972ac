"""ONNX Runtime's CUDA provider with pictures and tensors in GPU memory, against its CPU provider; one line a check.

    python benchmarks/gpu/onnx_cuda.py --video FILE.mp4 [--device cuda:0] [--seconds 80] [--only NAME,...] [MODEL[=VIDEO] ...]

Models are specs of pyinfer, nanodet-coco unless some are named; a video is H.264 in MP4. It goes on after a check that fails,
with its traceback, and begins none when its time is over. ``--device cpu`` runs the same code without a GPU, on avdec_h264.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import gstinfer
from gstinfer.geometry import ImageTransform
from gstinfer.image import Device, Image
from gstinfer.models import network as networks
from gstinfer.models import onnx as runtimes
from gstinfer.parity.matching import Agreement
from gstinfer.preprocess import prepare, reference
from gstinfer.preprocess.cuda import gpu_torch

# isort: split
# GStreamer comes behind gstinfer, see gstinfer.unwinder.
from common import Gst, begin, downloaded, passes

DIRECT, STREAMS = 60, 4
"""Frames that are compared without a pipeline; streams that share a model."""
LOST = 0.03
"""Part of the objects that one side may have alone: scores at the threshold, boxes at that of suppression."""

CHILD = """
import sys
from gstinfer.image import Device
from gstinfer.models import onnx
if sys.argv[2] == "without":
    onnx.load_libraries = lambda: None
try:
    runtime = onnx.OnnxRuntime(sys.argv[1], Device("cuda"))
    import numpy as np
    picture = runtime.info.inputs[0]
    runtime.run({picture.name: np.zeros([side or 1 for side in picture.shape], picture.dtype)})
    print(runtime._session.get_providers()[0], "runs, torch imported:", "torch" in sys.modules)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def compare(there: Sequence[Any], here: Sequence[Any]) -> str:
    """What differs between the objects of two runs, frame by frame.

    Raises:
        AssertionError: Frames or objects are missing, or differ by more than rounding explains.
    """
    found, equal = Agreement(), 0
    for ours, theirs in zip(there, here, strict=True):
        found.add([ours], [theirs])
        equal += np.array_equal(ours.xyxy, theirs.xyxy) and np.array_equal(ours.confidence, theirs.confidence)
    text = (
        f"{found.frames} frames, {equal} equal to the bit; {found.ours} and {found.theirs} objects, alone on one side "
        f"{found.alone}; IoU {min(found.iou, default=0):.4f} at least, {found.mean_iou:.5f} mean; "
        f"scores within {max(found.score, default=1):.5f}, {found.mean_score:.6f} mean"
    )
    assert found.theirs and found.alone <= max(1, LOST * found.theirs) and max(found.score) < 0.1, text
    return text


@contextmanager
def provider_options(**more: str) -> Iterator[None]:
    """Sessions opened inside get these options of the CUDA provider too."""
    original = runtimes._providers

    def providers(*arguments: Any) -> Any:
        return [(n, {**o, **more} if n.startswith("CUDA") else o) for n, o in original(*arguments)]

    runtimes._providers = providers  # type: ignore[assignment]
    try:
        yield
    finally:
        runtimes._providers = original


EXACT = partial(provider_options, use_tf32="0")


@contextmanager
def by_reference() -> Iterator[None]:
    """Pictures in host memory are prepared as the GPU's kernel does it: OpenCV and Pillow round otherwise, by 2 of 255, which
    moves objects at the threshold."""
    original = networks.prepare

    def prepared(images: Sequence[Image], spec: Any, *, transforms: Any = None, out: Any = None) -> tuple[Any, Any]:
        if images[0].device.is_cuda:
            return original(images, spec, transforms=transforms, out=out)
        plans = transforms or [ImageTransform.plan(image.size, spec.size, spec.resize) for image in images]
        found = np.stack([reference.prepare(image, spec, plan) for image, plan in zip(images, plans)])
        if out is not None:
            out[: len(found)] = found
            found = out
        return found, plans

    networks.prepare = prepared  # type: ignore[assignment]
    try:
        yield
    finally:
        networks.prepare = original


class Checks:
    """The checks of one model on one video; each raises where something is wrong, and returns what it saw."""

    def __init__(self, spec: str, video: str, device: str) -> None:
        self.spec, self.video, self.device = spec, video, Device.parse(device)
        self.torch: Any = None
        if self.device.is_cuda:
            self.torch = gpu_torch()

    # What the checks are made of

    @property
    def source(self) -> str:
        decoder = "nvh264dec" if self.device.is_cuda else "avdec_h264 ! videoconvert ! video/x-raw,format=NV12"
        return f"filesrc location={self.video} ! qtdemux ! h264parse ! {decoder}"

    @cached_property
    def frames(self) -> list[Image]:
        """The first frames as NV12 in host memory."""
        return list(downloaded(self.source + " ! cudadownload" * self.device.is_cuda, DIRECT))

    def there(self, array: np.ndarray) -> Any:
        """An array as a tensor on the device."""
        return self.torch.from_numpy(array).to(str(self.device)) if self.torch else array

    def pictures(self) -> list[Image]:
        """The frames in the device's memory."""
        return [
            Image("NV12", tuple(map(self.there, f.planes)), f.width, f.height, f.color, self.device)
            for f in self.frames
        ]

    def load(self, device: str = "") -> Any:
        return gstinfer.as_model(self.spec, device=device or str(self.device))

    @cached_property
    def ours(self) -> Any:
        return self.load()

    @cached_property
    def exact(self) -> Any:
        """As the CPU computes; by default convolutions are in TF32, whose results differ from the third digit on."""
        with EXACT():
            return self.load()

    def wait(self) -> None:
        if self.torch:
            self.torch.cuda.synchronize()

    def batch(self, model: Any, count: int) -> dict[str, Any]:
        """Frames as the network's input on the device."""
        info, spec = model.parts[0], model.preprocessing
        images = (self.pictures() * (count // DIRECT + 1))[:count]
        return {info.inputs[0].name: prepare(images, spec)[0]}

    def piped(self, device: str, streams: int = 1, more: str = "") -> tuple[list[list[Any]], str]:
        """Objects of every frame by stream, and pyinfer's caps."""
        down = "cudadownload ! " if self.device.is_cuda and device == "cpu" else ""
        more = f"model={self.spec} device={device} {more}"
        made = Gst.parse_launch(
            " ".join(f"{self.source} ! {down}pyinfer name=infer{i} {more} ! fakesink sync=false" for i in range(streams))
        )
        found: list[list[Any]] = [[] for _ in range(streams)]

        def seen(pad: Any, info: Any, number: int) -> Any:
            found[number].append(gstinfer.read(info.get_buffer()).detections)
            return Gst.PadProbeReturn.OK

        for number in range(streams):
            pad = made.get_by_name(f"infer{number}").get_static_pad("src")
            pad.add_probe(Gst.PadProbeType.BUFFER, seen, number)
        began = time.perf_counter()
        made.set_state(Gst.State.PLAYING)
        message = made.get_bus().timed_pop_filtered(60 * Gst.SECOND, Gst.MessageType.ERROR | Gst.MessageType.EOS)
        seconds = time.perf_counter() - began
        caps = made.get_by_name("infer0").get_static_pad("sink").get_current_caps()
        made.set_state(Gst.State.NULL)
        assert message is not None and message.type == Gst.MessageType.EOS, message and message.parse_error()
        memory = caps.get_features(0).to_string() if caps else "no caps"
        return found, f"{memory}, {sum(map(len, found)) / seconds:.0f} fps with loading"

    # The checks

    def provider(self) -> str:
        """The provider that is in use, nodes by provider, and which CUDA libraries the process has."""
        began = time.perf_counter()
        runtime = self.ours.model.parts[2]
        seconds, used = time.perf_counter() - began, runtime._session.get_providers()
        assert used[0] == runtimes.PROVIDERS[self.device.kind], used
        maps = Path("/proc/self/maps").read_text()
        paths = sorted(set(re.findall(r"\S+/lib(?:cublasLt|cudart|cudnn|cufft)\.so\S*", maps)))
        return (
            f"{used}; loaded in {seconds:.2f} s; {self.nodes(runtime.path)}; {' '.join(paths) or 'no CUDA libraries'}"
        )

    def nodes(self, path: Path) -> str:
        """Nodes by provider, where this ONNX Runtime tells."""
        ort = runtimes._onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        providers = runtimes._providers(ort, self.device, "auto")
        session = ort.InferenceSession(str(path), options, providers=providers)
        if not hasattr(session, "get_provider_graph_assignment_info"):
            return "nodes are not told"
        count: Counter[str] = Counter()
        for part in session.get_provider_graph_assignment_info():
            count[part.ep_name] += len(part.get_nodes())
        return f"nodes: {dict(count)}"

    def libraries(self) -> str:
        """Processes of their own, which do not import torch, with the libraries of Python packages and without: never the CPU
        in silence."""
        path, ways = str(self.load("cpu").model.parts[2].path), ("with", "without")
        pipe = subprocess.PIPE
        children = [subprocess.Popen([sys.executable, "-c", CHILD, path, way], stdout=pipe, text=True) for way in ways]
        found, without = (child.communicate(timeout=60)[0].strip() for child in children)
        assert found.startswith("CUDA"), found
        assert without.startswith(("CUDA", "ModelLoadError")), without
        return f"found by load_libraries: {found}; without it: {without}"

    def raw(self) -> str:
        """Outputs for the same input, both ways into the provider and the CPU's; without TF32 too."""
        saw = []
        for name, more in (("default", {}), ("without TF32", {"use_tf32": "0"})):
            with provider_options(**more):
                runtime = (model := self.load().model).parts[2]
            feeds = self.batch(model, model.max_batch or 2)
            host = {k: v.cpu().numpy() if self.torch else v for k, v in feeds.items()}
            want = gstinfer.as_model(self.spec, device="cpu").model.parts[2].run(host)
            for way, got in (("bound", runtime.run(feeds)), ("from host memory", runtime.run(host))):
                off = max(float(np.abs(got[k] - want[k]).max() / np.ptp(want[k])) for k in want)
                assert off < 0.05, (name, way, off)
                saw.append(f"{name}, {way}: {off:.2e}")
        return "largest difference as a part of an output's range: " + "; ".join(saw)

    def direct(self) -> str:
        """Pictures in the device's memory, one by one and in fives, against the same in host memory by the CPU."""
        theirs, pictures = self.load("cpu"), self.pictures()
        with by_reference():
            want = [theirs.predict([frame])[0] for frame in self.frames]
            single = [self.exact.predict([picture])[0] for picture in pictures]
            fives = [found for at in range(0, DIRECT, 5) for found in self.exact.predict(pictures[at : at + 5])]
        return f"{compare(single, want)}; in fives: {compare(fives, want)}"

    def copies(self) -> str:
        """Bytes copied between host and device for one picture."""
        if not self.torch:
            return "no GPU, no copies"
        picture, activities = self.pictures()[0], self.torch.profiler.ProfilerActivity
        self.wait()
        with self.torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profile:
            self.ours.predict([picture])
            self.wait()
        with tempfile.TemporaryDirectory() as folder:
            profile.export_chrome_trace(f"{folder}/trace.json")
            events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
        moved = [(e["name"], e["args"].get("bytes", 0)) for e in events if "memcpy" in str(e.get("cat", ""))]
        up, down = (sum(size for name, size in moved if way in name) for way in ("HtoD", "DtoH"))
        inputs = int(np.prod(self.ours.model.preprocessing.input_shape(1))) * 4
        assert up < inputs, f"{up} bytes up, an input has {inputs}"
        return f"a picture takes {up} bytes to the device (its input has {inputs}) and {down} back"

    def pipeline(self) -> str:
        """Decoded and inferred in the device's memory against downloaded frames and the CPU."""
        with by_reference():
            with EXACT():
                (ours,), where = self.piped(str(self.device))
            (theirs,), other = self.piped("cpu")
        assert not self.device.is_cuda or "CUDAMemory" in where, where
        return f"{compare(ours, theirs)}; {where} and {other}"

    def order(self) -> str:
        """Inputs that are late on their stream, and streams that share batches with frames in flight, beside a busy GPU."""
        pictures, text = self.pictures(), "no late inputs"
        if self.torch:
            with EXACT():
                model = self.load()
            want, got = [model.predict([p])[0] for p in pictures], []
            for picture in pictures:
                # The preprocessing kernel stands behind some 5 ms of nothing.
                self.torch.cuda._sleep(10_000_000)
                got.append(model.predict([picture])[0])
            text = f"late inputs: {compare(got, want)}"
        with self.busy(), EXACT():
            (alone,), _ = self.piped(str(self.device))
            found, where = self.piped(str(self.device), STREAMS, "frames-in-flight=8")
        together = compare([frame for stream in found for frame in stream], alone * STREAMS)
        return f"{text}; {STREAMS} streams, 8 frames in flight ({where}), each against one alone: {together}"

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Other work on the GPU, on a stream of its own."""
        over = threading.Event()

        def work() -> None:
            with self.torch.cuda.stream(self.torch.cuda.Stream()):
                a = self.torch.ones(2048, 2048, device=str(self.device))
                while not over.is_set():
                    for _ in range(20):
                        a @ a
                    self.torch.cuda.current_stream().synchronize()

        thread = threading.Thread(target=work if self.torch else over.wait)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def speed(self) -> str:
        """Frames a second by batch size, bound and from host memory; all with preprocessing and decoding; memory."""
        before, model, saw = self.memory(), self.load(), []
        runtime = model.model.parts[2]
        for size in [model.model.max_batch] if model.model.max_batch else [1, 4, 8, 16, 32]:
            feeds = self.batch(model.model, size)
            host = {k: v.cpu().numpy() if self.torch else v for k, v in feeds.items()}
            pictures = (self.pictures() * 2)[:size]
            bound, hosted, whole = (
                rate(f, a, size) for f, a in ((runtime.run, feeds), (runtime.run, host), (model.predict, pictures))
            )
            saw.append(f"batch {size}: bound {bound:.0f}, from host {hosted:.0f}, predict() {whole:.0f}")
        return f"{'; '.join(saw)} fps; GPU memory {self.memory() - before:.0f} MiB"

    def sizes(self) -> str:
        """What another batch size costs: the first run of each, sizes that take turns, and what pyinfer makes of that."""
        if self.ours.model.max_batch:
            return "skipped: the batch is fixed"
        return "; ".join(self.turns(search) for search in ("HEURISTIC", "EXHAUSTIVE"))

    def turns(self, search: str) -> str:
        """``sizes`` with one way to choose algorithms of convolutions."""
        with provider_options(cudnn_conv_algo_search=search):
            model = self.load()
        runtime, pictures = model.model.parts[2], self.pictures()[:4]
        feeds = {size: self.batch(model.model, size) for size in (1, 2, 3, 4)}

        def runs(*sizes: int) -> str:
            return millis([once(lambda size=size: runtime.run(feeds[size])) for size in sizes])

        def predicts(*sizes: int) -> str:
            return millis([once(lambda size=size: model.predict(pictures[:size])) for size in sizes])

        return (
            f"{search}: first runs of 1 to 4 {runs(1, 2, 3, 4)}, 3 and 4 in turns {runs(3, 4, 3, 4, 3, 4)}, "
            f"4 again {runs(4, 4, 4)}, predict() of 4 and 3 in turns {predicts(4, 3, 4, 3, 4, 3)}"
        )

    def memory(self) -> float:
        """MiB of GPU memory in use."""
        if not self.torch:
            return 0.0
        free, total = self.torch.cuda.mem_get_info()
        return float(total - free) / 2**20


def once(run: Any) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def rate(run: Any, argument: Any, size: int, seconds: float = 0.3) -> float:
    """Frames a second, after two runs that do not count."""
    run(argument), run(argument)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        run(argument)
        count += size
    return count / (time.perf_counter() - began)


def millis(seconds: Sequence[float]) -> str:
    return "/".join(f"{s * 1e3:.1f}" for s in seconds) + " ms"


NAMES = ("provider", "libraries", "direct", "pipeline", "order", "copies", "raw", "speed", "sizes")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["nanodet-coco"])
    parser.add_argument("--video", required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--only", default=",".join(NAMES))
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    begin()
    ort = runtimes._onnxruntime()
    print(f"ONNX Runtime {ort.__version__} {ort.get_available_providers()}, {Gst.version_string()}", flush=True)
    failed = 0
    for model in options.models:
        spec, _, video = model.partition("=")
        checks = Checks(spec, video or options.video, options.device)
        for name in options.only.split(","):
            if name == "libraries" and (model != options.models[0] or not checks.device.is_cuda):
                continue
            failed += not passes(f"{Path(spec).name} {name}", getattr(checks, name), end)
    print(f"{failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
