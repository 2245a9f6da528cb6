"""Each rival's network learns: 2,000 digits, a few epochs, and the training error falls well below chance (90 %)."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.trainer.networks import DropConnectLinear, cap_norms, create_network, fit_whitening

CHANCE = 90.0


def train(network: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> float:
    """Train with Adam on batches of 20, norm caps included; return the training error in evaluation mode, percent."""
    optimizer = torch.optim.Adam(network.parameters(), lr, fused=True)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(20):
            loss = F.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cap_norms(network)
    return error_of(network, images, labels)


@torch.no_grad()
def error_of(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    network.eval()
    scores = torch.cat([network(chunk) for chunk in images.split(100)])
    return 100 * (scores.argmax(1) != labels).double().mean().item()


@pytest.mark.parametrize(
    ("name", "options", "size", "epochs", "lr"),
    [
        ("cnn", {}, 16, 2, 1e-3),
        pytest.param("nin-mnist", {"init": "caffe"}, 14, 3, 1e-3, marks=pytest.mark.slow),
        ("maxout-mnist", {}, 16, 2, 2e-3),
        ("stochastic-pooling-mnist", {}, 14, 1, 2e-3),
        pytest.param("dropconnect-cifar10", {}, 14, 2, 1e-3, marks=pytest.mark.slow),
        pytest.param("tree-cifar100", {}, 9, 3, 1e-3, marks=pytest.mark.slow),
        ("fast", {"widths": (16, 32)}, 16, 1, 5e-3),
    ],
)
def test_training_error_falls_well_below_chance(
    name: str, options: dict[str, object], size: int, epochs: int, lr: float, learnable: tuple[Tensor, Tensor]
) -> None:
    images, labels = F.interpolate(learnable[0], size=size, mode="area"), learnable[1]  # small, to be quick
    images = (images - images.mean()) / images.std()
    network = create_network(name, num_classes=10, in_channels=1, image_size=size, **options)  # type: ignore[arg-type]
    if name == "fast":
        fit_whitening(network, images[:500])
    error = train(network, images, labels, epochs, lr)
    print(f"{name}: training error {error:.1f} %")  # noqa: T201 - pytest -rP shows it
    assert error < CHANCE / 2
    for layer in network.modules():
        if isinstance(layer, DropConnectLinear):  # its other inference rule must know as much
            layer.inference, layer.samples = "gaussian", 100
            assert error_of(network, images, labels) < CHANCE / 2
