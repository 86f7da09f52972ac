"""Batches through a network on the GPU without waiting: pictures in, small pinned tensors out, several in flight.

All work of one engine is ordered on one stream: table and preprocessing kernel write the static input, a CUDA graph of the
right size runs the network and the device's part of decoding, one copy brings the candidates to pinned memory, an event
marks the end. As the stream keeps that order, one input and one graph per size serve any number of batches in flight; only
the pinned copies are several. On the CPU the same steps run one after another, without graphs.
"""

from __future__ import annotations

import ctypes as C
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.captures import capture
from gstinfer.errors import ModelLoadError
from gstinfer.geometry import ImageTransform
from gstinfer.image import Device, Image
from gstinfer.preprocess import Preprocessing, prepare

__all__ = ["GRAPH_SIZES", "Engine", "Results", "graph_size"]

log = logging.getLogger(__name__)

GRAPH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""Batch sizes that a graph is captured for, up to the largest batch."""

ATTEMPTS = 50
"""To capture one graph."""

FORBIDDEN = "when stream is capturing"
"""Of CUDA's words for what no graph can hold (``cudaErrorStreamCaptureUnsupported``)."""

THREAD_LOCAL = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``."""

_idle: defaultdict[str, list[Any]] = defaultdict(list)
"""Streams by device whose engine is closed. The next engine takes one of them: for each stream that it computed on torch keeps
memory until the process ends, the workspace of cuBLAS alone is 32 MiB on a Hopper GPU."""


def graph_size(count: int, sizes: Sequence[int]) -> int:
    """The smallest captured size that holds ``count`` pictures; ``sizes`` ascend."""
    return next(size for size in sizes if size >= count)


class _SpoiltError(Exception):
    """CUDA ended a capture with an error."""


class _Slot:
    """Pinned host copies of one batch's outputs and the event behind them."""

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        self.outputs = dict(outputs)
        self.event: Any = None
        self.events: dict[bool, Any] = {}
        # Slices by size of the graph and number of pictures: making them again costs more than the copies' launch.
        self.copies: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        self.arrays: dict[int, dict[str, NDArray[Any]]] = {}


