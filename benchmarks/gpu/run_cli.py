"""``gstinfer run`` on a GPU: NVDEC chosen, exact frames, streams added, models exchanged, stops; one line a check.

    python benchmarks/gpu/run_cli.py [--seconds 150] [--only NAME,...] [--device cuda:0] [--model SPEC --other SPEC]

It goes on after a check that fails, with its traceback, and begins none when its time is over. Without a GPU
``--device cpu --model nanodet-coco --other nanodet-coco`` runs the same checks; those about NVDEC fail then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import CLIP, Gst, passes

from gstinfer import gpu
from gstinfer.app import sinks
from gstinfer.app.branch import Branch
from gstinfer.app.pipeline import make
from gstinfer.app.session import Job, Session
from gstinfer.models import torch_engine

FRAMES = 600
"""Of the MP4 file that is made here."""


def make_clip(path: Path) -> None:
    """An MP4 file of 1080p, with B-frames."""
    pipeline = Gst.parse_launch(
        f"videotestsrc pattern=smpte horizontal-speed=7 num-buffers={FRAMES} ! video/x-raw,format=I420,width=1920,height=1080,"
        "framerate=30/1,colorimetry=bt709 ! x264enc speed-preset=veryfast bitrate=6000 key-int-max=60 ! h264parse ! mp4mux "
        f"! filesink location={path}"
    )
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(60 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message is None or message.type != Gst.MessageType.EOS:
        raise RuntimeError(f"no clip: {message and message.parse_error()}")


class Look:
    """Notes, when a stream ends, its elements and the caps of pyinfer's sink pad; and when each frame came out."""

    def __init__(self) -> None:
        self.elements: dict[str, list[str]] = {}
        self.caps: dict[str, str] = {}
        self.times: dict[Branch, list[float]] = {}
        end = Branch._end

        def ended(branch: Branch, error: str) -> None:
            if branch.element is not None:
                caps = branch.element.get_static_pad("sink").get_current_caps()
                name = branch.source.stream_id
                self.elements[name] = list(names(branch.pipeline))
                self.caps[name] = caps.to_string() if caps is not None else "none"
            end(branch, error)

        def noted(original: Any) -> Any:
            def frame(branch: Branch, *arguments: Any) -> Any:
                self.times.setdefault(branch, []).append(time.perf_counter())
                return original(branch, *arguments)

            return frame

        Branch._end = ended  # type: ignore[method-assign]
        for name in ("_count", "_tally"):
            setattr(Branch, name, noted(getattr(Branch, name)))

    def gap(self, branch: Branch, since: float, until: float) -> float:
        """Longest time in seconds without a frame."""
        times = [since, *(t for t in self.times.get(branch, []) if since <= t <= until), until]
        return max(b - a for a, b in pairwise(times))


def names(pipeline: Any) -> Iterator[str]:
    """Factories of all elements."""
    iterator = pipeline.iterate_recurse()
    while (item := iterator.next())[0] == Gst.IteratorResult.OK:
        if factory := item[1].get_factory():
            yield factory.get_name()


