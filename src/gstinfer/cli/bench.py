"""``gstinfer bench``: how fast a model is here, which batch size is best, and what holds it back."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from gstinfer.errors import ConfigError

if TYPE_CHECKING:
    from gstinfer.app.bench import Report

__all__ = ["command"]


@click.command("bench")
@click.argument("model", metavar="MODEL")
@click.option("--streams", "-n", type=click.IntRange(1, 64), default=1, show_default=True, help="So many at once, too.")
@click.option("--input", "video", metavar="FILE", help="Video to decode; without it a short one is made.")
@click.option("--size", default="1280x720", show_default=True, help="Of the video that is made.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A property of pyinfer. May be repeated.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="A measurement.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    model: str,
    streams: int,
    video: str | None,
    size: str,
    device: str,
    settings: tuple[str, ...],
    seconds: float,
    as_json: bool,
) -> None:
    """Measures MODEL alone by batch size, inside pyinfer against a bare loop, and its steps."""
    from gstinfer.app import sources
    from gstinfer.app.bench import Bench, clip
    from gstinfer.app.settings import parse_settings
    from gstinfer.elements.infer.settings import InferSettings

    match = re.fullmatch(r"(\d+)x(\d+)", size)
    if match is None or not all(16 <= int(side) <= 8192 and int(side) % 2 == 0 for side in match.groups()):
        raise ConfigError(f"--size {size!r} is no even size of 16 to 8192 pixels a side", hint="write 1280x720")
    found = parse_settings(settings)
    if other := [element for element, values in found.items() if values and element != "pyinfer"]:
        raise ConfigError(f"--set {other[0]}... is not measured", hint="only properties of pyinfer are")
    chosen = InferSettings(**{**found["pyinfer"], "model": model, "device": device})
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    with ExitStack() as stack:
        if video is None:
            video = stack.enter_context(clip((int(match[1]), int(match[2]))))
        else:
            sources.probe(sources.Source(video, "file", video, "bench"))
        status = stack.enter_context(console.status(""))
        report = Bench(chosen, video, seconds).run(streams, status.update)
    if as_json:
        click.echo(json.dumps({**asdict(report), "overhead": report.overhead, "costs": report.costs, "bound": report.bound}))
    else:
        _show(console, report)


def _show(console: Console, report: Report) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for size, fps in report.batches.items():
        mark = "best" if size == report.best_batch else ""
        table.add_row(f"model alone, batch {size}", f"{fps:.1f} fps", mark)
    for step, ms in report.steps.items():
        table.add_row(f"  of it {step}", f"{ms:.2f} ms", "a frame")
    table.add_row("decoder alone", f"{report.decode:.1f} fps", "")
    table.add_row("decoder and model, bare loop", f"{report.bare:.1f} fps", "")
    ratio = report.pipeline / report.bare
    against = f"{ratio:.2f} of the bare loop, {report.overhead:+.2f} ms a frame"
    table.add_row("decoder and pyinfer", f"{report.pipeline:.1f} fps", against)
    if report.many is not None:
        fill = f"{report.fill:.1f} frames a batch" if report.fill is not None else ""
        table.add_row(f"{report.streams} streams", f"{report.many:.1f} fps", fill)
    if report.latency is not None:
        median, most = report.latency
        table.add_row("  time in pyinfer", f"{median:.1f} ms", f"median; 99 of 100 within {most:.1f} ms")
    console.print(table)
    costs = ", ".join(f"{name} {ms:.2f} ms" for name, ms in report.costs.items())
    console.print(f"The bound is {report.bound}: of a frame's time {costs}.", markup=False)
