"""Drawing in CUDA memory: against the CPU's drawing, against damage to the decoder's frames, and its time.

    python benchmarks/gpu/overlay.py [--frames N] [--seconds S]

Every check stands for itself: an error in one is printed, and the next goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from common import CLIP, Gst, measure

import gstinfer
from gstinfer.elements.overlay import stage as overlay_stage
from gstinfer.frames import FrameBatch
from gstinfer.hosts import cuda as cuda_host
from gstinfer.hosts.system import SystemHost
from gstinfer.image import FORMATS, Device, Image
from gstinfer.model import Model
from gstinfer.overlay import Overlay, Style
from gstinfer.overlay.cuda import engine
from gstinfer.overlay.cuda_canvas import CudaCanvas
from gstinfer.overlay.cuda_table import Drawing, emulate, head_of
from gstinfer.results import Detections, FrameResults, Mask

OBJECTS = 20
DECODE = f"filesrc location={CLIP} ! h264parse ! nvh264dec name=decoder"
SINK = "cudadownload ! video/x-raw,format=NV12 ! appsink name={name} sync=false max-buffers=4"


def boxes(number: int, width: int = 1920, height: int = 1080) -> np.ndarray:
    """Twenty boxes that move with the frame's number; some leave the picture."""
    index = np.arange(OBJECTS)
    x = (index * 397 + number * 7) % (width + 100) - 50.0
    y = (index * 211 + number * 3) % (height - 100) - 20.0
    return np.stack([x, y, x + 60 + index * 11, y + 50 + index * 9], 1).astype(np.float32)


def scene(number: int, rich: bool) -> FrameResults:
    """Boxes and labels; with ``rich`` masks and keypoints too."""
    found, index = boxes(number), np.arange(OBJECTS)
    detections = Detections(found, 0.5 + index / 50, index % 8, label=[f"class {k % 8}" for k in index.tolist()])
    if rich:
        round_mask = np.hypot(*(np.mgrid[:70, :90] - np.array([35, 45])[:, None, None])) < 34
        detections.mask = [Mask(int(b[0]), int(b[1]), round_mask) for b in found]
        angle = np.arange(17) * 2.4
        circle = np.stack([np.cos(angle), np.sin(angle)], -1) * (np.arange(17) / 17)[:, None] * 60 + [960, 540]
        points = np.concatenate([circle + index[:, None, None] * 9 - 90, np.ones((OBJECTS, 17, 1))], -1)
        detections.keypoints = points.astype(np.float32)
    return FrameResults(detections=detections)


class Plain(Model):
    """The same boxes for the same frame, without a look at it."""

    rich = False

    def predict(self, batch: FrameBatch) -> list[Any]:
        return [scene(frame.sequence, self.rich).detections for frame in batch]


class Rich(Plain):
    rich = True


PLAIN, RICH = (f"pyinfer model=overlay_shared:{name} device=cuda:0 model-instance-id={name}" for name in ("Plain", "Rich"))


