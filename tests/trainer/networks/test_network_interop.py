"""Every network survives what people do with models: compile, copy, save, channels last, autocast, ONNX."""

import copy
import io
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.trainer.networks import Network, create_network, list_networks

# one of each kind of layer, small enough to compile and export in seconds
FAMILIES = [
    "cnn",
    "nin-mnist",
    "maxout-mnist",
    "stochastic-pooling-mnist",
    "dropconnect-cifar10",
    "tree-cifar100",
    "fast",
    "fast mirror",
]


def build(name: str) -> tuple[Network, Tensor]:
    name, *flags = name.split()
    network = create_network(name, in_channels=2, image_size=16, **dict.fromkeys(flags, True))
    return network, torch.rand(4, 2, 16, 16)


@pytest.mark.parametrize("name", list_networks())
def test_compiled_whole_it_gives_the_same(name: str) -> None:
    network, images = build(name)
    network.eval()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), network(images))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_training_step(name: str) -> None:
    network, images = build(name)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    F.cross_entropy(compiled(images), torch.tensor([0, 1, 2, 3])).backward()
    for row, parameter in network.named_parameters():
        assert parameter.grad is not None, row
        assert parameter.grad.isfinite().all(), row
    torch._dynamo.reset()


# torch's own compiler still imports modules that use its deprecated TorchScript
@pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning")
def test_inductor_compiles_one_too() -> None:
    network = create_network("cnn", image_size=16).eval()
    images = torch.rand(4, 1, 16, 16)
    compiled = torch.compile(network, fullgraph=True)
    torch.testing.assert_close(compiled(images), network(images), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", list_networks())
def test_state_dict_deepcopy_and_pickle(name: str) -> None:
    network, images = build(name)
    network(images)  # BatchNorm has seen something
    network.eval()
    expected = network(images)
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    other = build(name)[0].eval()
    other.load_state_dict(torch.load(file, weights_only=True))
    twin = copy.deepcopy(network)
    assert torch.equal(other(images), expected)
    assert torch.equal(twin(images), expected)
    assert twin.taps == network.taps
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert torch.equal(twin(images), expected)  # nothing is shared


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", list_networks())
def test_channels_last_is_kept(name: str, training: bool) -> None:
    network, images = build(name)
    network.train(training)
    expected = None if training else network(images)
    network.to(memory_format=torch.channels_last)
    lost: list[str] = []

    def check(row: str, output: Tensor) -> None:
        if output.dim() == 4 and not output.is_contiguous(memory_format=torch.channels_last):
            lost.append(row)

    for row, layer in network.named_modules():
        layer.register_forward_hook(lambda _module, _args, output, row=row: check(row, output))
    scores = network(images.contiguous(memory_format=torch.channels_last))
    assert lost == []
    scores.sum().backward()
    if expected is not None:
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_autocast_and_double(name: str) -> None:
    network, images = build(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = network(images)
    scores.float().square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    double = copy.deepcopy(network).double()
    assert double(images.double()).dtype == torch.float64


# torch 2.13's exporter still asks a question of its own pytree that it has deprecated
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", FAMILIES)
def test_onnx_gives_the_same(name: str, tmp_path: Path) -> None:
    network, images = build(name)
    network(images)
    file = tmp_path / "network.onnx"
    export(network.eval(), images, file)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for batch in (images, torch.rand(7, 2, 16, 16)):  # the batch may have any size
        (scores,) = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        with torch.no_grad():
            expected = network(batch).numpy()
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def export(network: nn.Module, images: Tensor, file: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    torch.onnx.export(network, (images,), str(file), dynamo=True, dynamic_shapes=({0: batch},), verbose=False)


@pytest.mark.parametrize("name", list_networks())
def test_an_empty_batch_gives_no_scores(name: str) -> None:
    network, images = build(name)
    assert network.eval()(images[:0]).shape[:2] == (0, network.num_classes)