class Engine:
    """See the module.

    Args:
        torch: The library.
        program: Takes ``[B,...]`` pictures, gives tensors by name, batch first. Captured, so its work must not depend on
            values on the host.
        spec: The pictures it takes.
        device: Where.
        sizes: Batch sizes to capture, ascending; a batch has at most the last.
        slots: Batches whose results may be outstanding.
        graphs: Whether to capture; False runs the program as it is.
    """

    def __init__(
        self,
        torch: Any,
        program: Callable[[Any], Mapping[str, Any]],
        spec: Preprocessing,
        device: Device,
        sizes: Sequence[int],
        *,
        slots: int = 4,
        graphs: bool = True,
    ) -> None:
        self.torch, self.program, self.spec, self.device, self.sizes = torch, program, spec, device, tuple(sizes)
        self.place = torch.device(str(device))
        dtype = getattr(torch, spec.dtype)
        shape = spec.input_shape(self.sizes[-1])
        self.stream: Any = self._new_stream() if device.is_cuda else None
        self.input = torch.zeros(shape, dtype=dtype, device=self.place)
        # Pictures in host memory are prepared there; two staging buffers let one be filled while the other is copied.
        self._staging: list[tuple[Any, Any]] = []
        self._shape, self._dtype = shape, dtype
        self._graphs: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        try:
            with self._on_stream():
                example = self._warm(self.input)
            if graphs and device.is_cuda:
                self._graphs = self._captured()
        except BaseException:
            self.close()
            raise
        self._slots = [_Slot({name: self._host_copy(value) for name, value in example.items()}) for _ in range(slots)]
        self._free = threading.Semaphore(slots)
        self._lock = threading.Lock()

    def _new_stream(self) -> Any:
        try:
            return _idle[str(self.device)].pop()
        except IndexError:
            return self.torch.cuda.Stream(self.place)

    def _on_stream(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(self.torch.inference_mode())
        if self.stream is not None:
            # Switches to the stream's GPU as well.
            stack.enter_context(self.torch.cuda.stream(self.stream))
        return stack

    def _warm(self, pictures: Any) -> Mapping[str, Any]:
        """Runs as often as libraries need to choose their kernels."""
        torch = self.torch
        choose = torch.backends.cudnn.flags(enabled=True, benchmark=True) if self.device.is_cuda else nullcontext()
        with choose:
            for _ in range(3 if self.device.is_cuda else 1):
                outputs = self.program(pictures)
        if self.stream is not None:
            self.stream.synchronize()
        return outputs

    def _captured(self) -> dict[int, tuple[Any, Mapping[str, Any]]]:
        """The graphs by size."""
        with self._on_stream():
            pool = self.torch.cuda.graph_pool_handle()
            return {size: self._capture(size, pool) for size in reversed(self.sizes)}

    def _capture(self, size: int, pool: Any) -> tuple[Any, Mapping[str, Any]]:
        """One graph.

        A decoder that opens or closes meanwhile, see ``captures``, spoils it, and comes to no harm: it is begun anew then.

        Raises:
            ModelLoadError: The network does what a graph cannot hold.
        """
        pictures, attempts = self.input[:size], 0
        self._warm(pictures)
        while True:
            attempts += 1
            try:
                with capture():
                    return self._record(pictures, pool)
            except _SpoiltError as error:
                reason = str(error).partition("\n")[0]
                if FORBIDDEN in reason or attempts == ATTEMPTS:
                    hint = "model-args=graphs=false does without graphs"
                    raise ModelLoadError(f"the network cannot become a CUDA graph: {reason}", hint=hint) from error
                log.info("the graph of %d pictures is captured anew: %s", size, reason)

    def _record(self, pictures: Any, pool: Any) -> tuple[Any, Mapping[str, Any]]:
        torch = self.torch
        torch.cuda.synchronize(self.place)
        # What is cached serves no graph.
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        outputs: Mapping[str, Any] = {}
        failure: BaseException | None = None
        try:
            # Other threads may decode video meanwhile: only this thread's calls are held to the rules of capture.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):
                outputs = self.program(pictures)
        except BaseException as error:
            failure = error
        try:
            graph.capture_end()
        except RuntimeError as error:
            self._settle(graph, pictures)
            if failure is None or isinstance(failure, Exception):
                # What came first says why; libraries have words of their own for a capture that another thread spoilt.
                raise _SpoiltError(str(failure or error)) from error
        if failure is not None:
            raise failure
        return graph, outputs

    def _settle(self, graph: Any, pictures: Any) -> None:
        """Brings torch to the end of a capture that CUDA ended with an error.

        ``capture_end`` raises then before it has told torch's allocators, which would give no memory back for the rest of
        the process. It ends well with a capture of something else in the place of the spoilt one.
        """
        begin, stream = C.CDLL("libcuda.so.1").cuStreamBeginCapture_v2, C.c_void_p(self.stream.cuda_stream)
        for _ in range(ATTEMPTS):
            if begin(stream, THREAD_LOCAL):
                continue
            with suppress(RuntimeError):
                pictures.zero_()
            try:
                graph.capture_end()
            except RuntimeError:
                continue
            return

    def _host_copy(self, value: Any) -> Any:
        return self.torch.empty(value.shape, dtype=value.dtype, pin_memory=self.device.is_cuda)

    def submit(self, images: Sequence[Image], transforms: Sequence[ImageTransform]) -> Results:
        """Gives a batch to the device.

        Args:
            images: At most ``sizes[-1]``, all on the engine's device or all in host memory. Their memory must stay valid
                until the results are there.
            transforms: One per picture.

        Returns:
            Waits for the results; enter and leave it once.
        """
        self._free.acquire()
        with self._lock:
            slot = self._slots.pop()
        try:
            # Replaying a graph needs no inference mode.
            with self.torch.cuda.stream(self.stream) if self._graphs else self._on_stream():
                self._fill(images, transforms)
                for target, source in self._run(slot, len(images)):
                    target.copy_(source, non_blocking=True)
                if self.stream is not None:
                    slot.event = self._end(slot, alone=len(images) == 1)
                    slot.event.record(self.stream)
        except BaseException:
            self.give_back(slot)
            raise
        return Results(self, slot, len(images))

    def _end(self, slot: _Slot, alone: bool) -> Any:
        """The slot's event behind a batch. Who waits for a batch sleeps; for a single picture that would take too long."""
        event = slot.events.get(alone)
        if event is None:
            event = slot.events[alone] = self.torch.cuda.Event(blocking=not alone)
        return event

    def give_back(self, slot: _Slot) -> None:
        """The slot's memory may be written again."""
        with self._lock:
            self._slots.append(slot)
        self._free.release()

    def _fill(self, images: Sequence[Image], transforms: Sequence[ImageTransform]) -> None:
        count = len(images)
        if images[0].device.is_cuda == self.device.is_cuda and self.stream is not None:
            prepare(images, self.spec, transforms=transforms, out=self.input)
            return
        if self.stream is None:
            prepare(images, self.spec, transforms=transforms, out=self.input.numpy())
            return
        if not self._staging:
            self._staging = [
                (self.torch.zeros(self._shape, dtype=self._dtype, pin_memory=True), self.torch.cuda.Event())
                for _ in range(2)
            ]
        host, event = self._staging[0]
        self._staging.reverse()
        event.synchronize()
        prepare(images, self.spec, transforms=transforms, out=host.numpy())
        self.input[:count].copy_(host[:count], non_blocking=True)
        event.record(self.stream)

    def _run(self, slot: _Slot, count: int) -> list[tuple[Any, Any]]:
        """Runs the network; gives the slot's arrays and the outputs to copy there."""
        size = graph_size(count, self.sizes)
        if not self._graphs:
            outputs = self.program(self.input[:size])
            return [(target[:count], outputs[name][:count]) for name, target in slot.outputs.items()]
        graph, outputs = self._graphs[size]
        graph.replay()
        copies = slot.copies.get((size, count))
        if copies is None:
            copies = [(target[:count], outputs[name][:count]) for name, target in slot.outputs.items()]
            slot.copies[size, count] = copies
        return copies

    def close(self) -> None:
        """Waits for the stream, and lets go of it and of the graphs. Call it once."""
        if self.stream is not None:
            self.stream.synchronize()
            self._graphs.clear()
            _idle[str(self.device)].append(self.stream)


class Results:
    """One batch under way. A context: entering waits and gives the rows of the batch by output name, in pinned memory that
    the engine takes back on leaving."""

    def __init__(self, engine: Engine, slot: _Slot, count: int) -> None:
        self._engine, self._slot, self._count = engine, slot, count

    def __enter__(self) -> dict[str, NDArray[Any]]:
        try:
            if self._slot.event is not None:
                self._slot.event.synchronize()
        except BaseException:
            self.__exit__()
            raise
        count, arrays = self._count, self._slot.arrays
        if count not in arrays:
            arrays[count] = {name: np.asarray(value[:count]) for name, value in self._slot.outputs.items()}
        return arrays[count]

    def __exit__(self, *_: object) -> None:
        self._engine.give_back(self._slot)