class Times:
    """Seconds of every call of a function."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name, self.original, self.seconds = owner, name, getattr(owner, name), []

    def __enter__(self) -> Times:
        original, seconds = self.original, self.seconds

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                seconds.append(time.perf_counter() - began)

        setattr(self.owner, self.name, timed)
        return self

    def __exit__(self, *_: Any) -> None:
        setattr(self.owner, self.name, self.original)

    def __str__(self) -> str:
        kept = np.array(self.seconds[20:] or self.seconds or [0.0]) * 1e6
        return f"median {np.median(kept):.0f} us, p99 {np.percentile(kept, 99):.0f} us ({len(kept)} calls)"


class Frames:
    """Pictures that reach the appsinks of a pipeline, in step; ends the pipeline when left."""

    def __init__(self, text: str, *sinks: str) -> None:
        self.made = Gst.parse_launch(text)
        self.sinks = [self.made.get_by_name(name) for name in sinks]
        self.hosts: dict[Any, SystemHost] = {}

    def __enter__(self) -> Frames:
        self.made.set_state(Gst.State.PLAYING)
        return self

    def __exit__(self, *_: Any) -> None:
        self.made.set_state(Gst.State.NULL)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while True:
            samples = [sink.emit("try-pull-sample", 15 * Gst.SECOND) for sink in self.sinks]
            if None in samples:
                self._check()
                return
            yield tuple((self._image(sink, sample), sample) for sink, sample in zip(self.sinks, samples))

    def _check(self) -> None:
        message = self.made.get_bus().pop_filtered(Gst.MessageType.ERROR)
        if message is not None:
            error, debug = message.parse_error()
            raise RuntimeError(f"{error.message}\n{debug}")

    def _image(self, sink: Any, sample: Any) -> Image:
        host = self.hosts.get(sink)
        if host is None:
            stream = SimpleNamespace(stream_id="", source="", component_id=0, sequence=0)
            host = self.hosts[sink] = SystemHost(sample.get_caps(), stream)
        with host.open(sample.get_buffer()) as batch:
            image = batch[0].image
            planes = tuple(np.array(plane) for plane in image.planes)
            return Image(image.format, planes, image.width, image.height, image.color)


def clone(image: Image) -> Image:
    return Image(image.format, tuple(p.copy() for p in image.planes), image.width, image.height, image.color)


def check_kernel() -> None:
    """The kernel against its NumPy oracle on random frames with pitch."""
    overlay, rng = Overlay(), np.random.default_rng()
    cases = ("NV12", 1920, 1080, 0), ("NV12", 641, 361, 1), ("RGBA", 640, 360, 0), ("BGR", 333, 221, 0)
    for name, width, height, deep in cases:
        host_planes, device_planes, moved = [], [], []
        for shape in FORMATS[name].plane_shapes(width, height):
            wide = rng.integers(0, 256, (shape[0], shape[1] + 37, *shape[2:], 1 + deep), dtype=np.uint8)
            there = torch.from_numpy(wide.copy()).cuda()
            moved.append((there, wide))
            host_planes.append(wide[:, : shape[1], ..., deep])
            device_planes.append(there[:, : shape[1], ..., deep])
        torch.cuda.synchronize()
        results = scene(5, True)
        record: list[Drawing] = []
        canvas_image = Image(name, tuple(host_planes), width, height)
        keep = SimpleNamespace(draw=lambda image, drawing, record=record: record.append(drawing))
        paint(overlay, canvas_image, keep, results)
        table = np.zeros(-(-record[0].bytes // 8) * 8, np.uint8)
        record[0].pack(head_of(canvas_image), table)
        emulate(table)
        paint(overlay, Image(name, tuple(device_planes), width, height, device=Device("cuda")), engine(0), results)
        worst = max(int(np.abs(there.cpu().numpy().astype(int) - wide).max()) for there, wide in moved)
        print(f"kernel against oracle, {name}{' upper bytes' * deep} {width}x{height}: largest difference {worst}")


def paint(overlay: Overlay, image: Image, by: Any, results: FrameResults) -> None:
    from gstinfer.overlay.draw import _Painter

    with CudaCanvas(image, by) as canvas:
        _Painter(overlay, canvas, Style()).paint(results)


def check_pipeline(infer: str, rich: bool, frames: int) -> None:
    """pyoverlay on the GPU against the CPU's drawing on the same decoded frame, frame by frame."""
    overlay, style = Overlay(), Style()
    drawn_text = f"{DECODE} ! {infer} ! pyoverlay ! {SINK.format(name='drawn')}"
    plain_text = f"{DECODE} ! {SINK.format(name='plain')}"
    worst, total, outside, count, read = 0, 0.0, 0, 0, 0
    with (
        Times(overlay_stage.OverlayStage, "process") as draws,
        Times(cuda_host._Hold, "wait") as waits,
        Frames(drawn_text, "drawn") as drawn,
        Frames(plain_text, "plain") as plain,
    ):
        for ((mine, sample),), ((before, _),) in zip(drawn, plain):
            results = gstinfer.read(sample)
            read += results is not None
            wanted = clone(before)
            overlay.draw(wanted, results if results is not None else scene(count, rich), style)
            for a, b, c in zip(mine.planes, wanted.planes, before.planes):
                error = np.abs(a.astype(np.int16) - b)
                worst, total = max(worst, int(error.max())), total + float(error.mean()) / len(mine.planes)
                outside += int(np.count_nonzero((a != c) & (b == c)))
            count += 1
            if count == 30:
                save(mine, "overlay_rich.png" if rich else "overlay.png")
            if count == frames:
                break
    print(
        f"drawn in CUDA memory{' with masks and keypoints' if rich else ''} against the CPU: {count} frames "
        f"({read} with results read back), largest difference {worst}, mean {total / max(1, count):.5f}, "
        f"bytes changed outside of what is drawn {outside}"
    )
    print(f"  OverlayStage.process: {draws}\n  waits for events (of pyinfer and of drawing): {waits}", flush=True)


