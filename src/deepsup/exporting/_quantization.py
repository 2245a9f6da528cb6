"""An ONNX file in; the same model in int8 out, with what that costs in accuracy and brings in speed.

N images, C channels, H height, W width.
"""

import contextlib
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deepsup.errors import ExportError, nearest
from deepsup.exporting._graph import Program
from deepsup.io import reason

KINDS = ("static", "dynamic")
"""static: the range of every map is set from example images; dynamic: measured anew in every call."""
WEIGHTED = ("Conv", "Gemm", "MatMul")
"""The operators that are computed in int8."""
BATCH, ROUNDS = 50, 7
"""Images per pass, and passes, of the measured speeds."""


class Trial(NamedTuple):
    """What a run gives to quantize its net with, and to find out what that costs."""

    calibration: npt.NDArray[Any]
    """Training images [N,C,H,W] uint8."""
    images: npt.NDArray[Any]
    """Test images."""
    labels: npt.NDArray[Any]


@dataclass(frozen=True)
class Quantized:
    """What quantization has changed."""

    kind: str
    calibrated: int
    """Images on which the ranges were set; 0 if dynamic."""
    bytes_before: int
    error_before: float | None = None
    """Percent, of the float32 file; None where there are no labels."""
    error: float | None = None
    images: int = 0
    images_per_second: dict[str, float] = field(default_factory=dict)
    """``onnx float32``, ``onnx int8``, ``torch float32``, ``torch bfloat16``: of the stripped net."""


def check_kind(kind: str, to: str) -> None:
    """Refuse what is no way to quantize, and formats other than ONNX."""
    if kind not in KINDS:
        raise ExportError(f"quantize={kind!r}; {nearest(kind, KINDS)}")
    if to != "onnx":
        raise ExportError(f"quantize={kind} with {to}; expected onnx; give --to onnx")


def quantize(
    program: Program, content: bytes, kind: str, trial: Trial | None, most_points: float
) -> tuple[bytes, Quantized]:
    """Return an ONNX file in int8 and what changed; refuse one whose error is higher by more than ``most_points``.

    trial: images to calibrate and to test on; without, the program's example calibrates and nothing is tested.
    """
    if program.dense or len(program.inputs) != 1:
        what = "scores every position" if program.dense else f"has {len(program.inputs)} inputs"
        raise ExportError(
            f"quantize={kind} for a model that {what}; expected one that classifies images; export without"
        )
    examples = program.example[0].numpy() if trial is None else trial.calibration
    small = in_int8(content, kind, program.inputs[0], examples)
    done = Quantized(kind, len(examples) if kind == "static" else 0, len(content))
    if trial is None:
        return small, done
    before, after = (error_of(each, program, trial) for each in (content, small))
    if after - before > most_points:
        raise ExportError(
            f"in int8 ({kind}) the error is {after:.2f} %, in float32 {before:.2f} %, on {len(trial.labels):,} test "
            f"images; expected at most {most_points:g} points more; nothing was written; allow more with "
            f"--most-points, or export without --quantize"
        )
    speeds = speeds_of(program, content, small, trial.images[:BATCH])
    return small, Quantized(kind, done.calibrated, len(content), before, after, len(trial.labels), speeds)


def in_int8(content: bytes, kind: str, name: str, examples: npt.NDArray[Any]) -> bytes:
    """Return an ONNX file with the convolutions and matrix products of the model in int8; the preprocessing stays.

    name: of the input. examples: what sets the ranges of a static one.
    """
    import onnx
    from onnxruntime import quantization as ort
    from onnxruntime.quantization.shape_inference import quant_pre_process

    kept = preprocessing(onnx.load_from_string(content))

    class Reader(ort.CalibrationDataReader):  # type: ignore[misc] # it has no types
        def __init__(self) -> None:
            self.batches = iter(np.array_split(examples, max(1, len(examples) // BATCH)))

        def get_next(self) -> dict[str, npt.NDArray[Any]] | None:
            batch = next(self.batches, None)
            return None if batch is None else {name: batch}

    with tempfile.TemporaryDirectory() as folder, silent():
        given, plain, out = (str(Path(folder) / f"{each}.onnx") for each in ("given", "plain", "out"))
        Path(given).write_bytes(content)
        try:
            quant_pre_process(given, plain, skip_symbolic_shape=True)  # it folds weights that the graph computes
            model = onnx.load(plain)
            del model.graph.value_info[:]  # onnxruntime transposes weights and then trips over their old shapes
            excluded = [each.name for each in model.graph.node if kept.issuperset(each.output)]
            options = {"op_types_to_quantize": list(WEIGHTED), "nodes_to_exclude": excluded,
                       "weight_type": ort.QuantType.QInt8}  # fmt: skip
            if kind == "dynamic":
                ort.quantize_dynamic(model, out, **options)
            else:
                ort.quantize_static(
                    model, out, Reader(), quant_format=ort.QuantFormat.QDQ, per_channel=True,
                    activation_type=ort.QuantType.QUInt8, **options,
                )  # fmt: skip
        except Exception as error:  # onnxruntime raises many classes
            raise ExportError(f"onnxruntime cannot quantize the model: {reason(error)}; export without") from error
        return Path(out).read_bytes()


def preprocessing(model: Any) -> set[str]:
    """Return the names of all values that are computed without a weight of the net."""
    net = {each.name for each in model.graph.initializer if each.name.startswith("net.")}
    kept: set[str] = set()
    for node in model.graph.node:  # in the order in which they are computed
        if net.isdisjoint(node.input):
            kept.update(node.output)
        else:
            net.update(node.output)
    return kept


def session_of(content: bytes) -> Any:
    """Return what runs an ONNX file, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def error_of(content: bytes, program: Program, trial: Trial) -> float:
    """Return the error of an ONNX file in percent."""
    session, wrong = session_of(content), 0
    for start in range(0, len(trial.labels), BATCH):
        batch = slice(start, start + BATCH)
        (scores,) = session.run(["scores"], {program.inputs[0]: trial.images[batch]})
        wrong += int((scores.argmax(1) != trial.labels[batch]).sum())
    return 100 * wrong / len(trial.labels)


def speeds_of(program: Program, content: bytes, small: bytes, images: npt.NDArray[Any]) -> dict[str, float]:
    """Return images per second of the files and of the net, preprocessing included: the best of turns.

    With one thread its own time counts, so that other work on the machine does not.
    """
    given = torch.tensor(images)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def runs(session: Any) -> Callable[[], object]:
        return lambda: session.run(["scores"], {program.inputs[0]: images})

    def in_bfloat16() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            program(given)

    turns: dict[str, Callable[[], object]] = {
        "onnx float32": runs(session_of(content)),
        "onnx int8": runs(session_of(small)),
        "torch float32": lambda: program(given),
        "torch bfloat16": in_bfloat16,
    }
    best = dict.fromkeys(turns, float("inf"))
    for count in range(ROUNDS + 1):
        for name, turn in turns.items():
            began = clock()
            turn()
            if count:  # the first calls allocate
                best[name] = min(best[name], clock() - began)
    return {name: len(images) / seconds for name, seconds in best.items()}


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep the advice of onnxruntime's tools to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
