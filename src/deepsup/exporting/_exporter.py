"""A supervised net or a run in; a file that runs without deepsup, checked against the net, and its model card out.

N batch, C channels, H height, W width, K classes.
"""

import copy
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from deepsup.errors import ExportError, WriteError, nearest
from deepsup.exporting._card import Facts, card
from deepsup.exporting._formats import FORMATS, Format, check_installed
from deepsup.exporting._graph import Graph, Program
from deepsup.exporting._quantization import Quantized, Trial, check_kind
from deepsup.exporting._quantization import quantize as in_quantized
from deepsup.io import printable, write_whole
from deepsup.objective import supervised
from deepsup.supervision import DeeplySupervised, as_call

CHECKED = 16
"""Images that a run's export is compared on."""
MOST_POINTS = 0.5
"""Points of error by which int8 may be worse than float32."""


@dataclass(frozen=True)
class Exported:
    """What was written where, and how well it agrees with the net."""

    path: Path
    card: Path
    bytes: int
    inputs: dict[str, str]
    """Name -> type and shape, e.g. ``uint8 [N,1,28,28]``."""
    outputs: tuple[str, ...]
    difference: float
    """The largest difference between a score of the file and of the net."""
    samples: int
    """How many samples were compared."""
    quantized: Quantized | None = None
    """What int8 has changed; the difference is that of the float32 file."""


@dataclass(frozen=True, eq=False)
class Exportable:
    """A trained net with what its training knows: what the card says, inputs to compare on, its preprocessing."""

    net: DeeplySupervised
    facts: Facts
    example: Any
    preprocess: Callable[[Tensor], Tensor]
    trial: Callable[[], Trial] | None = None
    """Reads the images that quantization needs."""


class TrainedRun(Protocol):
    """What ``export`` asks of a run; the trainer's ``Run`` is one."""

    @property
    def model(self) -> Path:
        """Its own file, which no export replaces."""

    def to_export(self, example: Any) -> Exportable:
        """Return what to export; with its own example where none is given."""


def export(
    net: nn.Module | TrainedRun,
    path: str | os.PathLike[str],
    example: Any = None,
    *,
    to: str | None = None,
    companions: bool = False,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    overwrite: bool = False,
    quantize: str | None = None,
    most_points: float = MOST_POINTS,
) -> Exported:
    """Write a supervised net as one file that runs without deepsup, and a model card beside it.

    The file is compared with the net before it is written; the net itself stays as it is.

    net: what ``supervise`` returned, or a ``Run``, which brings its own preprocessing and example.
    path: the file; its suffix is the format: ``.onnx``, ``.pt2`` or ``.safetensors`` (the weights of the plain model).
    example: a batch (a tensor, or a tuple or mapping of tensors), as it goes into the file.
    to: the format, if you want it checked against the suffix.
    companions: add the scores of each companion as an output of its own.
    preprocess: becomes part of the file: a function of one tensor, e.g. ``lambda images: images.float() / 255``.
    overwrite: replace files that are there.
    quantize: static or dynamic: an ONNX file whose convolutions and matrix products are in int8. A run calibrates it
        on training images and measures its error and speed; for a net of yours the example calibrates.
    most_points: points of error by which int8 may be worse than float32; beyond, nothing is written.
    """
    path = Path(path)
    name = format_of(path, to)
    if quantize is not None:
        check_kind(quantize, name)
    form = FORMATS[name]
    check_installed(form)
    check_free(path, None if isinstance(net, nn.Module) else getattr(net, "model", None), overwrite)
    if name == "safetensors" and companions:
        raise ExportError("safetensors holds the weights of the plain model, without companions; use pt2 or onnx")
    if isinstance(net, nn.Module) or not hasattr(net, "to_export"):
        plain, facts, trial = copy.deepcopy(supervised(net)), Facts(), None
    elif preprocess is not None:
        raise ExportError("preprocess= with a run; a run brings its own; omit it")
    else:
        given = net.to_export(example)
        plain, facts, example, preprocess = given.net, given.facts, given.example, given.preprocess
        trial = None if quantize is None or given.trial is None else given.trial()
    program = program_of(plain.cpu().eval(), example, preprocess, companions)
    content, difference = packed(form, program, facts)
    small = None
    if quantize is not None:
        content, small = in_quantized(program, content, quantize, trial, most_points)
    beside, samples = path.with_name(f"{path.name}.md"), len(program.example[0])
    done = Exported(path, beside, len(content), program.shapes(), program.outputs, difference, samples, small)
    write(path, content)
    write(beside, printable(card(name, program, facts, path, len(content), difference, small)).encode())
    return done


def format_of(path: Path, to: str | None) -> str:
    """Return the format of a file by its suffix."""
    suffix = path.suffix.removeprefix(".")
    if to is not None and to not in FORMATS:
        raise ExportError(f"no format {to!r}; {nearest(to, FORMATS)}")
    if suffix not in FORMATS or suffix != (to or suffix):
        expected = f".{to}" if to else " or ".join(f".{each}" for each in FORMATS)
        raise ExportError(f"the file is called {path.name}; expected a name that ends in {expected}")
    return suffix


