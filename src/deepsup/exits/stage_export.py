"""Export early exits: one ONNX graph per stage, the thresholds, and a runner that needs neither torch nor deepsup.

B batch, K classes.
"""

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import RunError
from deepsup.exits.early_exit import EarlyExit
from deepsup.io import disk_errors_named, reason, write_whole
from deepsup.trainer.runs.folder import RunFolder
from deepsup.trainer.runs.model import load_model

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


def export_stages(run: RunFolder, early: EarlyExit, folder: Path) -> Path:
    """Write the graphs, ``exits.json`` and the runner ``early_exits.py`` into a folder; return the runner's path.

    The first graph takes images as they come, uint8 [B,C,H,W]: the run's normalization is part of it.
    """
    require_onnx()
    model = load_model(run)
    with disk_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    values: Sequence[Tensor] = (torch.randint(0, 256, (3, *model.shape), dtype=torch.uint8),)
    stages = []
    for number, name in enumerate(early.names):
        graph = StageGraph(early, number, model.normalize).eval()
        with torch.no_grad():
            scores_and_values = graph(*values)
        file = f"stage{number + 1}.onnx"
        write_whole(folder / file, converted(graph, values, name))
        threshold = early.thresholds.get(name)
        stages.append({"file": file, "exit": name, "threshold": threshold, "temperature": early.temperatures[name]})
        values = scores_and_values[1:]
    about = {"classes": list(model.classes), "shape": list(model.shape), "stages": stages}
    write_whole(folder / "exits.json", (json.dumps(about, indent=2) + "\n").encode())
    write_whole(folder / RUNNER, resources.files("deepsup.exits").joinpath("onnx_runner.py").read_bytes())
    return folder / RUNNER


def converted(graph: StageGraph, values: Sequence[Tensor], name: str) -> bytes:
    """Return the bytes of an ONNX model for batches of any size."""
    try:
        with quiet():
            program: Any = torch.onnx.export(
                graph, tuple(values), dynamo=True, verbose=False, dynamic_shapes=(tuple({0: "batch"} for _ in values),)
            )
    except Exception as error:  # private classes of torch, and what its converters raise
        raise RunError(
            f"the stage that ends at {name!r} cannot be converted to ONNX ({reason(error)}); expected layers and "
            f"normalization that ONNX has; use the exits in Python instead"
        ) from error
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # they name files of this machine
    content: bytes = program.model_proto.SerializeToString()
    return content


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's exporter from writing warnings and logs that no user can act on."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def require_onnx() -> None:
    """Raise an error where a package of the export is missing."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise RunError(
            f'{", ".join(missing)} is not installed; expected it for --export: pip install "deepsup[export]"'
        )
