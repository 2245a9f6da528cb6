"""A program -> the bytes of an ONNX, ``.pt2`` or safetensors file, and those bytes -> what they compute."""

import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from deepsup.errors import ExportError, extras_named
from deepsup.exporting._graph import Program, layer_of_node, operator, quiet
from deepsup.io import reason, sorted_metadata

Runner = Callable[..., list[Tensor]]
"""Inputs -> the outputs, in the order of their names."""


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is written, how what it holds is run, and which packages that needs."""

    pack: Callable[[Program, Mapping[str, str]], bytes]
    run: Callable[[bytes, Program], Runner]
    packages: tuple[str, ...] = ()


def pack_pt2(program: Program, about: Mapping[str, str]) -> bytes:
    """Return torch's own archive of the traced program."""
    file = io.BytesIO()
    with quiet():
        torch.export.save(program.traced(), file, extra_files={"deepsup.json": json.dumps(dict(about))})
    return file.getvalue()


def run_pt2(content: bytes, _program: Program) -> Runner:
    """Return what a ``.pt2`` computes."""
    with quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    @torch.no_grad()
    def run(*inputs: Tensor) -> list[Tensor]:
        out = module(*inputs)
        return [out] if isinstance(out, Tensor) else list(out.values())

    return run


def pack_onnx(program: Program, about: Mapping[str, str]) -> bytes:
    """Return an ONNX model that the checker of onnx has passed."""
    import onnx

    model = onnx_model(program, about)
    try:
        content: bytes = model.SerializeToString()
    except ValueError as error:
        raise ExportError("the model has more than 2 GiB, the most that one ONNX file holds; use --to pt2") from error
    onnx.checker.check_model(model, full_check=True)
    return content


def onnx_model(program: Program, about: Mapping[str, str], optimize: bool = True) -> Any:
    """Return the ONNX model of a program.

    optimize: let torch fuse operations; without it every weight keeps the name that it has in the state_dict.
    """
    axes = tuple({0: "batch"} if batched else None for batched in program.batched)
    converted = convert(program.traced(), None, axes, input_names=program.inputs, optimize=optimize)
    name_outputs(converted.model.graph, program.outputs)
    converted.model.metadata_props.update(about)
    return converted.model_proto


def onnx_bytes(module: nn.Module, example: tuple[Tensor, ...]) -> bytes:
    """Return a module whose forward takes ``*tensors`` as an ONNX file, for batches of any size."""
    axes = (tuple({0: "batch"} for _ in example),)
    content: bytes = convert(module, example, axes).model_proto.SerializeToString()
    return content


def convert(module: Any, example: tuple[Tensor, ...] | None, axes: tuple[Any, ...], **options: Any) -> Any:
    """Return torch's ONNX program without the names of files of this machine; say what cannot be converted, and where.

    axes: of each input, the names of its dimensions that vary.
    """
    try:
        with quiet():
            given = () if example is None else (example,)
            converted: Any = torch.onnx.export(
                module, *given, dynamo=True, verbose=False, dynamic_shapes=axes, **options
            )
    except Exception as error:  # private classes of torch, and what its converters raise
        raise ExportError(unconverted(error)) from error
    for node in converted.model.graph.all_nodes():
        node.metadata_props.clear()
    return converted


def name_outputs(graph: Any, names: Sequence[str]) -> None:
    """Give the outputs their names; what else is called so, e.g. the value after a layer ``relu``, gets another."""
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name in names:
                value.name = f"inner.{value.name}"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def unconverted(error: BaseException) -> str:
    """Say which operator ONNX lacks, and the layer that it sits in."""
    node, innermost = None, error
    while True:
        node = node_of(innermost) or node
        if innermost.__cause__ is None:
            break
        innermost = innermost.__cause__
    if node is None:
        return f"torch cannot convert the model to ONNX: {reason(Exception(str(innermost)))}; use --to pt2"
    return (
        f"ONNX has no operator for {operator(node)} in {layer_of_node(node)}; expected operations that ONNX has; "
        f"replace it, or use --to pt2"
    )


def node_of(error: BaseException) -> Any:
    """Return the operation that torch's converter was at: only its frames know the node and thus the layer."""
    innermost, frame = None, error.__traceback__
    while frame is not None:
        nodes = [each for each in frame.tb_frame.f_locals.values() if isinstance(each, torch.fx.Node)]
        innermost = next((node for node in nodes if node.op == "call_function"), innermost)
        frame = frame.tb_next
    return innermost


def run_onnx(content: bytes, program: Program) -> Runner:
    """Return what onnxruntime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(f"onnxruntime cannot load the model: {reason(error)}; use --to pt2") from error
    names = [each.name for each in session.get_inputs()]  # an input that is not used is not there

    def run(*inputs: Tensor) -> list[Tensor]:
        given = dict(zip(program.inputs, inputs, strict=True))
        answers = session.run(list(program.outputs), {name: given[name].numpy() for name in names})
        return [torch.from_numpy(answer) for answer in answers]

    return run


def pack_safetensors(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the weights of the plain trunk, by the names of its own ``state_dict``."""
    state = program.graph.net.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise ExportError(
            f"{odd[0]!r} in the model's state_dict is a {type(state[odd[0]]).__name__}; expected tensors; safetensors "
            f"holds nothing else: use --to pt2"
        )
    # cloned, since safetensors refuses tensors that share memory
    packed = {name: value.detach().clone().contiguous() for name, value in state.items()}
    return sorted_metadata(to_bytes(packed, {"format": "pt", **about}))


def run_safetensors(content: bytes, program: Program) -> Runner:
    """Return the trunk with the weights of the file."""
    trunk: nn.Module = program.graph.net
    trunk.load_state_dict(from_bytes(content), strict=True)
    return program


FORMATS = {
    "onnx": Format(pack_onnx, run_onnx, ("onnx", "onnxscript", "onnxruntime")),
    "pt2": Format(pack_pt2, run_pt2),
    "safetensors": Format(pack_safetensors, run_safetensors),
}


def check_onnx() -> None:
    """Refuse where a package of the ONNX export is not installed."""
    check_installed(FORMATS["onnx"])


def check_installed(form: Format) -> None:
    """Refuse a format whose packages are not installed."""
    with extras_named("ONNX"):
        for package in form.packages:
            importlib.import_module(package)
