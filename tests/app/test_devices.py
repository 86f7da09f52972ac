"""``--device``: what it may say, and which GPU the next stream gets."""

from __future__ import annotations

import pytest

pytest.importorskip("gi")

from gstinfer.app import devices
from gstinfer.app.devices import Seat, least_loaded, on_one_core, parse_devices, resolve
from gstinfer.app.session import Job, Session
from gstinfer.errors import ConfigError
from gstinfer.image import Device


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("auto", []), (" Auto ", []), ("cpu", ["cpu"]), ("cuda", ["cuda:0"]), ("cuda:3", ["cuda:3"]),
        ("cuda:1, cuda:0", ["cuda:1", "cuda:0"]), ("cuda,cuda:1,cuda:7", ["cuda:0", "cuda:1", "cuda:7"]),
    ],
)  # fmt: skip
def test_devices(text, found):
    assert [str(device) for device in parse_devices(text)] == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("cuda:0,cuda:0", "names cuda:0 twice"), ("cuda,cuda:0", "names cuda:0 twice"), ("cpu,cuda:0", "names cpu beside"),
        ("cuda:0,auto", "names auto beside"), ("cuda:0,", "an empty name"), ("", "an empty name"), ("gpu", "'gpu'"),
        ("cuda:0,cuda:x", "'cuda:x'"), ("cuda:0;cuda:1", "unknown device"), ("cuda:-1", "unknown device"),
    ],
)  # fmt: skip
def test_what_is_no_device(text, word):
    with pytest.raises(ConfigError, match=word) as caught:
        Session(Job(["test:red"], "nanodet-coco", text))
    assert "cuda:0,cuda:1" in str(caught.value)


def test_a_gpu_that_is_not_there_is_refused_once_before_anything_is_opened(monkeypatch):
    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 2)
    assert [text for _, text in resolve("cuda:1,cuda:0", ["nanodet-coco"])] == ["cuda:1", "cuda:0"]
    with pytest.raises(ConfigError, match=r"cuda:2 was asked for, this machine has 2 NVIDIA GPUs"):
        Session(Job(["test:red", "test:blue"], "nanodet-coco", "cuda:0,cuda:2"))


@pytest.mark.parametrize(
    ("gpus", "able", "arguments", "found"),
    [(0, True, "", "auto"), (1, False, "", "auto"), (1, True, "provider=cpu", "auto"), (4, True, "", "cuda:0")],
)
def test_auto_is_the_gpu_where_the_model_runs_there(monkeypatch, gpus, able, arguments, found):
    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: gpus)
    monkeypatch.setattr(devices, "_onnx", lambda: able)
    assert resolve("auto", ["nanodet-coco"], arguments) == ((Device("cuda") if "cuda" in found else Device(), found),)


def test_auto_leaves_models_of_ones_own_on_the_cpu(monkeypatch):
    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 1)
    monkeypatch.setattr(devices, "_onnx", lambda: True)
    assert resolve("auto", ["nanodet-coco", "models:Mine"])[0][1] == "auto"


def test_the_next_stream_goes_where_the_fewest_are():
    seats = [Seat(Device("cuda", n), {}) for n in range(3)]
    taken: list[Seat | None] = [None]
    for _ in range(7):
        taken.append(least_loaded(seats, taken))
    assert [seats.index(seat) for seat in taken[1:]] == [0, 1, 2, 0, 1, 2, 0]
    taken.remove(seats[1])
    assert least_loaded(seats, taken) is seats[1]


def seat(model, device="cuda:0", then=None, **more):
    return Seat(Device.parse(device), {"pyinfer": {"model": model, "device": device, **more}, "then": then})


def test_python_gets_a_core_where_a_model_does_not_wait_for_its_gpu(tmp_path):
    text = "class Ahead:\n    def submit(self, batch): ...\nclass Waits:\n    def predict(self, batch): ...\n"
    (tmp_path / "m.py").write_text(text)
    ahead, waits = f"{tmp_path}/m.py:Ahead", f"{tmp_path}/m.py:Waits"
    assert on_one_core(seat(ahead)) == on_one_core(seat("torch:net.pt2")) == on_one_core(seat("net.pt2")) == ["pyinfer"]
    for model in (waits, f"{tmp_path}/m.py:Absent", "nanodet-coco", "net.onnx"):
        assert on_one_core(seat(model)) == []
    for other in (seat(ahead, "cpu"), seat(ahead, cpu_cores="0"), seat(ahead, cpu_cores="")):
        assert on_one_core(other) == []
    (tmp_path / "broken.py").write_text("class Ahead(")
    assert on_one_core(seat(f"{tmp_path}/broken.py:Ahead")) == []
    behind = {"model": ahead, "device": "cuda:0"}
    assert on_one_core(seat(ahead, then=behind)) == ["pyinfer", "then"]
    assert on_one_core(seat(waits, then=behind)) == ["then"]
    assert on_one_core(seat(ahead, then={**behind, "device": "cpu"})) == ["pyinfer"]


@pytest.mark.parametrize("spec", ["m_of_test_devices.py:Ahead", "m_of_test_devices:Ahead"])
def test_the_users_file_is_not_run_for_that(tmp_path, monkeypatch, spec):
    text = "raise SystemExit('it ran')\nclass Ahead:\n    def submit(self, batch): ...\n"
    (tmp_path / "m_of_test_devices.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert on_one_core(seat(spec)) == ["pyinfer"]
    assert on_one_core(seat("no_such_module_of_test_devices:Ahead")) == on_one_core(seat("no_such.package:Ahead")) == []