class Checks:
    """The checks; each raises where something is wrong, and returns what it saw."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.clip, self.look = options, folder / "clip.mp4", Look()
        networks = Path(__file__).with_name("colours.py")
        self.model = options.model or f"torch:{networks}:one"
        self.other = options.other or f"torch:{networks}:two"
        # Graphs of few sizes: here models are loaded often.
        self.settings = [] if options.model else ["model-args=largest-batch=(int)4"]
        make_clip(self.clip)

    def session(self, inputs: list[str], **more: Any) -> Session:
        job = {"device": self.options.device, "settings": self.settings, **more}
        return Session(Job(inputs, self.model, **job))

    @contextmanager
    def running(self, session: Session) -> Iterator[tuple[Session, list[Any]]]:
        """A session in a thread, stopped at the end, and what ``run`` returned."""
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(session.run())
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield session, outcome
        finally:
            session.stop()
            thread.join(30)
            assert not thread.is_alive(), "the session does not end within 30 s"

    def run(self, inputs: list[str], **more: Any) -> Session:
        """A session to its end, without errors."""
        session = self.session(inputs, **more)
        began = time.perf_counter()
        good = session.run()
        self.seconds = time.perf_counter() - began
        assert good, [branch.error for branch in session.branches]
        return session

    def nvdec(self, session: Session) -> str:
        """That every stream was decoded by its GPU's NVDEC, and reached pyinfer in CUDA memory, with no copy between."""
        for branch in session.branches:
            name = branch.source.stream_id
            found, caps = self.look.elements[name], self.look.caps[name]
            decoders = [n for n in found if n.startswith("nv") and n.endswith("dec")]
            assert decoders, f"{name}: no NVDEC among {sorted(set(found))}; {branch.warnings}"
            assert "memory:CUDAMemory" in caps, f"{name}: pyinfer got {caps}"
            copies = {"videoconvert", "videoflip", "cudadownload", "cudaupload"} & set(found)
            assert not copies, f"{name}: {copies}"
            assert not branch.warnings, branch.warnings
        return f"{', '.join(dict.fromkeys(decoders))}; {caps[:90]}"

    def mp4(self) -> str:
        """An MP4 file: all frames, by NVDEC, in CUDA memory."""
        session = self.run([str(self.clip)])
        branch = session.branches[0]
        assert branch.counts.frames == FRAMES, f"{branch.counts.frames} of {FRAMES} frames"
        objects = sum(branch.counts.objects.values())
        assert self.options.model or objects, "the model found nothing"
        saw = f"{branch.counts.frames} frames, {branch.counts.fps:.0f} fps, {objects} objects, {self.seconds:.1f} s"
        return f"{saw}; {self.nvdec(session)}"

    def h264(self) -> str:
        """A byte stream, up to a number of frames."""
        session = self.run([CLIP], max_frames=1000)
        branch = session.branches[0]
        assert branch.counts.frames == 1000, branch.counts.frames
        return f"{branch.counts.frames} frames, {branch.counts.fps:.0f} fps; {self.nvdec(session)}"

    def many(self) -> str:
        """Sixteen streams at once."""
        session = self.run([str(self.clip)] * 16)
        frames = [branch.counts.frames for branch in session.branches]
        assert frames == [FRAMES] * 16, frames
        last = max(t[-1] for b, t in self.look.times.items() if b in session.branches)
        first = min(t[0] for b, t in self.look.times.items() if b in session.branches)
        stats = session.branches[0].stats["pyinfer"]
        fill = f"batch-fill {stats.get('batch-fill', 0):.1f}"
        return f"{sum(frames) / (last - first):.0f} fps together, {fill}, {self.seconds:.1f} s; {self.nvdec(session)}"

    def other_memory(self) -> str:
        """Frames made on the CPU go up by cudaupload, with one warning."""
        session = self.run(["test:ball?frames=100&width=1280&height=720"])
        branch, caps = session.branches[0], self.look.caps["ball"]
        assert branch.counts.frames == 100 and "memory:CUDAMemory" in caps, caps
        return f"{branch.counts.frames} frames, {branch.counts.fps:.0f} fps; {branch.warnings}"

    def drawing(self) -> str:
        """Pictures drawn behind cudadownload, and before it; without an encoder, which the machine may lack."""
        encoder, before, saw = sinks.encoder, sinks.DRAWS_ON_GPU, []

        def end(pipeline: Any, path: Path) -> list[Any]:
            chain = [make(pipeline, "videoconvert"), make(pipeline, "fakesink", sync=False, **sinks.NO_PREROLL)]
            assert chain[0].link(chain[1])
            return chain

        sinks.encoder = end
        try:
            for on_gpu in (False, True):
                sinks.DRAWS_ON_GPU = on_gpu
                where = "drawn in CUDA memory" if on_gpu else "drawn behind cudadownload"
                try:
                    session = self.run([str(self.clip)], output=f"{self.clip.parent}/o.mp4")
                    branch = session.branches[0]
                    assert branch.counts.frames == FRAMES, branch.counts.frames
                    saw.append(f"{where}: {branch.counts.fps:.0f} fps {branch.warnings or ''}")
                except Exception as error:
                    traceback.print_exc()
                    saw.append(f"{where}: FAILED, {error}")
        finally:
            sinks.encoder, sinks.DRAWS_ON_GPU = encoder, before
        assert not any("FAILED" in text for text in saw), saw
        return "; ".join(saw)

    def add(self) -> str:
        """Streams added while others run, and removed."""
        with self.running(self.session(["test:ball?live=1"], stay=True)) as (session, outcome):
            wait(lambda: session.branches[0].counts.frames > 5)
            began = time.perf_counter()
            added = [session.add_source(str(self.clip), f"added-{n}") for n in range(4)]
            took = time.perf_counter() - began
            wait(lambda: all(branch.state in ("ended", "failed") for branch in added))
            session.remove_source("ball")
            wait(lambda: not session.branches[0].running)
        assert outcome == [True], (outcome, [branch.error for branch in session.branches])
        frames = [branch.counts.frames for branch in added]
        assert frames == [FRAMES] * 4, frames
        return f"4 streams added in {took:.2f} s, frames {frames}"

    def swap(self) -> str:
        """The model exchanged up to 50 times while streams run: no frame lost, and the longest time without one."""
        count, inputs = 0, [CLIP, "test:ball?live=1"]
        with self.running(self.session(inputs, stay=True)) as (session, outcome):
            wait(lambda: all(branch.counts.frames > 30 for branch in session.branches))
            began, took, used = time.perf_counter(), [], []
            while count < 50 and time.perf_counter() < began + 60:
                start = time.perf_counter()
                session.swap((self.other, self.model)[count % 2])
                took.append(time.perf_counter() - start)
                count += 1
                used.append(memory())
                begin_anew(session, CLIP)
            until = time.perf_counter()
        assert outcome == [True], (outcome, [branch.error for branch in session.branches])
        lost = {b.source.stream_id: b.entered - b.counts.frames for b in session.branches}
        errors = sum(b.stats["pyinfer"].get("errors", 0) for b in session.branches)
        assert not any(lost.values()) and not errors, (lost, errors)
        gaps = {}
        for branch, times in self.look.times.items():
            if branch in session.branches and len(times) > 1:
                name = branch.source.stream_id
                gap = self.look.gap(branch, max(began, times[0]), min(until, times[-1]))
                gaps[name] = max(gap, gaps.get(name, 0.0))
        frames = sum(branch.counts.frames for branch in session.branches)
        shown = ", ".join(f"{name} {gap * 1e3:.0f} ms" for name, gap in gaps.items())
        grew = f"; GPU memory {used[1]:.0f} MiB after 2, {used[-1]:.0f} after all" if count > 1 and used[-1] else ""
        return f"{count} swaps of {sum(took) / max(1, count):.2f} s, {frames} frames, lost 0; longest gap: {shown}{grew}"

    def churn(self) -> str:
        """Files that end and are begun anew all the while models are exchanged: decoders open and close beside captures."""
        anew, begun, count = 0, 0, 0
        ball, files = "test:ball?live=1", [str(self.clip)] * 3
        with self.running(self.session([ball, *files], stay=True)) as (session, outcome):
            wait(lambda: all(branch.counts.frames > 30 for branch in session.branches))
            began = time.perf_counter()
            def renew() -> None:
                nonlocal anew
                while time.perf_counter() < began + 15:
                    anew += begin_anew(session, str(self.clip))
                    time.sleep(0.02)

            def noted(*arguments: Any) -> None:
                nonlocal begun
                begun += 1

            thread = threading.Thread(target=renew)
            thread.start()
            info, torch_engine.log.info = torch_engine.log.info, noted  # type: ignore[method-assign]
            while time.perf_counter() < began + 15:
                session.swap((self.other, self.model)[count % 2])
                count += 1
            torch_engine.log.info = info  # type: ignore[method-assign]
            until = time.perf_counter()
            thread.join()
        assert outcome == [True], (outcome, [branch.error for branch in session.branches])
        lost = sum(branch.entered - branch.counts.frames for branch in session.branches)
        whole = [branch for branch in session.branches if branch.counts.frames == FRAMES]
        assert anew and not lost and len(whole) >= anew, (anew, lost, len(whole))
        gap = self.look.gap(session.branches[0], began, until)
        return (
            f"{count} swaps, {anew} files begun anew, lost 0, {begun} captures begun anew; longest gap of a 30 fps stream "
            f"{gap * 1e3:.0f} ms"
        )

    def stop(self) -> str:
        """Sessions that are stopped while they play, again and again."""
        took, used = [], []
        for _ in range(20):
            with self.running(self.session([CLIP, CLIP])) as (session, outcome):
                wait(lambda session=session: all(branch.counts.frames > 20 for branch in session.branches))
                began = time.perf_counter()
            took.append(time.perf_counter() - began)
            assert outcome == [True], (outcome, [branch.error for branch in session.branches])
            used.append(memory())
        grew = f"GPU memory {used[1]:.0f} MiB after 2, {used[9]:.0f} after 10, {used[-1]:.0f} after 20" if used[-1] else ""
        return f"20 stops, the slowest {max(took):.2f} s; {grew}"

    def several(self) -> str:
        """Two GPUs share the streams."""
        if gpu.device_count() < 2:
            return "skipped: one GPU"
        session = self.run([str(self.clip)] * 8, device="cuda:0,cuda:1")
        found = [str(branch.seat and branch.seat.device) for branch in session.branches]
        assert sorted(found) == ["cuda:0"] * 4 + ["cuda:1"] * 4, found
        assert all(branch.counts.frames == FRAMES for branch in session.branches)
        return f"{found}; {self.nvdec(session)}"

    def refused(self) -> str:
        """A GPU that is not there is one error, before anything is opened."""
        try:
            self.session([str(self.clip)] * 3, device="cuda:99")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("cuda:99 was accepted")


def begin_anew(session: Session, source: str) -> int:
    """Gives every stream that has ended a source again; how many those were."""
    names = {branch.source.stream_id for branch in session.branches}
    ended = [name for name in names if session.find(name).state == "ended"]
    for name in ended:
        session.add_source(source, name)
    return len(ended)


def memory() -> float:
    """MiB of GPU memory in use, 0 where torch is not there."""
    try:
        import torch

        free, total = torch.cuda.mem_get_info()
    except Exception:
        return 0.0
    return float(total - free) / 2**20


def wait(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not after {seconds} s"
        time.sleep(0.01)


NAMES = ("refused", "mp4", "h264", "many", "other_memory", "add", "drawing", "swap", "churn", "stop", "several")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="")
    parser.add_argument("--other", default="")
    options = parser.parse_args()
    Gst.init(None)
    end = time.monotonic() + options.seconds
    print(f"{Gst.version_string()}, {gpu.device_count()} GPUs", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(options, Path(folder))
        for name in options.only.split(","):
            failed += not passes(name, getattr(checks, name), end)
    print(f"{failed} failed", flush=True)
    sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
