"""Models on a server, over both forms of the KServe v2 protocol, against a server of this test."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.errors import PredictError
from gstinfer.models.triton import TritonRuntime, triton_model

WHITE = np.full((64, 64, 3), 255, np.uint8)
BLACK = np.zeros((64, 64, 3), np.uint8)
SET = {"head": "yolo-e2e", "labels": "black,b,c,blue"}


def server_of(kind: str, **options):
    pytest.importorskip("tritonclient")
    pytest.importorskip("grpc" if kind == "grpc" else "geventhttpclient")
    from kserve_server import GrpcServer, HttpServer

    return (GrpcServer if kind == "grpc" else HttpServer)(**options)


@pytest.fixture(params=["http", "grpc"])
def server(request):
    made = server_of(request.param)
    yield made
    made.stop()


def test_a_model_on_a_server_gives_objects(server):
    model = as_model(f"triton:{server.address}/oracle", **SET)
    first, second = model.predict([BLACK, WHITE])
    assert first.xyxy.tolist() == [[4, 4, 20, 20]] and first.label == ["black"]
    assert second.xyxy.tolist() == [[4, 4, 52, 52]] and second.label == ["blue"]
    assert server.rows[-1] == 2


def test_a_version_may_be_named(server):
    runtime = TritonRuntime(f"{server.address}/oracle/1")
    assert runtime.info.inputs[0].shape == (None, 3, 64, 64)
    assert runtime.info.outputs[0].dtype == "float32"
    runtime.close()


def test_metadata_of_the_server_decides_the_head():
    """Where a server tells parameters of a model, nothing needs to be set."""
    server = server_of("http")
    model = as_model(f"triton:{server.address}/oracle")
    assert model.predict([WHITE])[0].label == ["blue"]
    assert ("head", "yolo-e2e") in [row[:2] for row in model.model.describe()]
    server.stop()


def test_another_thread_may_predict(server):
    """The runner loads on one thread and predicts on another."""
    model, found = as_model(f"triton:{server.address}/oracle", **SET), []
    thread = threading.Thread(target=lambda: found.extend(model.predict([WHITE])))
    thread.start()
    thread.join(10)
    assert [len(detections) for detections in found] == [1]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_requests_hold_what_the_model_takes_at_most(kind):
    server = server_of(kind, max_batch=2)
    model = as_model(f"triton:{server.address}/oracle", **SET)
    del server.rows[:]
    assert [round(float(d.xyxy[0, 2])) for d in model.predict([BLACK, WHITE, BLACK, WHITE, WHITE])] == [20, 52, 20, 52, 52]
    assert server.rows == [2, 2, 1]
    server.stop()


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_are_binary_where_the_server_has_that_extension(binary):
    server = server_of("http", binary=binary)
    assert as_model(f"triton:{server.address}/oracle", **SET).predict([WHITE])[0].label == ["blue"]
    assert server.binary is binary
    server.stop()


def test_a_model_that_is_not_there(server):
    with pytest.raises(ModelLoadError, match=r"the model 'other' .* cannot be asked: .*unknown model") as caught:
        as_model(f"triton:{server.address}/other")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_that_is_not_there(kind):
    server = server_of(kind)
    server.stop()
    with pytest.raises(ModelLoadError, match=r"the server .* cannot be asked") as caught:
        as_model(f"triton:{server.address}/oracle", timeout=2)
    assert "\n" not in str(caught.value)


def test_a_server_that_stops_is_an_error_of_the_frame_and_may_come_back(server):
    model = as_model(f"triton:{server.address}/oracle", timeout=0.5, **SET)
    server.delay = 1.5
    with pytest.raises(PredictError, match="gave no answer"):
        model.predict([WHITE])
    server.delay = 0.0
    assert len(model.predict([WHITE])[0]) == 1


def test_a_shape_the_server_refuses_is_said(server):
    runtime = TritonRuntime(f"{server.address}/oracle")
    with pytest.raises(PredictError, match=r"unexpected shape \[1, 3, 32, 32\]"):
        runtime.run({"images": np.zeros((1, 3, 32, 32), np.float32)})


def test_a_size_that_does_not_fit_is_refused_before_it_is_sent(server):
    with pytest.raises(ConfigError, match="input-size=32x32 does not fit"):
        as_model(f"triton:{server.address}/oracle", input_size=32, **SET)


@pytest.mark.parametrize(
    "address", ["", "oracle", "ftp://host/model", "grpc://host", "grpc://host:9/a/b/c", "http://:8000/m", "grpc://h:x/m"]
)
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigError, match="is no address of a model"):
        triton_model(address)


def test_threads_mean_nothing(server):
    with pytest.raises(ConfigError, match="threads=2 means nothing"):
        as_model(f"triton:{server.address}/oracle", threads=2)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_without_tritonclient_the_pip_line_is_said(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, f"tritonclient.{kind}", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[triton\]'"):
        as_model(f"triton:{kind}://127.0.0.1:1/oracle")