def check_tee(frames: int) -> None:
    """Two branches of one decoder, one of them drawn on: the other's pixels stay as they were decoded."""
    text = (
        f"{DECODE} ! tee name=t t. ! queue ! {SINK.format(name='plain')} "
        f"t. ! queue ! {PLAIN} ! pyoverlay ! {SINK.format(name='drawn')}"
    )
    copies: list[bool] = []
    original = cuda_host.own

    def noted(*arguments: Any) -> bool:
        copies.append(original(*arguments))
        return copies[-1]

    cuda_host.own = noted
    damaged = changed = count = 0
    try:
        with Frames(text, "plain", "drawn") as both, Frames(f"{DECODE} ! {SINK.format(name='sink')}", "sink") as alone:
            for ((kept, _), (drawn, _)), ((before, _),) in zip(both, alone):
                damaged += any(not np.array_equal(a, b) for a, b in zip(kept.planes, before.planes))
                changed += any(not np.array_equal(a, b) for a, b in zip(drawn.planes, before.planes))
                count += 1
                if count == frames:
                    break
    finally:
        cuda_host.own = original
    print(
        f"behind a tee: {count} frames, {damaged} damaged in the branch that is not drawn on, {changed} drawn on in the other, "
        f"{sum(copies)} of {len(copies)} copied first",
        flush=True,
    )


def time_of_drawing() -> None:
    """Python, upload and kernel of 20 objects on a 1080p frame of NV12."""
    overlay, style, drawer = Overlay(), Style(), engine(0)
    there = [torch.zeros(shape, dtype=torch.uint8, device="cuda") for shape in ((1080, 2048), (540, 1024, 2))]
    torch.cuda.synchronize()
    planes = there[0][:, :1920], there[1][:, :960]

    class Held:
        def __init__(self, plane: Any) -> None:
            self.__cuda_array_interface__, self.event = plane.__cuda_array_interface__, None

        def keep_until(self, event: Any) -> None:
            self.event = event

    for rich in (False, True):
        image = Image("NV12", (Held(planes[0]), Held(planes[1])), 1920, 1080, device=Device("cuda"))
        results = scene(5, rich)
        host, whole = [], []
        for _ in range(220):
            began = time.perf_counter()
            overlay.draw(image, results, style)
            host.append(time.perf_counter() - began)
            image.planes[0].event.synchronize()
            whole.append(time.perf_counter() - began)
        backend, slot, record = drawer.backend, drawer._slots[drawer._turn], []
        paint(overlay, image, SimpleNamespace(draw=lambda image, drawing, record=record: record.append(drawing.bytes)), results)
        size = record[0]
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(backend.stream):
            first.record()
            for _ in range(100):
                backend.run(slot, size, 1920, 1080, 2)
            last.record()
        last.synchronize()
        print(
            f"20 objects{' with masks and keypoints' if rich else ''}, 1080p NV12, {size} bytes of table: Python "
            f"{np.median(host[20:]) * 1e6:.0f} us, until drawn {np.median(whole[20:]) * 1e6:.0f} us, "
            f"upload and kernel {first.elapsed_time(last) * 10:.1f} us",
            flush=True,
        )


def time_of_pipelines(seconds: float) -> None:
    """Frames a second without and with drawing."""
    for streams in (1, 16):
        for name, behind in (("without", ""), ("with", " ! pyoverlay")):
            rate = measure(streams, f"{PLAIN}{behind}", 10**9, seconds)
            cost = f"{rate.fps:.0f} fps, CPU {rate.cpu * 1e6:.0f} us a frame"
            print(f"{streams} streams {name} drawing: {cost} {rate.error}", flush=True)


def save(image: Image, name: str) -> None:
    folder = os.environ.get("OUT")
    if folder:
        import cv2

        planes = image.planes[0], image.planes[1].reshape(image.height // 2, image.width)
        cv2.imwrite(str(Path(folder) / name), cv2.cvtColor(np.concatenate(planes), cv2.COLOR_YUV2BGR_NV12))


def attempt(what: Callable[..., None], *arguments: Any) -> None:
    began = time.monotonic()
    try:
        what(*arguments)
    except Exception:
        print(f"{what.__name__}{arguments} failed:")
        traceback.print_exc(file=sys.stdout)
    print(f"  ({what.__name__} took {time.monotonic() - began:.1f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(150, exit=True)
    # The element imports the classes by this name; both must be the same ones.
    sys.modules["overlay_shared"] = sys.modules[__name__]
    Gst.init(None)
    gstinfer.register()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {Gst.version_string()}", flush=True)
    attempt(check_kernel)
    attempt(time_of_drawing)
    attempt(check_pipeline, PLAIN, False, options.frames)
    attempt(check_pipeline, RICH, True, options.frames // 5)
    attempt(check_tee, options.frames // 3)
    attempt(time_of_pipelines, options.seconds)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