def check_free(path: Path, model: Path | None, overwrite: bool) -> None:
    """Refuse to replace a file unless asked to, and a run's own model always."""
    if model is not None and path.resolve() == model.resolve():
        raise ExportError(f"{path} is the run's own model; expected another file; choose another name with --out")
    for each in (path, path.with_name(f"{path.name}.md")):
        if each.is_dir() or (each.exists() and not overwrite):
            kind = "is a folder" if each.is_dir() else "is there already"
            raise ExportError(f"{each} {kind}; choose another name, or replace a file with overwrite (--overwrite)")


def noise(shape: tuple[int, ...]) -> Tensor:
    """Return uint8 images [N,C,H,W]: random ones, a black one and a white one, which have no contrast."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (CHECKED, *shape), dtype=torch.uint8, generator=draw)
    images[0], images[1] = 0, 255
    return images


def program_of(
    net: DeeplySupervised, example: Any, preprocess: Callable[[Tensor], Tensor] | None, companions: bool
) -> Program:
    """Return what is traced: the graph, its example and its names."""
    if example is None:
        raise ExportError("no example; expected a batch as it goes into the file; give example=images[:2]")
    args, kwargs = as_call(example)
    tensors = tuple(each.detach().cpu() if isinstance(each, Tensor) else each for each in (*args, *kwargs.values()))
    for each in tensors:
        if not isinstance(each, Tensor) or each.ndim < 1 or not len(each):
            raise ExportError(
                f"the example has a {type(each).__name__}; expected tensors, the batch first, of one sample or more"
            )
    if preprocess is not None and (len(args) != 1 or kwargs):
        raise ExportError(f"the example has {len(tensors)} tensors; expected one, since preprocess takes one")
    inputs = ("images",) if preprocess is not None else input_names(net.trunk, len(args), kwargs)
    taps = unique(net.outputs, {"scores", *inputs}) if companions else None
    outputs = ("scores", *(taps or {}).values())
    batched = tuple(len(each) == len(tensors[0]) for each in tensors)
    graph = Graph(net, tuple(kwargs), preprocess, taps).eval()
    return Program(graph, tensors, batched, inputs, outputs)


def input_names(trunk: nn.Module, count: int, keywords: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the inputs: those of the model's forward."""
    parameters = list(inspect.signature(trunk.forward).parameters.values())
    known = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]
    return (*(known[i] if i < len(known) else f"input{i + 1}" for i in range(count)), *keywords)


def unique(taps: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Return tap -> output name: letters, digits and underscores, none of them twice.

    >>> unique(["layer1.0", "layer1_0", "3"], {"scores"})
    {'layer1.0': 'layer1_0', 'layer1_0': 'layer1_0_2', '3': 'layer_3'}
    """
    names: dict[str, str] = {}
    for tap in taps:
        name = re.sub(r"\W", "_", tap, flags=re.ASCII)
        name = f"layer_{name}" if name[0].isdigit() else name
        taken_now = taken | set(names.values())
        number = next(i for i in range(1, len(taken_now) + 2) if (name if i == 1 else f"{name}_{i}") not in taken_now)
        names[tap] = name if number == 1 else f"{name}_{number}"
    return names


def packed(form: Format, program: Program, facts: Facts) -> tuple[bytes, float]:
    """Return the file and its largest difference from the net, for the whole example and for batches of 1 and 3."""
    expected = checked_scores(program)
    content = form.pack(program, {"classes": json.dumps(facts.classes)} if facts.classes else {})
    scale = max(1.0, *(float(each.abs().max()) for each in expected))
    exact = all(each.dtype in (torch.float32, torch.float64) for each in expected)
    allowed = scale * (1e-4 if exact else 2e-2)
    run, difference = form.run(content, program), 0.0
    for size in (len(program.example[0]), 1, 3):
        inputs = program.batch(size)
        pairs = zip(run(*inputs), program(*inputs), strict=True)
        difference = max(difference, *(float((ours - theirs).abs().max()) for ours, theirs in pairs))
    if not difference <= allowed:
        raise ExportError(
            f"the exported file differs from the net by {difference:.1e}; expected at most {allowed:.1e}; nothing was "
            f"written; please report this with the model"
        )
    return content, difference


def checked_scores(program: Program) -> list[Tensor]:
    """Return the net's own scores of the example."""
    try:
        scores = program(*program.example)
    except Exception as error:
        given = ", ".join(f"{name} {shape}" for name, shape in program.shapes().items())
        raise ExportError(
            f"the net fails on the example ({given}): {' '.join(str(error).split())[:300]}; expected a batch as it "
            f"goes into the file; give another example=, or preprocess="
        ) from error
    if not all(each.isfinite().all() for each in scores):
        raise ExportError(
            "the net's scores of the example are not finite; expected a trained net with finite weights; train it "
            "again with a lower learning rate"
        )
    layer = program.random_layer()
    if layer is not None:
        raise ExportError(
            f"{layer} draws random numbers in evaluation mode; expected a model that gives the same scores twice; "
            f"build it without them"
        )
    return scores


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"cannot make the folder {path.parent}: {error.strerror}; choose another --out") from error
    try:
        write_whole(path, content)
    except WriteError as error:
        error.again = "export again"
        raise ExportError(str(error)) from error
