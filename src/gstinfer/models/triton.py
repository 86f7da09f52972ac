"""Models behind a server that speaks the KServe v2 protocol, such as Triton, over gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError, PredictError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.files import one_line, texts
from gstinfer.models.network import NetworkModel
from gstinfer.models.runtime import in_parts
from gstinfer.settings import option

__all__ = ["TritonModel", "TritonRuntime", "triton_model"]

TYPES = {
    "FP32": "float32",
    "FP16": "float16",
    "FP64": "float64",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
"""Datatype of the protocol -> NumPy's name."""

PORTS = {"grpc": 8001, "grpcs": 8001, "http": 8000, "https": 8000}
FORM = "triton:grpc://HOST:PORT/MODEL or triton:http://HOST:PORT/MODEL"


class TritonRuntime:
    """A model on a server.

    Args:
        address: ``grpc://host:port/model`` or ``http://host:port/model``, optionally with ``/version``; grpcs and https for
            encrypted connections.
        timeout: Seconds that one answer may take.

    Raises:
        MissingDependencyError: tritonclient is not installed.
        ConfigError: The address is none.
        ModelLoadError: The server cannot be reached, is not ready, or does not have the model.
    """

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        self.address, self._timeout = address, timeout
        scheme, host, self.model, self.version = _parts(address)
        self._grpc = scheme.startswith("grpc")
        self._library = _client_library("grpc" if self._grpc else "http")
        # The HTTP client belongs to the thread that made it, while models are loaded and run on different ones.
        self._thread = ThreadPoolExecutor(1, "gstinfer-triton")
        self._client = self._call(lambda: self._made(host, scheme.endswith("s")))
        # HTTP calls have the limits of the connection.
        self._limits: dict[str, Any] = {"client_timeout": timeout} if self._grpc else {}
        wire: dict[str, Any] = {"as_json": True, **self._limits} if self._grpc else {}
        try:
            server = self._asked(lambda: self._client.get_server_metadata(**wire), f"the server {scheme}://{host}")
            what = f"the model {self.model!r}{' version ' + self.version if self.version else ''} on {scheme}://{host}"
            found = self._asked(lambda: self._client.get_model_metadata(self.model, self.version, **wire), what)
            ready = self._asked(lambda: self._client.is_model_ready(self.model, self.version, **self._limits), what)
            if not ready:
                raise ModelLoadError(f"{what} is not ready", hint="look into the server's log")
            self._rows = self._largest_batch(wire)
        except BaseException:
            self.close()
            raise
        self._binary = self._grpc or "binary_tensor_data" in server.get("extensions", ())
        outputs = tuple(_tensor(item) for item in found.get("outputs", ()))
        inputs = tuple(_tensor(item) for item in found.get("inputs", ()))
        metadata = texts({k: _parameter(v) for k, v in (found.get("parameters") or {}).items()})
        self.info = NetworkInfo(inputs, outputs, metadata)
        self._datatypes = {item["name"]: item["datatype"] for item in found.get("inputs", ())}

    def _call(self, call: Callable[[], Any]) -> Any:
        return self._thread.submit(call).result()

    def _made(self, host: str, secure: bool) -> Any:
        if self._grpc:
            return self._library.InferenceServerClient(host, ssl=secure)
        return self._library.InferenceServerClient(
            host, ssl=secure, connection_timeout=self._timeout, network_timeout=self._timeout
        )

    def _asked(self, call: Callable[[], Any], what: str) -> Any:
        try:
            return self._call(call)
        except Exception as error:  # of gRPC, of sockets, of the client's own
            reason = one_line(error) or type(error).__name__
            raise ModelLoadError(
                f"{what} cannot be asked: {reason}", hint=f"check that it runs and the address: {FORM}"
            ) from error

    def _largest_batch(self, wire: Mapping[str, Any]) -> int | None:
        """Most rows of one request, where the server has Triton's extension that tells; else None."""
        try:
            config = self._call(lambda: self._client.get_model_config(self.model, self.version, **wire))
        except Exception:  # the extension is missing, which every server says in its own way
            return None
        config = config.get("config", config)
        return int(config.get("max_batch_size", 0)) or None

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch of arrays or tensors on the server.

        Raises:
            PredictError: The server refused it or did not answer in time; the next call asks again.
        """
        return in_parts(self._run, feeds, self._rows)

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        inputs = []
        for item in self.info.inputs:
            value = feeds[item.name]
            # Pictures on a GPU are prepared there, then sent like all others.
            value = np.ascontiguousarray(value.cpu().numpy() if hasattr(value, "data_ptr") else value)
            tensor = self._library.InferInput(item.name, list(value.shape), self._datatypes[item.name])
            tensor.set_data_from_numpy(value, **({} if self._grpc else {"binary_data": self._binary}))
            inputs.append(tensor)
        form = {} if self._grpc else {"binary_data": self._binary}
        wanted = [self._library.InferRequestedOutput(item.name, **form) for item in self.info.outputs]
        try:
            answer = self._call(
                lambda: self._client.infer(
                    self.model, inputs, model_version=self.version, outputs=wanted, **self._limits
                )
            )
        except Exception as error:
            raise PredictError(
                f"{self.address} gave no answer: {one_line(error) or type(error).__name__}",
                hint="look into the server's log, and at timeout=",
            ) from error
        found = {item.name: answer.as_numpy(item.name) for item in self.info.outputs}
        missing = sorted(name for name, value in found.items() if value is None)
        if missing:
            raise PredictError(f"{self.address} left out the output {', '.join(missing)}")
        return found

    def close(self) -> None:
        self._thread.submit(self._client.close)
        self._thread.shutdown()


class TritonModel(NetworkModel):
    """A model on a server with everything around it.

    Args:
        path: The address; see ``TritonRuntime``.
        **options: See the attribute below and ``NetworkModel``'s.
    """

    timeout = option(float, 10.0, "Seconds that one answer of the server may take", minimum=0.01)

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(self._opened, name=path, **options)
        self._address = path

    def _opened(self, device: Device, threads: int) -> TritonRuntime:
        if threads:
            raise ConfigError(f"threads={threads} means nothing for a model on a server", hint="leave it unset")
        return TritonRuntime(self._address, self._find("timeout")[0] or 10.0)


def triton_model(path: str, **options: Any) -> TritonModel:
    """The model behind ``triton:ADDRESS``; the options are those of ``TritonModel``.

    Raises:
        ConfigError: No address, or an option that is unknown or does not fit.
    """
    _parts(path)
    return TritonModel(path, **options)


def _parts(address: str) -> tuple[str, str, str, str]:
    """(scheme, host:port, model, version or empty) of an address."""
    try:
        split = urlsplit(address.strip())
        port = split.port
    except ValueError as error:
        raise ConfigError(f"{address!r} is no address of a model: {error}", hint=f"write {FORM}") from error
    names = [name for name in split.path.split("/") if name]
    if split.scheme not in PORTS or not split.hostname or len(names) not in (1, 2):
        raise ConfigError(f"{address!r} is no address of a model on a server", hint=f"write {FORM}")
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    return split.scheme, f"{host}:{port or PORTS[split.scheme]}", names[0], names[1] if len(names) > 1 else ""


def _client_library(kind: str) -> Any:
    try:
        if kind == "grpc":
            import tritonclient.grpc as library
        else:
            import tritonclient.http as library
    except (ImportError, RuntimeError) as error:  # it raises RuntimeError where a protocol's own library is missing
        raise MissingDependencyError("tritonclient", extra="triton", purpose=f"models on a server over {kind}") from error
    return library


def _tensor(item: Mapping[str, Any]) -> TensorInfo:
    """A tensor of the model's metadata; sizes come as text over gRPC."""
    shape = tuple(None if int(side) < 0 else int(side) for side in item.get("shape", ()))
    return TensorInfo(item["name"], shape, TYPES.get(item["datatype"], item["datatype"]))


def _parameter(value: Any) -> Any:
    """The plain value of a parameter, which gRPC wraps by its type."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value
