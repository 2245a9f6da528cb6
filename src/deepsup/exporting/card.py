"""An exported file -> its model card in Markdown: what it is, how to run it, its data, its error and its limits."""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from deepsup.exporting.graph import Program
from deepsup.trainer.data import KNOWN
from deepsup.trainer.preprocess import Normalizer
from deepsup.trainer.runs.folder import RunFolder

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
STEPS = {
    "standardize": "subtract the mean of each channel and divide by its deviation, both of the training images",
    "gcn": "global contrast normalization: subtract the mean of the image and scale it to one norm",
    "zca": "ZCA whitening, fitted on the training images",
    "lcn": "local contrast normalization",
}


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known about a net from its run; nothing for a net of the user's own."""

    run: RunFolder | None = None
    result: dict[str, Any] | None = None
    classes: tuple[str, ...] = ()
    normalize: Normalizer | None = None


def card(to: str, program: Program, facts: Facts, path: Path, size: int, difference: float) -> str:
    """Return the text of the card."""
    trunk = facts.run.config.network.name if facts.run is not None else type(program.trunk).__name__
    kind = "A model that classifies every position" if program.dense else "A classifier"
    parts = [
        f"# {path.name}",
        f"{kind} ({trunk}, {size:,} bytes), exported by deepsup {version('deepsup')} with torch "
        f"{torch.__version__.partition('+')[0]}. {_comparison(to, program, difference)}",
        "## Run it",
        f"```python\n{_code(to, program, path.name)}\n```",
        "## Inputs and outputs" if to != "safetensors" else "## Inputs and outputs of the model",
        _table(["input", "type and shape"], program.shapes().items()),
        _table(["output", "what it is"], _outputs(program).items()),
        *_preprocessing(to, program, facts),
        *_classes(facts),
        "## Data and error",
        *_trained(facts),
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
    """Return output name -> what it is."""
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
    steps = ["values from 0 to 255 are divided by 255"] if facts.normalize else ["a function of the user's own"]
    lines = []
    if facts.normalize:
        for step, arrays in zip(facts.normalize.steps, facts.normalize.arrays, strict=True):
            small = {name: array.tolist() for name, array in arrays.items() if array.numel() <= 4}
            lines.append(f"{STEPS.get(step.name, step.name)} ({step}{_values(small)})")
    listed = "\n".join(f"{index}. {each}" for index, each in enumerate([*steps, *lines], 1))
    return ["## Preprocessing", where, listed]


def _values(arrays: dict[str, list[float]]) -> str:
    return "".join(f"; {name} {[round(value, 6) for value in values]}" for name, values in arrays.items())


def _classes(facts: Facts) -> list[str]:
    if not facts.classes:
        return []
    listed = json.dumps(facts.classes, ensure_ascii=False)
    return ["## Classes", "In the order of the scores:", f"```json\n{listed}\n```"]


def _trained(facts: Facts) -> list[str]:
    """Return what the net was trained on and how often it is wrong."""
    if facts.run is None or facts.result is None:
        return ["Not recorded: the net was not trained by `deepsup train`. Write here what it was trained on."]
    result, config = facts.result, facts.run.config
    data = (
        f"Trained on {_images(result.get('train_images'))} of `{_source(config.data.source)}`, {result['epochs']} "
        f"{'epoch' if result['epochs'] == 1 else 'epochs'}, seed {config.run.seed}."
    )
    if result["error"] is None:
        return [data, "Not tested."]
    errors = {"output": result["error"], **result["companions"]}
    kind = "error in percent (100 minus the mean IoU)" if result.get("metrics") else "error in percent"
    tested = f"Test {kind}, on {_images(result.get('test_images'))} that it was not trained on:"
    return [data, tested, _table(["layer", "error %"], [(name, f"{each:.2f}") for name, each in errors.items()])]


def _images(count: int | None) -> str:
    return "images" if count is None else f"{count:,} images"


def _source(source: str) -> str:
    """Return the name of a data set; of a path only the last part, which says nothing about the machine."""
    return source if source in KNOWN else Path(source).name


def _limits(facts: Facts) -> str:
    lines = [
        "The scores are not probabilities. A softmax over them sums to 1, but nothing has calibrated it.",
        "The model always answers with one of its classes, also for an input that shows none of them.",
        "The error holds for inputs like those it was tested on. Test it on your own before you rely on it."
        if facts.run is not None
        else "Nothing is known here about its error. Test it on your own inputs before you rely on it.",
    ]
    if facts.run is not None:
        lines.insert(
            0, "Images must have the size above; other sizes are refused. Three channels are red, green, blue."
        )
    return "\n".join(f"- {line}" for line in lines)


def _config(facts: Facts) -> list[str]:
    if facts.run is None:
        return []
    settings = facts.run.config.to_dict() | {"data": _source(facts.run.config.data.source)}
    listed = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())
    return ["## Config", f"```yaml\n{listed}\n```"]


def _table(header: list[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
