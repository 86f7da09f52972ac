"""Every byte that torch reads in place against cudadownload's, frame by frame, without and with load beside it.

    python benchmarks/gpu/correct.py [--frames N]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

import numpy as np
import torch
from common import CLIP, Gst, begin, counts, downloaded, pipeline

import gstinfer
from gstinfer.frames import FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.model import Model
from gstinfer.preprocess import Preprocessing, prepare, reference

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = Preprocessing((640, 640))
SEEN: list[tuple[int, int]] = []
INPUTS: dict[int, np.ndarray] = {}
WEIGHTS: list[torch.Tensor] = []
KEEP_INPUTS = 5


def digest(planes: Any) -> Any:
    """A sum of all bytes, each with a weight of its own."""
    total = 0
    for plane in planes:
        flat = plane.reshape(-1).to(torch.int64)
        if not WEIGHTS:
            index = torch.arange(1080 * 1920, dtype=torch.int64)
            WEIGHTS.append((index * 40503 % 65521 + 1).to(torch.int64))
        weight = WEIGHTS[int(flat.is_cuda)][: flat.numel()]
        total = total * 31 + (flat * weight).sum()
    return total


class Digest(Model):
    """Notes the digest of every frame."""

    def load(self, device: Any) -> None:
        digest([torch.zeros(4, dtype=torch.uint8)])
        WEIGHTS.append(WEIGHTS[0].to(str(device)))

    def predict(self, batch: FrameBatch) -> list[None]:
        sums = [digest([torch.as_tensor(p, device="cuda") for p in frame.image.planes]) for frame in batch]
        for frame, value in zip(batch, sums):
            SEEN.append((frame.sequence, int(value)))
            if frame.sequence < KEEP_INPUTS and frame.sequence not in INPUTS:
                INPUTS[frame.sequence] = prepare([frame.image], SPEC)[0][0].cpu().numpy()
        return [None] * len(batch)


def truth(frames: int) -> tuple[list[int], list[np.ndarray]]:
    """Digests of the clip's frames as cudadownload gives them, and the reference's input of the first."""
    found, inputs = [], []
    for image in downloaded(f"filesrc location={CLIP} ! h264parse ! nvh264dec ! cudadownload", frames):
        found.append(int(digest([torch.from_numpy(p) for p in image.planes])))
        if len(inputs) < KEEP_INPUTS:
            inputs.append(reference.prepare(image, SPEC, ImageTransform.plan(image.size, SPEC.size)))
    return found, inputs


def run(streams: int, frames: int, want: list[int], load: int) -> None:
    """Compares ``frames`` frames of each stream while ``load`` more streams run a network."""
    import sys

    # The element imports this file under a name of its own; both must share what is noted.
    sys.modules["correct_shared"] = sys.modules[__name__]
    SEEN.clear()
    beside, before = None, 0
    if load:
        beside = pipeline(load, f"pyinfer model={HERE}/networks.py:TableModel device=cuda:0 model-instance-id=load")
        beside.set_state(Gst.State.PLAYING)
        patience = time.monotonic() + 60
        while min(counts(beside, load)) < 50 and time.monotonic() < patience:
            time.sleep(0.1)
        before = sum(counts(beside, load))
    made = pipeline(streams, "pyinfer model=correct_shared:Digest device=cuda:0 model-instance-id=check")
    made.set_state(Gst.State.PLAYING)
    bus, limit = made.get_bus(), time.monotonic() + 90
    while len(SEEN) < streams * frames and time.monotonic() < limit:
        message = bus.timed_pop_filtered(50 * Gst.MSECOND, Gst.MessageType.ERROR)
        if message is not None:
            print("error:", message.parse_error())
            break
    ran = sum(counts(beside, load)) - before if beside is not None else 0
    made.set_state(Gst.State.NULL)
    if beside is not None:
        beside.set_state(Gst.State.NULL)
    bad = sum(value != want[number % len(want)] for number, value in SEEN)
    print(
        f"bytes read in place, {streams} streams, {load} streams of load ({ran} frames), "
        f"context {os.environ.get('BENCH_CONTEXT', 'shared')}: "
        f"{len(SEEN)} frames compared, {bad} differ",
        flush=True,
    )


def oracle(device: str, frames: int) -> list[Any]:
    """Detections of a model whose boxes follow from the colours alone; on the CPU behind ``cudadownload``, in float32."""
    way = "cudadownload !" if device == "cpu" else ""
    made = Gst.parse_launch(
        f"filesrc location={CLIP} ! h264parse ! nvh264dec ! {way} pyinfer name=infer model=torch:{HERE}/colours.py:one "
        f"device={device} model-args=precision=float32 ! fakesink sync=false"
    )
    found: list[Any] = []

    def seen(pad: Any, info: Any) -> Any:
        if len(found) < frames:
            found.append(gstinfer.read(info.get_buffer()).detections)
        return Gst.PadProbeReturn.OK

    made.get_by_name("infer").get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, seen)
    made.set_state(Gst.State.PLAYING)
    limit = time.monotonic() + 60
    while len(found) < frames and time.monotonic() < limit:
        message = made.get_bus().timed_pop_filtered(20 * Gst.MSECOND, Gst.MessageType.ERROR)
        if message is not None:
            print("error:", message.parse_error())
            break
    made.set_state(Gst.State.NULL)
    return found


def rows(found: Any) -> Any:
    return zip(found.class_id, found.xyxy, found.confidence)


def compare_oracle(frames: int) -> None:
    there, here = oracle("cuda:0", frames), oracle("cpu", frames)
    same, objects, off, apart, alone = 0, 0, 0.0, 0.0, []
    for a, b in zip(there, here):
        a, b = (d[np.lexsort((d.class_id, *d.xyxy.T))] for d in (a, b))
        objects += len(b)
        if len(a) == len(b) and (a.class_id == b.class_id).all():
            same += 1
            off = max(off, float(np.abs(a.xyxy - b.xyxy).max(initial=0)))
            apart = max(apart, float(np.abs(a.confidence - b.confidence).max(initial=0)))
        else:
            found, wanted = ({(int(c), *xyxy.round().tolist()): s for c, xyxy, s in d} for d in (rows(a), rows(b)))
            alone += [float(d[key]) for d, other in ((found, wanted), (wanted, found)) for key in d.keys() - other.keys()]
    print(
        f"boxes from decoded colours, NVDEC and GPU against the CPU: {len(there)} and {len(here)} frames, {objects} objects; "
        f"same objects in {same} frames, corners within {off:.3f} pixels, scores within {apart:.4f}; "
        f"{len(alone)} objects are on one side alone, scores {min(alone, default=0):.4f} to {max(alone, default=0):.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--clip-frames", type=int, default=300)
    parser.add_argument("--oracle-frames", type=int, default=100)
    options = parser.parse_args()
    begin()
    want, inputs = truth(options.clip_frames)
    print(f"{len(want)} frames downloaded, {len(set(want))} different", flush=True)
    run(8, options.frames, want, 0)
    for number, got in sorted(INPUTS.items()):
        error = np.abs(got - inputs[number])
        print(f"input of frame {number}: largest difference from the reference {error.max() * 255:.3f}/255")
    run(8, options.frames, want, 16)
    compare_oracle(options.oracle_frames)


if __name__ == "__main__":
    main()
    threading.Event().wait(0.1)
    os._exit(0)
