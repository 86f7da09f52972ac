"""PyTorch networks as models: ``FILE.pt2``, ``FILE.torchscript``, and modules that Python code builds.

On a GPU, batches go through a ``torch_engine.Engine``: graphs per batch size, decoding on the device, several batches in
flight. ``submit(batch)`` gives the batch to the device and returns at once an object whose ``result()`` waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError, PredictError
from gstinfer.frames import FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.heads.device import DeviceDecoder
from gstinfer.image import Device
from gstinfer.models.network import NetworkModel
from gstinfer.models.torch_engine import GRAPH_SIZES, Engine, Results
from gstinfer.models.torch_load import PRECISIONS, open_network, torch_library
from gstinfer.results import Result
from gstinfer.settings import option

__all__ = ["Pending", "TorchModel", "TorchRuntime", "torch_model"]

ROWS = "rows"
"""Name of the one output where decoding is done on the device."""


class TorchRuntime:
    """A network of PyTorch behind ``models.runtime.Runtime``.

    Args:
        path: See ``torch_load.open_network``.
        device: Where to run.
        threads: Threads of one run on the CPU, 0 for torch's own choice; torch has one number for the whole process.
        **options: Of ``open_network``.
    """

    def __init__(self, path: str, device: Device, threads: int = 0, **options: Any) -> None:
        self.torch = torch_library(device)
        self.device = device
        if threads and not device.is_cuda:
            self.torch.set_num_threads(threads)
        network = open_network(path, device, **options)
        self.call, self.info = network.call, network.info
        self.place = self.torch.device(str(device))

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch of NumPy arrays or tensors; NumPy arrays come back."""
        torch = self.torch
        tensors = [torch.as_tensor(feeds[item.name], device=self.place) for item in self.info.inputs]
        with torch.inference_mode():
            outputs = self.call(*tensors)
        found = {name: value for name, value in outputs.items()}
        return {name: (v.float() if v.dtype == torch.bfloat16 else v).cpu().numpy() for name, v in found.items()}

    def close(self) -> None:
        self.call = None  # type: ignore[assignment]


class Pending:
    """A batch that was submitted, as one or several runs."""

    def __init__(self, model: TorchModel, runs: list[tuple[Results, list[ImageTransform]]]) -> None:
        self._model, self._runs = model, runs

    def result(self) -> list[Result | tuple[Result, ...]]:
        """Waits, then gives one result per frame. Call it once, from any thread."""
        found: list[Result | tuple[Result, ...]] = []
        for results, transforms in self._runs:
            found += self._model._finish(results, transforms)
        return found


class _Done:
    """Results that were there at once."""

    def __init__(self, results: list[Result | tuple[Result, ...]]) -> None:
        self._results = results

    def result(self) -> list[Result | tuple[Result, ...]]:
        return self._results


