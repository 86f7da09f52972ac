"""``gstinfer parity``: whether a pipeline finds what a plain Python loop finds, and where they part."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gstinfer.errors import ConfigError, MissingDependencyError, UnknownNameError

if TYPE_CHECKING:
    from gstinfer.parity.compare import Report
    from gstinfer.parity.matching import Limits

__all__ = ["command"]

REFERENCES = ("auto", "onnxruntime", "ultralytics", "torchvision", "transformers", "rfdetr", "model")
LIMITS = ("matched", "iou", "score")


@click.command("parity")
@click.argument("model", metavar="MODEL")
@click.argument("video", metavar="VIDEO")
@click.option(
    "--reference", type=click.Choice(REFERENCES), default="auto", show_default=True,
    help="What the pipeline is held against; model is the model itself on OpenCV's frames.",
)
@click.option("--reference-model", default="", metavar="NAME", help="The library's own file or name of the model.")
@click.option(
    "--preprocess", type=click.Choice(("fast", "exact")), default="fast", show_default=True,
    help="fast: frames as they are decoded. exact: the same RGB pixels on both sides.",
)
@click.option(
    "--decoder", type=click.Choice(("same", "opencv")), default="same", show_default=True,
    help="The loop's frames: GStreamer's, converted by cv2.cvtColor, or those of cv2.VideoCapture.",
)
@click.option("--max-frames", type=click.IntRange(min=1), metavar="N", help="End after N frames.")
@click.option(
    "--threshold", default="", metavar="LIST",
    help="What to reach, as matched=0.97,iou=0.98,score=0.01, the default of fast; of exact: matched=1,iou=0.999,score=0.001.",
)
@click.option("--steps", type=click.IntRange(min=0), default=25, show_default=True, help="Frames looked at step by step.")
@click.option("--device", default="cpu", show_default=True, help="Where the model runs: cpu or cuda:N.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A property of pyinfer. May be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    model: str,
    video: str,
    reference: str,
    reference_model: str,
    preprocess: str,
    decoder: str,
    max_frames: int | None,
    threshold: str,
    steps: int,
    device: str,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Runs MODEL on VIDEO in a real pipeline and in a plain Python loop, frame by frame, and compares what they find.

    The loop converts a frame with OpenCV, resizes it, runs the network and decodes its outputs with code of its own.
    The exit code is 0 when they agree as well as --threshold asks, else 1.
    """
    try:
        from gstinfer.parity.compare import EXACT, FAST, Comparison, compare
    except ImportError as error:
        if error.name != "gi":
            raise
        raise MissingDependencyError("gi", purpose="GStreamer in Python; apt-get install python3-gst-1.0") from error
    exact = preprocess == "exact"
    limits = _limits(threshold, EXACT if exact else FAST)
    asked = Comparison(
        model, video, reference, reference_model, exact, decoder, device, settings, max_frames, limits, steps
    )  # fmt: skip
    # Libraries greet on standard output, which belongs to the report.
    with redirect_stdout(sys.stderr):
        report = compare(asked)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report)
    sys.exit(0 if report.passed else 1)


def _limits(text: str, default: Limits) -> Limits:
    """``matched=0.9,iou=0.95`` over the default.

    Raises:
        UnknownNameError: Another name.
        ConfigError: A value that is none between 0 and 1.
    """
    from dataclasses import replace

    found = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in LIMITS:
            raise UnknownNameError("threshold", name, LIMITS)
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] <= 1:
            raise ConfigError(f"--threshold {part} is no number between 0 and 1", hint=f"write {name}=0.97")
    return replace(default, **found)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=140)
    figures, limits = report.agreement, report.limits
    console.print(f"{report.asked.model} on {report.asked.video}, {figures.frames} frames", markup=False)
    console.print(f"held against {report.reference}", markup=False)
    console.print(f"compared: {report.comparison}\n", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "seen", "asked for"):
        table.add_column(name)
    table.add_row("objects, pipeline and reference", f"{figures.ours} and {figures.theirs}", "")
    table.add_row("matched", f"{100 * figures.matched:.2f} %", f"at least {100 * limits.matched:g} %")
    if figures.least:
        table.add_row(f"above {figures.least:g} on both sides", f"{100 * figures.both:.2f} %", "")
    table.add_row("mean IoU", f"{figures.mean_iou:.5f}", f"at least {limits.iou:g}")
    table.add_row("mean score difference", f"{figures.mean_score:.6f}", f"at most {limits.score:g}")
    table.add_row("greatest score difference", f"{max(figures.score, default=0.0):.6f}", "")
    table.add_row("in one place, of another class", str(figures.other_class), "")
    for key, value in figures.as_dict().items():
        if key in ("mean_mask_iou", "mean_keypoint_distance"):
            table.add_row(key.replace("_", " "), f"{value}", "")
    if report.missing:
        table.add_row("frames that one side lacks", str(report.missing), "0")
    console.print(table)
    if report.steps:
        _show_steps(report, console, Table)
    console.print("\nagreed" if report.passed else "\nnot agreed", style="green" if report.passed else "red")


def _show_steps(report: Report, console: object, table_class: type) -> None:
    from gstinfer.parity.steps import MEANING

    table = table_class(box=None, pad_edge=False, header_style="bold")
    for name in ("step", "in the reference's place", "matched", "mean IoU", "score", "difference"):
        table.add_column(name)
    for step in report.steps:
        seen = step.agreement
        far = f"mean {sum(step.mean) / len(step.mean):.3g}, at most {step.most:.3g} {step.unit}" if step.mean else ""
        table.add_row(
            step.name, MEANING[step.name], f"{100 * seen.matched:.2f} %", f"{seen.mean_iou:.5f}", f"{seen.mean_score:.6f}", far
        )
    print_ = console.print  # type: ignore[attr-defined]
    print_(f"\nStep by step, on {report.steps[0].agreement.frames} frames:")
    print_(table)
    print_(f"they part at: {', '.join(report.part_at) or 'no step'}")
