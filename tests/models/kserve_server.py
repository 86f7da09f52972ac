"""A small server of the KServe v2 protocol over HTTP or gRPC, with one model: ``oracle`` of ``onnx_networks``, in NumPy."""

from __future__ import annotations

import json
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

__all__ = ["METADATA", "GrpcServer", "HttpServer", "answer"]

METADATA = {
    "name": "oracle",
    "versions": ["1"],
    "platform": "numpy",
    "inputs": [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 64, 64]}],
    "outputs": [{"name": "output0", "datatype": "FP32", "shape": [-1, 1, 6]}],
    "parameters": {
        "task": "detect",
        "end2end": "True",
        "names": "{0: 'black', 1: 'b', 2: 'c', 3: 'blue'}",
    },
}


def answer(pixels: np.ndarray) -> np.ndarray:
    """``[4, 4, 20 + 32R, 20 + 32G, 0.9, 3B]`` of the channels' means."""
    r, g, b = pixels.mean((2, 3)).T
    four = np.full_like(r, 4)
    return np.stack([four, four, 20 + 32 * r, 20 + 32 * g, np.full_like(r, 0.9), 3 * b], 1)[:, None].astype(np.float32)


class HttpServer:
    """The REST form, with the extension of binary tensors or without it.

    Attributes:
        address: ``http://host:port``.
        rows: Rows of each request so far.
        binary: Whether the last request's tensors were binary.
        delay: Seconds that each answer takes.
    """

    def __init__(self, binary: bool = True, max_batch: int | None = None) -> None:
        self.rows: list[int] = []
        self.binary, self.delay = False, 0.0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def send(self, content: bytes, status: int = 200, **headers: str) -> None:
                self.send_response(status)
                for key, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(key.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                time.sleep(server.delay)
                path = self.path.strip("/").replace("/versions/1", "")
                extensions = ["binary_tensor_data"] if binary else []
                pages: dict[str, Any] = {
                    "v2": {"name": "test", "version": "1", "extensions": extensions},
                    "v2/models/oracle": METADATA,
                    "v2/models/oracle/ready": {},
                }
                if max_batch is not None:
                    pages["v2/models/oracle/config"] = {"name": "oracle", "max_batch_size": max_batch}
                if path not in pages:
                    self.send(json.dumps({"error": f"unknown model or page {path!r}"}).encode(), 404)
                    return
                self.send(json.dumps(pages[path]).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(server.delay)
                length = int(self.headers.get("Inference-Header-Content-Length", len(body)))
                asked = json.loads(body[:length])
                item = asked["inputs"][0]
                server.binary = "data" not in item
                flat = np.frombuffer(body[length:], "<f4") if server.binary else np.array(item["data"], np.float32)
                if item["shape"][1:] != [3, 64, 64]:
                    self.send(json.dumps({"error": f"unexpected shape {item['shape']} for input 'images'"}).encode(), 400)
                    return
                server.rows.append(item["shape"][0])
                found = answer(flat.reshape(item["shape"]))
                output: dict[str, Any] = {"name": "output0", "datatype": "FP32", "shape": list(found.shape)}
                if server.binary:
                    output["parameters"] = {"binary_data_size": found.nbytes}
                else:
                    output["data"] = found.ravel().tolist()
                head = json.dumps({"model_name": "oracle", "outputs": [output]}).encode()
                if server.binary:
                    self.send(head + found.tobytes(), Inference_Header_Content_Length=str(len(head)))
                else:
                    self.send(head)

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Clients of these tests go away while they are answered."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class GrpcServer:
    """The gRPC form, by the service definition of ``tritonclient``.

    Attributes:
        address: ``grpc://host:port``.
        rows: Rows of each request so far.
        delay: Seconds that each answer takes.
    """

    def __init__(self, max_batch: int | None = None) -> None:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        self.rows: list[int] = []
        self.delay = 0.0
        server = self

        def known(request: Any, context: Any) -> None:
            name = getattr(request, "model_name", "") or getattr(request, "name", "")
            if name != "oracle":
                context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model {name!r}")

        class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
            def ServerMetadata(self, request: Any, context: Any) -> Any:
                return service_pb2.ServerMetadataResponse(name="test", version="1")

            def ModelReady(self, request: Any, context: Any) -> Any:
                return service_pb2.ModelReadyResponse(ready=request.name == "oracle")

            def ModelMetadata(self, request: Any, context: Any) -> Any:
                known(request, context)
                response = service_pb2.ModelMetadataResponse(name="oracle", versions=["1"], platform="numpy")
                for kind in ("inputs", "outputs"):
                    for item in METADATA[kind]:
                        getattr(response, kind).add(**item)
                return response

            def ModelConfig(self, request: Any, context: Any) -> Any:
                if max_batch is None:
                    context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such extension")
                response = service_pb2.ModelConfigResponse()
                response.config.name = "oracle"
                response.config.max_batch_size = max_batch
                return response

            def ModelInfer(self, request: Any, context: Any) -> Any:
                known(request, context)
                time.sleep(server.delay)
                shape = list(request.inputs[0].shape)
                if shape[1:] != [3, 64, 64]:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unexpected shape {shape} for input 'images'")
                server.rows.append(shape[0])
                found = answer(np.frombuffer(request.raw_input_contents[0], "<f4").reshape(shape))
                response = service_pb2.ModelInferResponse(model_name="oracle", model_version="1")
                response.outputs.add(name="output0", datatype="FP32", shape=list(found.shape))
                response.raw_output_contents.append(found.tobytes())
                return response

        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(), self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"grpc://127.0.0.1:{port}"

    def stop(self) -> None:
        self._server.stop(None)
