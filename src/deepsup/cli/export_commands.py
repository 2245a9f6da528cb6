"""``deepsup export``: a run in, a file that runs without deepsup and its model card out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, verb
from deepsup.cli.trusted import opened

if TYPE_CHECKING:
    from deepsup.exporting import Exported

_Run = Annotated[Path, Positional, arg(metavar="RUN")]
_Format = Annotated[str, arg(metavar="onnx|pt2|safetensors")]
_Kind = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: float32)")]
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: RUN/export/model.FORMAT)")]


@verb("export")
def export(
    run: _Run,
    to: _Format,
    companions: Flag = False,
    quantize: _Kind = None,
    most_points: float = 0.5,
    out: _File = None,
    overwrite: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Write the model of a run as one file that runs without deepsup, and a model card beside it.

    Args:
        run: folder of a finished run
        to: format: onnx and pt2 take raw uint8 images of any batch size; safetensors holds the plain model's weights
        companions: add the scores of each companion as an output of its own
        quantize: ONNX in int8: static (ranges set on training images) or dynamic; --quantize alone is static
        most_points: points of error by which int8 may be worse than float32; beyond, nothing is written
        out: file to write
        overwrite: replace files that are there
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.exporting import export as export_net
    from deepsup.io import below

    folder = opened(run, trust)
    file = out or below(run, "export", f"model{'.int8' if quantize else ''}.{to}")
    done = export_net(
        folder, file, to=to, companions=companions, overwrite=overwrite, quantize=quantize, most_points=most_points
    )
    lines = [f"{done.path}: {done.bytes / 1e6:.2f} MB, {_agreement(done, to)}"]
    if to != "safetensors":
        taken = ", ".join(f"{name} {shape}" for name, shape in done.inputs.items())
        lines.append(f"in: {taken}; out: {', '.join(done.outputs)}")
    lines += _int8_lines(done)
    lines.append(f"card: {done.card}")
    figures = dataclasses.asdict(done) | {"path": str(done.path), "card": str(done.card), "to": to}
    show(figures, "\n".join(lines), json)


def _int8_lines(done: Exported) -> list[str]:
    """Say what int8 has changed, if it has."""
    small = done.quantized
    if small is None:
        return []
    lines = [f"int8 ({small.kind}): {done.bytes / 1e6:.2f} MB instead of {small.bytes_before / 1e6:.2f}"]
    if small.error is not None:
        lines.append(
            f"error {small.error:.2f} %, in float32 {small.error_before:.2f} %, on {small.images:,} test images"
        )
    speeds = ", ".join(f"{name} {each:,.0f}" for name, each in small.images_per_second.items())
    return [*lines, f"images/s: {speeds}"] if speeds else lines


def _agreement(done: Exported, to: str) -> str:
    """Say how the file compares with the net."""
    if to == "safetensors":
        return "the weights of the plain model"
    if not done.difference:
        return f"the same scores as PyTorch for {done.samples} images"
    if done.quantized is not None:
        return f"from a float32 file that agrees with PyTorch to {done.difference:.0e} on {done.samples} images"
    return f"agrees with PyTorch to {done.difference:.0e} on {done.samples} images"
