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
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: RUN/export/model.FORMAT)")]


@verb("export")
def export(
    run: _Run,
    to: _Format,
    companions: Flag = False,
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
        out: file to write
        overwrite: replace files that are there
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.exporting import export as export_net
    from deepsup.io import below

    folder = opened(run, trust)
    file = out or below(run, "export", f"model.{to}")
    done = export_net(folder, file, to=to, companions=companions, overwrite=overwrite)
    lines = [f"{done.path}: {done.bytes / 1e6:.2f} MB, {_agreement(done, to)}"]
    if to != "safetensors":
        taken = ", ".join(f"{name} {shape}" for name, shape in done.inputs.items())
        lines.append(f"in: {taken}; out: {', '.join(done.outputs)}")
    lines.append(f"card: {done.card}")
    figures = dataclasses.asdict(done) | {"path": str(done.path), "card": str(done.card), "to": to}
    show(figures, "\n".join(lines), json)


def _agreement(done: Exported, to: str) -> str:
    """Say how the file compares with the net."""
    if to == "safetensors":
        return "the weights of the plain model"
    if not done.difference:
        return f"the same scores as PyTorch for {done.samples} images"
    return f"agrees with PyTorch to {done.difference:.0e} on {done.samples} images"
