"""``gstinfer run``: a model on videos, to pictures and messages."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext

import click

from gstinfer.errors import MissingDependencyError

__all__ = ["command"]


@click.command("run")
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@click.option("--model", "-m", required=True, metavar="SPEC", help="nanodet-coco, yolo.onnx, my_models:Yolo, file.py:Yolo.")
@click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE[,...]",
    help="auto, cpu, cuda:N, or several GPUs that share the inputs: cuda:0,cuda:1.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A property of pyinfer, or of another element: pyoverlay.NAME=VALUE. May be repeated.",
)
@click.option("--track", default="bytetrack", show_default=True, metavar="NAME|none", help="Tracker.")
@click.option(
    "--then", default="", metavar="SPEC",
    help="A second model, for the objects that were found: a classifier, faces. --set then.infer-on-class-ids=0 chooses some.",
)
@click.option(
    "--vlm", default="", metavar="SPEC",
    help="A vision-language model beside it: openai:URL#MODEL, transformers:FOLDER, my_vlm:MyClass.",
)
@click.option("--prompt", default="", metavar="TEXT", help="What the vision-language model is asked.")
@click.option("--output", "-o", metavar="FILE|DIR", help="Annotated video as MP4; a folder for several inputs.")
@click.option("--show", is_flag=True, help="Show the annotated video in a window.")
@click.option("--jsonl", metavar="FILE|-", help="One JSON message a frame; - for standard output, with nothing else on it.")
@click.option("--publish", multiple=True, metavar="URL", help="Another target for the messages. May be repeated.")
@click.option("--max-frames", type=click.IntRange(min=1), metavar="N", help="End each input after N frames.")
@click.option("--tile", is_flag=True, help="Write one picture of all inputs to --output.")
@click.option("--control", metavar="SOCKET", help="Unix socket for gstinfer ctl.")
@click.option("--rest", metavar="[HOST:]PORT", help="REST API, on this machine alone unless HOST says otherwise.")
@click.option("--metrics", metavar="[HOST]:PORT", help="Counters for Prometheus.")
@click.option("--stay", is_flag=True, help="Go on without any input, for those that --control or --rest add.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Processes that share the inputs, each with a model of its own.",
)
@click.option(
    "--attempts", type=click.IntRange(min=0), metavar="N",
    help="Failures in a row after which a camera counts as failed; 0 for never. Default: a few until it gave a frame.",
)
def command(
    inputs: tuple[str, ...],
    model: str,
    device: str,
    settings: tuple[str, ...],
    track: str,
    then: str,
    vlm: str,
    prompt: str,
    output: str | None,
    show: bool,
    jsonl: str | None,
    publish: tuple[str, ...],
    max_frames: int | None,
    tile: bool,
    control: str | None,
    rest: str | None,
    metrics: str | None,
    stay: bool,
    workers: int,
    attempts: int | None,
) -> None:
    """Runs a model on each INPUT: a video, a picture, a folder of pictures, a pattern such as 'clips/*.mp4', rtsp://...,
    v4l2:/dev/video0, - for standard input, or test:PATTERN. Put -- before a name that begins with a dash.

    Without --output, --show, --jsonl and --publish it prints the summary only. Ctrl-C and SIGTERM finish the files. The
    exit code is 0 when every input was processed, 1 when any failed, 2 for a wrong command line.
    """
    try:
        from gstinfer.app.control import ControlSocket
        from gstinfer.app.metrics import MetricsServer
        from gstinfer.app.rest import RestServer
        from gstinfer.app.session import Job, Session, stop_on_signals
        from gstinfer.app.workers import Workers
    except ImportError as error:
        if error.name != "gi":
            raise
        raise MissingDependencyError("gi", purpose="GStreamer in Python; apt-get install python3-gst-1.0") from error
    if not inputs and not stay:
        raise click.UsageError("Missing argument 'INPUT...'.")
    if stay and not (control or rest):
        raise click.UsageError("--stay needs --control or --rest.")
    from gstinfer.cli.console import Reporter
    from gstinfer.publish.jsonl import stdout_alone

    urls = list(publish)
    if jsonl is not None:
        urls.insert(0, "stdout:" if jsonl == "-" else f"file:{jsonl}")
    messages_on_stdout = any(url.startswith("stdout:") for url in urls)
    with stdout_alone() if messages_on_stdout else nullcontext():
        job = Job(
            inputs, model, device, settings, track, output, urls, max_frames, tile, stay, attempts, vlm, prompt, show, then
        )
        session = Session(job) if workers == 1 else Workers(job, workers)
        with ExitStack() as stack:
            stack.enter_context(stop_on_signals(session))
            if control:
                stack.callback(ControlSocket(session, control).close)
            if rest:
                server = RestServer(session, rest, os.environ.get("GSTINFER_TOKEN", ""))
                stack.callback(server.close)
                own = "is GSTINFER_TOKEN" if os.environ.get("GSTINFER_TOKEN") else server.token
                click.echo(f"REST API at {server.url}, token {own}", err=True)
            if metrics:
                stack.callback(MetricsServer(session, metrics).close)
            reporter = stack.enter_context(Reporter(session, to_stderr=messages_on_stdout))
            good = session.run(reporter.tick)
        reporter.summary()
    sys.exit(0 if good else 1)
