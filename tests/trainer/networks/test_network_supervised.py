"""Every network under companions on its own taps: a training step, and ``strip`` gives back what was given."""

import copy

import pytest
import torch

from deepsup import Companion, Objective, create_network, list_networks, supervise
from deepsup.trainer.networks import CIFAR100_TREE, TreePrior, cap_norms


@pytest.mark.parametrize("name", list_networks())
def test_a_supervised_training_step(name: str) -> None:
    network = create_network(name, in_channels=2, image_size=16)
    images, labels = torch.rand(4, 2, 16, 16), torch.arange(4)
    net = supervise(network, at=list(network.taps), num_classes=network.num_classes, example=images)
    out = net(images)
    shapes = {tap: tuple(scores.shape) for tap, scores in out.companions.items()}
    if name == "unet-small":
        assert shapes == {"decoder3": (4, 11, 4, 4), "decoder2": (4, 11, 8, 8)}
        labels = labels[:, None, None].expand(-1, 16, 16)
    else:
        assert shapes == dict.fromkeys(network.taps, (4, network.num_classes))
    loss = Objective(net, loss="squared_hinge", alpha=0.3)(out, labels, progress=0.0)
    loss.total.backward()
    for row, parameter in net.named_parameters():
        assert parameter.grad is not None, row
        assert parameter.grad.isfinite().all(), row
    torch.optim.SGD(net.parameters(), lr=1e-3).step()
    cap_norms(net)
    for row, published in network.published.items():
        if published.cap is not None:
            norms = network.get_parameter(f"{row}.weight").flatten(1).norm(dim=1)
            assert norms.max().item() <= published.cap * (1 + 1e-5)


@pytest.mark.parametrize("name", list_networks())
def test_stripped_it_is_what_it_was(name: str) -> None:
    network = create_network(name, in_channels=2, image_size=16).eval()
    images = torch.rand(4, 2, 16, 16)
    before, keys = network(images), list(network.state_dict())
    net = supervise(copy.deepcopy(network), at=list(network.taps), num_classes=network.num_classes, example=images)
    net.eval()(images)
    plain = net.strip()
    assert type(plain) is type(network)
    assert list(plain.state_dict()) == keys
    assert torch.equal(plain.eval()(images), before)


def test_the_companions_of_nin_have_as_many_parameters_as_in_the_authors_code() -> None:
    network = create_network("nin-cifar10")
    example = torch.rand(1, 3, 32, 32)
    net = supervise(network, at=list(network.taps), num_classes=10, companion=Companion.caffe(), example=example)
    trunk = sum(parameter.numel() for parameter in network.parameters())
    assert trunk == 966_986
    assert sum(parameter.numel() for parameter in net.parameters()) - trunk == 1_966_090 + 491_530 + 122_890


def test_the_tree_prior_works_on_companions() -> None:
    network = create_network("tree-cifar100", image_size=8)
    example = torch.rand(1, 3, 8, 8)
    net = supervise(network, at=["conv2"], num_classes=100, companion=Companion.paper(), example=example)
    prior = TreePrior(CIFAR100_TREE, 100, lambda1=1e-3, lambda2=1e-3)
    own = {id(parameter) for parameter in network.parameters()}
    (weight,) = (p for p in net.parameters() if id(p) not in own and p.dim() == 2)
    prior(weight).backward()
    assert weight.grad is not None
    assert weight.grad.any()
