"""An exported file -> its model card in Markdown: what it is, how to run it, its data, its error and its limits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from deepsup.exporting._graph import Program
from deepsup.exporting._quantization import Quantized

RUN = {
    "onnx": """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
{numpy}
{outputs}, *_ = session.run(None, {{{given}}})
print({outputs}.argmax(1))""",
    "pt2": """import torch

model = torch.export.load("{file}").module()
{torch}
out = model({arguments})
print({scores}.argmax(1))""",
    "safetensors": """from safetensors.torch import load_file

model = {trunk}(...)  # your own class, built as before training
model.load_state_dict(load_file("{file}"), strict=True)
model.eval()""",
}
UNRECORDED = "Not recorded: the net was not trained by `deepsup train`. Write here what it was trained on."


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known about a net from its training; nothing for a net of the user's own."""

    network: str | None = None
    """The name of the trunk; None: its class is named."""
    classes: tuple[str, ...] = ()
    preprocessing: tuple[str, ...] = ()
    """Its steps in words."""
    training: tuple[str, ...] = ()
    """What the net was trained on and how often it is wrong, as paragraphs of Markdown."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings that it was trained with."""


def card(to: str, program: Program, facts: Facts, path: Path, size: int, difference: float,
         quantized: Quantized | None = None) -> str:  # fmt: skip
    trunk = facts.network or type(program.trunk).__name__
    kind = "A model that classifies every position" if program.dense else "A classifier"
    parts = [
        f"# {path.name}",
        f"{kind} ({trunk}, {size:,} bytes), exported by deepsup {version('deepsup')} with torch "
        f"{torch.__version__.partition('+')[0]}. {_comparison(to, program, difference)}",
        *_int8(quantized),
        "## Run it",
        f"```python\n{_code(to, program, path.name)}\n```",
        "## Inputs and outputs" if to != "safetensors" else "## Inputs and outputs of the model",
        table(["input", "type and shape"], program.shapes().items()),
        table(["output", "what it is"], _outputs(program).items()),
        *_preprocessing(to, program, facts),
        *_classes(facts),
        "## Data and error",
        *(facts.training or [UNRECORDED]),
        "## Limits",
        _limits(facts),
        *_config(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _comparison(to: str, program: Program, difference: float) -> str:
    if to == "safetensors":
        return "The file holds the weights of the plain model, without companions, bit for bit."
    if not difference:
        return f"It gave the same scores as PyTorch, bit for bit, for {len(program.example[0])} inputs."
    return (
        f"Compared with PyTorch on {len(program.example[0])} inputs before it was written: the largest difference of a "
        f"score is {difference:.1e}."
    )


def _int8(quantized: Quantized | None) -> list[str]:
    """Return what int8 has changed, if it has."""
    if quantized is None:
        return []
    how = f"static, ranges set on {quantized.calibrated} images" if quantized.calibrated else "dynamic"
    text = (
        f"Its convolutions and matrix products are in int8 ({how}); the difference above is that of the float32 file, "
        f"which has {quantized.bytes_before:,} bytes."
    )
    if quantized.error is None:
        return [text, "The error in int8 was not measured."]
    rows = [(name, f"{each:,.0f}") for name, each in quantized.images_per_second.items()]
    before = f"in float32 {quantized.error_before:.2f} %"
    errors = f"Error on {quantized.images:,} test images: {quantized.error:.2f} %, {before}."
    return [text, errors, table(["where it was exported", "images per second"], rows)]


def _code(to: str, program: Program, file: str) -> str:
    """Return a script that runs the file on inputs of the right shape."""
    example = zip(program.inputs, program.batch(1), strict=True)
    arrays = [f"{name} = np.zeros({list(each.shape)}, dtype=np.{_kind(each.dtype)})" for name, each in example]
    tensors = [line.replace("np.zeros", "torch.zeros").replace("np.", "torch.") for line in arrays]
    return RUN[to].format(
        file=file,
        trunk=type(program.trunk).__name__,
        numpy="\n".join(arrays),
        torch="\n".join(tensors),
        outputs="scores",
        given=", ".join(f'"{name}": {name}' for name in program.inputs),
        arguments=", ".join(program.inputs),
        scores='out["scores"]' if len(program.outputs) > 1 else "out",
    )


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _outputs(program: Program) -> dict[str, str]:
    taps = {name: tap for tap, name in (program.graph.companions or {}).items()}
    shapes = (f"[{','.join(map(str, ['N', *each.shape[1:]]))}]" for each in program(*program.batch(1)))
    return {
        name: f"float {shape}, the scores of " + (f"the companion at `{taps[name]}`" if name in taps else "the model")
        for name, shape in zip(program.outputs, shapes, strict=True)
    }


def _preprocessing(to: str, program: Program, facts: Facts) -> list[str]:
    if program.graph.preprocess is None:
        return []
    where = "The file holds the weights alone: do this first." if to == "safetensors" else "It is part of the file."
    steps = facts.preprocessing or ("a function of the user's own",)
    return ["## Preprocessing", where, "\n".join(f"{index}. {each}" for index, each in enumerate(steps, 1))]


def _classes(facts: Facts) -> list[str]:
    if not facts.classes:
        return []
    listed = json.dumps(facts.classes, ensure_ascii=False)
    return ["## Classes", "In the order of the scores:", f"```json\n{listed}\n```"]


def _limits(facts: Facts) -> str:
    lines = [
        "The scores are not probabilities. A softmax over them sums to 1, but nothing has calibrated it.",
        "The model always answers with one of its classes, also for an input that shows none of them.",
        "The error holds for inputs like those it was tested on. Test it on your own before you rely on it."
        if facts.training
        else "Nothing is known here about its error. Test it on your own inputs before you rely on it.",
    ]
    if facts.training:
        lines.insert(
            0, "Images must have the size above; other sizes are refused. Three channels are red, green, blue."
        )
    return "\n".join(f"- {line}" for line in lines)


def _config(facts: Facts) -> list[str]:
    listed = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.config.items())
    return ["## Config", f"```yaml\n{listed}\n```"] if listed else []


def table(header: list[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
