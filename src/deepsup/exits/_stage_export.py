"""Export early exits: one ONNX graph per stage, the thresholds, and a runner that needs neither torch nor deepsup.

B batch, K classes.
"""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import ExportError
from deepsup.exits._early_exit import EarlyExit
from deepsup.exporting import check_onnx, onnx_bytes
from deepsup.io import disk_errors_named, write_whole

RUNNER = "early_exits.py"


class StageGraph(nn.Module):
    """One stage as a graph: values [B, ...] -> the scores [B,K] of its exit, and the values of the next stage."""

    def __init__(self, early: EarlyExit, number: int, normalize: Any) -> None:
        super().__init__()
        self.early, self.number, self.normalize = early, number, normalize if number == 0 else None
        self.module = early.stages[number].module  # registered, so that its weights are part of the graph

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Run the stage and its companion."""
        given: Sequence[Any] = values if self.normalize is None else (self.normalize(values[0]), *values[1:])
        output = self.module(*given)
        if self.number == len(self.early.heads):
            return (self.early.scores(output),)
        features, *rest = output
        return (self.early.heads[self.number](features), *rest)


def export_stages(
    early: EarlyExit,
    folder: Path,
    *,
    shape: Sequence[int],
    classes: Sequence[str],
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> Path:
    """Write the graphs, ``exits.json`` and the runner ``early_exits.py`` into a folder; return the runner's path.

    The first graph takes images as they come, uint8 [B,C,H,W]: the normalization is part of it.

    shape: of one image, [C,H,W].
    """
    check_onnx()
    with disk_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    values: tuple[Tensor, ...] = (torch.randint(0, 256, (3, *shape), dtype=torch.uint8),)
    stages = []
    for number, name in enumerate(early.names):
        graph = StageGraph(early, number, normalize).eval()
        with torch.no_grad():
            scores_and_values = graph(*values)
        file = f"stage{number + 1}.onnx"
        try:
            write_whole(folder / file, onnx_bytes(graph, values))
        except ExportError as error:
            raise ExportError(f"the stage that ends at {name!r}: {error}; or use the exits in Python") from error
        threshold = early.thresholds.get(name)
        stages.append({"file": file, "exit": name, "threshold": threshold, "temperature": early.temperatures[name]})
        values = scores_and_values[1:]
    about = {"classes": list(classes), "shape": list(shape), "stages": stages}
    write_whole(folder / "exits.json", (json.dumps(about, indent=2) + "\n").encode())
    write_whole(folder / RUNNER, resources.files("deepsup.exits").joinpath("onnx_runner.py").read_bytes())
    return folder / RUNNER
