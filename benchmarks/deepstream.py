"""Metadata on DeepStream, on the stand-in of its C ABI: microseconds to write an object with all of nvinfer's fields.

Ours is what the host does when a stage is done with a batch: planning, writing, and the batch's own user meta; "with pixels"
adds opening the batch and its frames. Against it stand the same objects written field by field through pyservicemaker's
surface, compiled as the published bindings are. With pybind11 missing (``pip install pybind11``) the stand-in's Python
surface takes that place, and the output says so.

    python benchmarks/deepstream.py [--buffers N]

Budget: 0.4 of pyservicemaker's time at 8 frames of 20 objects.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "tests" / "deepstream" / "build.py"
SIZES = ((1, 20), (8, 20), (1, 300), (8, 1))
"""(frames in a batch, objects a frame)."""


def standin() -> tuple[Path, Path | None]:
    """The folders of the stand-in and of its compiled pyservicemaker surface."""
    spec = importlib.util.spec_from_file_location("standin_build", BUILD)
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    sys.modules["standin_build"] = build
    spec.loader.exec_module(build)
    directory = build.build(Path(tempfile.gettempdir()) / "gstinfer-standin", True)
    return directory, build.build_native(directory, sys.executable)


def batches(count: int, frames: int) -> list[Any]:
    """Buffers of so many frames, as the muxer makes them, with the caps they have."""
    from gi.repository import Gst

    sources = " ".join(
        f"videotestsrc num-buffers={count} ! video/x-raw,format=RGBA,width=64,height=48 ! m.sink_{k}" for k in range(frames)
    )
    pipeline = Gst.parse_launch(f"standinmux name=m batch-size={frames} ! appsink name=sink sync=false max-buffers=8 {sources}")
    pipeline.set_state(Gst.State.PLAYING)
    sink = pipeline.get_by_name("sink")
    samples = []
    while len(samples) < count:
        sample = sink.emit("pull-sample")
        if sample is None:
            break
        samples.append((sample.get_buffer(), sample.get_caps()))
    pipeline.set_state(Gst.State.NULL)
    return samples


def results(objects: int) -> Any:
    """A frame's worth of objects as a model's stage leaves them."""
    import numpy as np

    from gstinfer import Detections, FrameResults

    corner = np.stack([np.arange(objects) % 20, np.arange(objects) // 20], 1).astype(np.float32)
    labels = ["person" if k % 2 else "car" for k in range(objects)]
    component = np.full(objects, 15, np.int32)
    confidence = np.linspace(0.3, 0.9, objects)
    found = Detections(
        np.concatenate([corner, corner + 10], 1), confidence, np.arange(objects) % 80, None, labels, component
    )
    return FrameResults("benchmark", True, found)


def ours(host: Any, buffer: Any, wanted: Any) -> float:
    """Seconds of the part that writes."""
    with host.open(buffer) as batch:
        for frame in batch:
            frame.results = wanted
        start = time.perf_counter()
    return time.perf_counter() - start


def theirs(module: Any, buffer: Any, wanted: Any) -> None:
    """All fields that nvinfer sets, as far as the bindings know them; the usual loop of an application."""
    osd, d = module.osd, wanted.detections
    wrapped = module.Buffer(buffer)
    meta = wrapped.batch_meta
    boxes, scores, classes = d.xyxy.tolist(), d.confidence.tolist(), d.class_id.tolist()
    for frame in meta.frame_items:
        for (x1, y1, x2, y2), score, class_id, label in zip(boxes, scores, classes, d.label):
            obj = meta.acquire_object_meta()
            obj.unique_component_id, obj.class_id, obj.object_id = 15, class_id, (1 << 64) - 1
            obj.confidence, obj.label = score, label
            rect = obj.rect_params
            rect.left, rect.top, rect.width, rect.height = x1, y1, x2 - x1, y2 - y1
            rect.border_width, rect.has_bg_color = 3, 0
            rect.border_color = osd.Color(1, 0, 0, 1)
            text = obj.text_params
            text.display_text, text.x_offset, text.y_offset = label, int(x1), max(0, int(y1 - 10))
            font = text.font_params
            font.name, font.size, font.color = osd.FontFamily.Serif, 11, osd.Color(1, 1, 1, 1)
            text.set_bg_clr, text.text_bg_clr = 1, osd.Color(0, 0, 0, 1)
            frame.append(obj)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=300, help="buffers a round")
    buffers = parser.parse_args().buffers
    directory, native = standin()
    os.environ["DEEPSTREAM_DIR"] = str(directory)
    os.environ["GST_PLUGIN_PATH"] = str(directory / "lib" / "gst-plugins")
    os.environ.setdefault("GST_REGISTRY", str(directory / "benchmark-registry.bin"))
    sys.path.insert(0, str(native or BUILD.parent / "pyservicemaker_standin"))
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import Gst

    Gst.init(None)
    from gstinfer.hosts.deepstream import DeepStreamHost

    module = importlib.import_module("pyservicemaker_native" if native else "pyservicemaker")
    print(f"against {module.__name__}{'' if native else ' (no pybind11: written in Python)'}, {buffers} batches each")
    print("microseconds an object")
    print(f"{'frames':>6} {'objects':>7} {'with pixels':>11} {'ours':>6} {'theirs':>6} {'ratio':>6}")
    for frames, objects in SIZES:
        samples, wanted = batches(2 * buffers, frames), results(objects)
        stream = SimpleNamespace(stream_id="0", source="", component_id=15, sequence=0)
        host = DeepStreamHost(samples[0][1], stream, device="cpu")
        times: dict[str, list[float]] = {"whole": [], "ours": [], "theirs": []}
        number = 0
        while samples:
            # A buffer goes before the next one comes, as in a pipeline: else memory that is touched first costs the most.
            buffer, number = samples.pop()[0], number + 1
            start = time.perf_counter()
            if number % 2:
                theirs(module, buffer, wanted)
            else:
                times["ours"].append(ours(host, buffer, wanted))
            times["theirs" if number % 2 else "whole"].append(time.perf_counter() - start)
        each = {name: statistics.median(values) * 1e6 / (frames * objects) for name, values in times.items()}
        ratio = each["ours"] / each["theirs"]
        print(f"{frames:6} {objects:7} {each['whole']:11.2f} {each['ours']:6.2f} {each['theirs']:6.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