class TorchModel(NetworkModel):
    """A PyTorch network with everything around it.

    Args:
        path: See ``torch_load.open_network``.
        defaults: Options of a ready model, which its user's options override.
        **options: See the attributes below and ``NetworkModel``'s.
    """

    precision = option(
        str, "auto", "Type of a module's weights; auto is a file's own, and float16 for a module on a GPU",
        choices=PRECISIONS,
    )  # fmt: skip
    weights = option(str, "", "State of a module: a .safetensors file or a checkpoint of tensors")
    trust = option(bool, False, "Whether pickled Python code inside a checkpoint may run")
    graphs = option(bool, True, "Whether to capture CUDA graphs at load")
    largest_batch = option(int, 32, "Most pictures of one run on a GPU; graphs are captured up to it", minimum=1)

    def __init__(self, path: str, *, defaults: Mapping[str, Any] | None = None, **options: Any) -> None:
        file = path if ":" not in path else None
        super().__init__(self._opened, path=file, name=path, defaults=defaults, **options)
        self._target = path
        self._engine: Engine | None = None
        self._decoder: DeviceDecoder | None = None
        self._plans: dict[tuple[int, int], ImageTransform] = {}
        self._settings_lock = threading.Lock()

    def _opened(self, device: Device, threads: int) -> TorchRuntime:
        return TorchRuntime(
            self._target,
            device,
            threads,
            size=self._find("input_size")[0],
            precision=self.precision,
            weights=self.weights,
            trust=self.trust,
        )

    def load(self, device: Device) -> None:
        """Opens the network, decides everything, and on a GPU captures its graphs.

        Raises:
            MissingDependencyError: torch is not installed.
            ConfigError: An option does not fit, or the GPU is not there.
            ModelLoadError: The network cannot be opened.
        """
        super().load(device)
        if device.is_cuda and len(self._info.inputs) == 1 and self.preprocessing.dtype in ("float16", "float32"):
            try:
                self._start(device)
            except BaseException:
                self.close()
                raise

    def _start(self, device: Device) -> None:
        """The engine; separate from ``load`` so that it can be tried on the CPU."""
        runtime = self._runtime
        assert isinstance(runtime, TorchRuntime)
        torch = runtime.torch
        rows = self.max_batch
        below = [size for size in GRAPH_SIZES if size < self.largest_batch]
        sizes = (rows,) if rows else (*below, self.largest_batch)
        self._decoder = decoder = DeviceDecoder(self._head) if DeviceDecoder.supports(self._head) else None
        self._iou = torch.zeros((), device=runtime.place)
        self._agnostic = torch.zeros((), dtype=torch.bool, device=runtime.place)
        self._said: tuple[float, bool] | None = None

        def program(pictures: Any) -> dict[str, Any]:
            outputs = runtime.call(pictures)
            if decoder is not None:
                return {ROWS: decoder.select(outputs, self._iou, self._agnostic)}
            return {n: v.float() if v.dtype in (torch.float16, torch.bfloat16) else v for n, v in outputs.items()}

        self._engine = Engine(torch, program, self.preprocessing, device, sizes, graphs=self.graphs)
        self.max_batch = sizes[-1]
        self._plans.clear()

    def submit(self, batch: FrameBatch) -> Pending | _Done:
        """Gives a batch to the GPU; on the CPU it is predicted here.

        The frames' memory must stay valid until ``result()`` has returned.

        Raises:
            PredictError: The model is not loaded.
            ConfigError: The frames lie on another GPU than the model.
        """
        engine = self._engine
        if engine is None:
            return _Done(super().predict(batch))
        if self._runtime is None:
            raise PredictError(f"{self.name} is not loaded", hint="call load(device) first")
        if batch.device.is_cuda and batch.device != self.device:
            raise ConfigError(
                f"the frames lie on {batch.device}, the model {self.name} on {self.device}",
                hint=f"set device={batch.device}, or bring the frames over",
            )
        start = time.perf_counter()
        images = [frame.image for frame in batch]
        transforms = [self._plan(image.size) for image in images]
        limit, runs = engine.sizes[-1], []
        with self._settings_lock:
            self._tell(engine)
            for at in range(0, len(images), limit):
                part = transforms[at : at + limit]
                runs.append((engine.submit(images[at : at + limit], part), part))
        self.stage_seconds["prepare"] += time.perf_counter() - start
        return Pending(self, runs)

    def _plan(self, size: tuple[int, int]) -> ImageTransform:
        found = self._plans.get(size)
        if found is None:
            spec = self.preprocessing
            found = self._plans[size] = ImageTransform.plan(size, spec.size, spec.resize)
        return found

    def _tell(self, engine: Engine) -> None:
        """Brings thresholds that decoding on the device needs there, when they changed."""
        thresholds = self.thresholds
        said = thresholds.iou, thresholds.class_agnostic
        if said != self._said:
            with engine._on_stream():
                self._iou.fill_(said[0])
                self._agnostic.fill_(said[1])
            self._said = said

    def _finish(self, results: Results, transforms: Sequence[ImageTransform]) -> Sequence[Result | tuple[Result, ...]]:
        start = time.perf_counter()
        with results as arrays:
            ran = time.perf_counter()
            if self._decoder is not None:
                found: Sequence[Any] = self._decoder.finish(arrays[ROWS], transforms, self.thresholds)
            else:
                # Results may be views, and the pinned memory is written again.
                kept = {name: np.array(value) for name, value in arrays.items()}
                found = self._head.decode(kept, transforms, self.thresholds)
        self.stage_seconds["run"] += ran - start
        self.stage_seconds["decode"] += time.perf_counter() - ran
        return found

    def predict(self, batch: FrameBatch) -> list[Result | tuple[Result, ...]]:
        """One result per frame, in frame pixels."""
        if not len(batch):
            return []
        return self.submit(batch).result()

    def close(self) -> None:
        engine, self.__dict__["_engine"] = self.__dict__.get("_engine"), None
        if engine is not None:
            engine.close()
        super().close()


def torch_model(path: str, **options: Any) -> TorchModel:
    """The model behind ``torch:PATH``; the options are those of ``TorchModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError(
            "no PyTorch network is named", hint="write torch:FILE.pt2, torch:FILE.torchscript or torch:module:factory"
        )
    return TorchModel(str(path), **options)
