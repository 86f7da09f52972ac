# SPDX-License-Identifier: Apache-2.0
"""Runs pipelines with pyinfer on the stand-in, in a process of their own."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "deepstream"

SCRIPT = """
import json, sys
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
import gstinfer
from gstinfer.testing import run_pipeline
frames = []
def prepare(pipeline):
    {prepare}
def each(pipeline, number):
    pass
run = run_pipeline(sys.argv[1], prepare=prepare, timeout={limit})
told = dict(eos=run.eos, error=run.error, warnings=run.warnings, messages=run.messages, stats=run.stats, pts=run.pts)
sys.stdout.flush()
if run.error:
    print(run.debug, file=sys.stderr)
print("TOLD " + json.dumps(told | dict(frames=frames), default=str), file=sys.stderr)
"""

READ = """
    def probe(pad, info):
        frames.append([describe(f) for f in gstinfer.read_frames(info.get_buffer())])
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
"""


WORKER = """
import ctypes, gc, io, json, os, sys, traceback
replies = os.fdopen(os.dup(1), "w")
libc, meta = ctypes.CDLL(None), ctypes.CDLL(os.environ["DEEPSTREAM_DIR"] + "/lib/libnvds_meta.so")
meta.nvds_standin_counters.restype = ctypes.c_void_p
meta.nvds_standin_free.argtypes = [ctypes.c_void_p]
for line in sys.stdin:
    script, pipeline, path = json.loads(line)
    out = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.dup2(out, 1)
    os.close(out)
    meta.nvds_standin_reset_counters()
    sys.argv, sys.stderr, code = ["-c", pipeline], io.StringIO(), 0
    try:
        exec(script, {"__name__": "__main__"})
    except BaseException:
        code = 1
        traceback.print_exc()
    gc.collect()
    sys.stdout.flush()
    libc.fflush(None)
    text = meta.nvds_standin_counters()
    counters = json.loads(ctypes.string_at(text))
    meta.nvds_standin_free(text)
    replies.write(json.dumps([code, sys.stderr.getvalue(), counters]) + "\\n")
    replies.flush()
"""


class Worker:
    """A process that runs one pipeline after the other, for those that change nothing in it."""

    _all: ClassVar[dict[Any, Worker]] = {}

    def __init__(self, standin, environment: dict[str, str]) -> None:
        handle, name = tempfile.mkstemp(suffix=".jsonl")
        os.close(handle)
        self.output = Path(name)
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=standin.environment(**environment),
            text=True,
        )
        atexit.register(self.close)

    @classmethod
    def of(cls, standin, environment: dict[str, str]) -> Worker:
        """The one of a stand-in and an environment; a new one where it has ended."""
        key = (standin.directory, *sorted(environment.items()))
        if key not in cls._all or cls._all[key].process.poll() is not None:
            cls._all[key] = cls(standin, environment)
        return cls._all[key]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.unlink(missing_ok=True)

    def run(self, script: str, pipeline: str, timeout: float) -> tuple[int, str, str, dict[str, Any]]:
        """Exit code, standard output and error, counters."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([script, pipeline, str(self.output)]) + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            answer = self.process.stdout.readline() if selector.select(timeout) else ""
        if not answer:
            self.process.kill()
            self.errors.seek(0)
            raise AssertionError(f"the process that runs pipelines ended or hung: {self.errors.read()}")
        code, errors, counters = json.loads(answer)
        return code, self.output.read_text(encoding="utf-8", errors="surrogateescape"), errors, counters


@dataclass
class Told:
    """What a run gave: the stand-in's ``run``, and what Python saw."""

    run: Any
    error: str | None
    warnings: list[str]
    stats: dict[str, Any]
    frames: list[Any]
    eos: bool
    messages: list[str]

    def dumps(self) -> list[dict[str, Any]]:
        return self.run.kind("dump")

    def first(self) -> dict[str, Any]:
        """The first frame of the first batch."""
        return self.dumps()[0]["batch"]["frames"][0]


def source(n: int = 2, form: str = "NV12", w: int = 160, h: int = 120, pad: int = 0, pattern: str = "red") -> str:
    return (
        f"videotestsrc num-buffers={n} pattern={pattern} ! video/x-raw,format={form},width={w},height={h},framerate=25/1 "
        f"! m.sink_{pad} "
    )


def run(
    standin,
    pipeline: str,
    *,
    prepare: str = "pass",
    read: str = "",
    timeout: float = 90,
    limit: int = 60,
    shared: bool | None = None,
    **env: str,
) -> Told:
    """Runs a pipeline; its sink is called ``sink``.

    Args:
        standin: The built stand-in.
        pipeline: Launch description.
        prepare: Python lines that see ``pipeline`` before it starts.
        read: Python expression of ``f``, a FrameResults, collected for each frame at the sink.
        timeout: Seconds for the process.
        limit: Seconds for the pipeline.
        shared: Whether other pipelines may have run in the process, and will; None where nothing speaks against it.
        **env: Environment.
    """
    script = SCRIPT.replace("{limit}", str(limit)).replace("{prepare}", prepare + (READ if read else ""))
    if read:
        script = script.replace("frames = []", f"import numpy as np\nframes = []\ndescribe = lambda f: {read}", 1)
    environment = {"PYTHONPATH": str(HERE), "NVDS_STANDIN_POISON": "1", **env}
    if shared is None:
        shared = prepare == "pass" and not env and not standin.sanitize
    if shared:
        code, output, errors, counters = Worker.of(standin, environment).run(script, pipeline, timeout)
        ran = standin.result(code, output, errors, counters)
    else:
        ran = standin.run([sys.executable, "-c", script, pipeline], timeout, **environment)
    line = next((x for x in ran.stderr.splitlines() if x.startswith("TOLD ")), None)
    assert line is not None, f"exit code {ran.code}: {ran.stderr}"
    told = json.loads(line[5:])
    return Told(
        ran, told["error"], told["warnings"], told["stats"], told["frames"], told["eos"], told["messages"]
    )


def balanced(told: Told) -> None:
    """Everything acquired was appended and given back, under the lock, and every payload released."""
    counters = told.run.counters
    assert counters["acquired"] == counters["appended"] == counters["released"]
    for name in ("acquired_unlocked", "double_append", "foreign", "never_appended"):
        assert not any(counters[name].values()), name
    for name in ("unlock_by_other", "destroyed_locked"):
        assert counters[name] == 0
    assert counters["batch_created"] == counters["batch_destroyed"] > 0
    assert counters["locked"] == counters["unlocked"]


def golden(name: str, found: Any) -> None:
    """Compares with a stored dump; GSTINFER_UPDATE_GOLDEN=1 stores it."""
    path, text = GOLDEN / f"{name}.json", json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("GSTINFER_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no golden dump {path.name}: set GSTINFER_UPDATE_GOLDEN=1 once"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(text)
