"""All scores start at 0 under output_init=zero: for every loss alike, in every network whose last layer is known."""

from math import log
from pathlib import Path

import pytest
import torch

from deepsup import Config, train
from deepsup.errors import ConfigError
from deepsup.trainer.networks import SPECS, list_networks
from deepsup.trainer.training import build_net

AT_ZERO = {"softmax": log(10), "squared_hinge": 9.0, "hinge": 9.0, "squared_hinge_ovr": 10.0, "hinge_ovr": 10.0}


def small(name: str, **more: object) -> Config:
    options = {"width": 0.2} if "width" in SPECS[name].options else {}
    return Config(network=name, network_options=options, taps=("none",), output_init="zero").replace(**more)


@pytest.mark.parametrize("name", list_networks())
def test_every_network_starts_at_zero_and_learns_from_there(name: str) -> None:
    spec = SPECS[name]
    torch.manual_seed(0)
    net = build_net(small(name), spec.num_classes, (spec.in_channels, spec.image_size, spec.image_size))
    torch.manual_seed(0)
    own = build_net(
        small(name, output_init="own"), spec.num_classes, (spec.in_channels, spec.image_size, spec.image_size)
    )
    changed = {key for key, each in own.state_dict().items() if not torch.equal(each, net.state_dict()[key])}
    last = next(key for key, layer in net.named_modules() if layer is net.output_layer)
    assert changed <= {f"{last}.weight", f"{last}.bias"}  # nothing else, neither weights nor random numbers
    assert f"{last}.weight" in changed
    scores = net(torch.randn(3, spec.in_channels, spec.image_size, spec.image_size)).scores
    assert not scores.any()
    scores.square().sub(scores).sum().backward()  # of a loss that is not flat at 0
    assert net.output_layer.weight.grad.any()


@pytest.mark.parametrize("loss", AT_ZERO)
def test_the_first_loss_is_that_of_zero_scores(loss: str, tmp_path: Path) -> None:
    config = Config(
        train_size=40, batch_size=40, epochs=1, taps=("none",), loss=loss, output_init="zero", tensorboard=False,
        test=False,
    )  # fmt: skip
    assert train(config, tmp_path / "run").metrics[0]["output_loss"] == pytest.approx(AT_ZERO[loss], rel=1e-5)


def test_companions_are_as_before() -> None:
    net = build_net(Config(output_init="zero"), 10, (1, 28, 28))
    output = net(torch.randn(2, 1, 28, 28))
    assert not output.scores.any()
    assert all(each.any() for each in output.companions.values())
    assert net.training


def test_a_relu_behind_the_last_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"0 for good, since .* passes no gradient at 0; .*final_relu=False"):
        build_net(small("nin-mnist", network_options={"width": 0.2, "final_relu": True}), 10, (1, 28, 28))


NETWORKS = """
import torch
from torch import nn

class Shifted(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layers, self.more = nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes)), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.layers(x) + self.more

class Unknown(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(784, num_classes))

    def forward(self, x):
        return x.flatten(1) @ self.weight

def shifted(num_classes, **shape):
    return Shifted(num_classes)

def unknown(num_classes, **shape):
    return Unknown(num_classes)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [("shifted", "for Shifted: its scores then are not 0"), ("unknown", "for Unknown, whose last layer is not known")],
)
def test_a_network_whose_scores_cannot_start_at_zero(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(NETWORKS)
    with pytest.raises(ConfigError, match=message):
        build_net(Config(network=f"odd.py:{name}", output_init="zero", taps=("none",)), 10, (1, 28, 28))
