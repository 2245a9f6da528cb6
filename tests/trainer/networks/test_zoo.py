"""Networks by the names of torchvision and timm, and the user's own by their file."""

import sys
from pathlib import Path

import pytest
import torch

from deepsup.errors import ConfigError, NetworkError
from deepsup.trainer.config import Config
from deepsup.trainer.networks import _zoo as zoo
from deepsup.trainer.networks._own_network import imported, trusted_factory
from deepsup.trainer.training._build import build_network

NET = """
from torch import nn
from helper import WIDTH
class MyNet(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 8 * 8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_classes))
"""


def test_a_name_that_both_have_is_torchvisions() -> None:
    assert zoo.full_name("resnet18") == "torchvision/resnet18"
    assert zoo.full_name("resnet18d") == "timm/resnet18d"
    assert zoo.full_name("timm/resnet18") == "timm/resnet18"
    assert zoo.full_name("cnn") == "cnn"  # a registered one


@pytest.mark.parametrize("name", ["squeezenet1_1", "timm/resnet10t"])
def test_the_network_is_the_packages_own_with_the_users_classes(name: str) -> None:
    import timm
    import torchvision

    torch.manual_seed(0)
    net = build_network(Config(network=name), 7, (3, 64, 64))
    torch.manual_seed(0)
    theirs = (
        timm.create_model("resnet10t", num_classes=7)
        if "timm" in name
        else torchvision.models.squeezenet1_1(num_classes=7)
    )
    assert type(net) is type(theirs)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_heads_of_their_own_are_left_out(name: str) -> None:
    with torch.device("meta"):
        net = build_network(Config(network=name, network_options={"init_weights": False}), 7, (3, 75, 75))
    assert not [key for key in net.state_dict() if key.lower().startswith("aux")]


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnt18", (3, 32, 32), r"no network is called 'resnt18'; did you mean resnet18 \(torchvision\)"),
        ("nin-cifar01", (3, 32, 32), r"did you mean nin-cifar10 .*deepsup networks"),
        (
            "xyzzy",
            (3, 32, 32),
            r"'xyzzy'; expected one of deepsup networks, a classifier of torchvision or timm, or my_f",
        ),
        ("mynet.py", (3, 32, 32), r"names a file; expected a class in it too: mynet.py:MyNet"),
        ("timm/resnet1", (3, 32, 32), r"timm has no network 'resnet1'; did you mean"),
        ("resnet18", (1, 32, 32), r"takes images of 3 channels, these have 1; .* --network timm/resnet18"),
    ],
)
def test_names_and_images_that_do_not_do(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        build_network(Config(network=name), 4, shape)


def test_an_option_that_the_network_does_not_have() -> None:
    with pytest.raises(NetworkError, match=r"torchvision/resnet18 cannot be built.*widht.*network options: widht=2"):
        build_network(Config(network="resnet18", network_options={"widht": 2}), 4, (3, 32, 32))


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.zoo.cache_clear()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "timm", None)
    try:
        with pytest.raises(NetworkError, match=r"no network is called 'resnet18'; .*pip install timm"):
            build_network(Config(network="resnet18"), 4, (3, 32, 32))
        with pytest.raises(NetworkError, match="torchvision/resnet18 needs torchvision, which is not installed"):
            build_network(Config(network="torchvision/resnet18"), 4, (3, 32, 32))
    finally:
        zoo.zoo.cache_clear()


def test_a_file_is_found_from_everywhere_with_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "mine.py").write_text(NET)
    (tmp_path / "nets" / "helper.py").write_text("WIDTH = 5\n")
    monkeypatch.chdir(tmp_path)
    net = build_network(Config(network="nets/mine.py:MyNet"), 3, (3, 8, 8))
    assert type(net).__name__ == "MyNet"
    assert net(torch.zeros(1, 3, 8, 8)).shape == (1, 3)
    monkeypatch.chdir("/")
    assert trusted_factory(f"{tmp_path}/nets/mine.py:MyNet") is type(net)
    assert str(tmp_path / "nets") not in sys.path


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NET.replace("from helper import WIDTH", "WIDTH = 5"))
    (tmp_path / "broken.py").write_text("class MyNet(:\n")
    with pytest.raises(ConfigError, match=r"mine.py has no 'MyNte'; did you mean 'MyNet'\?"):
        imported(f"{tmp_path}/mine.py:MyNte")
    with pytest.raises(ConfigError, match=r"no file .*gone.py; expected the one that defines the network"):
        imported(f"{tmp_path}/gone.py:MyNet")
    with pytest.raises(ConfigError, match=r"broken.py:MyNet cannot be built \(SyntaxError"):
        build_network(Config(network=f"{tmp_path}/broken.py:MyNet"), 3, (3, 8, 8))
