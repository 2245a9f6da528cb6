"""``weights``: a file of a trained trunk -> a net that begins with it; a last layer for other classes is new."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from deepsup.errors import ConfigError, RunError
from deepsup.trainer.config import Config
from deepsup.trainer.networks._zoo import published_weights
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._starting_weights import read_weights
from deepsup.trainer.runs._train import RunTraining
from deepsup.trainer.training._distributed import Processes

BASE = Config(
    network="plain", network_options={"depth": 3, "widths": [4, 4, 4], "norm": "batch"}, train_size=40, batch_size=10,
    epochs=1, tensorboard=False, gradient_every=0, test=False,
)  # fmt: skip


def trunk_of(config: Config, folder: Path) -> dict[str, Tensor]:
    return RunTraining(config, RunFolder(folder), Processes()).training.net.trunk.state_dict()


@pytest.fixture
def trained(tmp_path: Path) -> dict[str, Tensor]:
    return {name: each + 1 for name, each in trunk_of(BASE.replace(seed=9), tmp_path / "trained").items()}


def test_all_weights_of_a_net_with_the_same_classes(trained: dict[str, Tensor], tmp_path: Path) -> None:
    save_file({name: each.contiguous() for name, each in trained.items()}, tmp_path / "net.safetensors")
    found = trunk_of(BASE.replace(weights=str(tmp_path / "net.safetensors")), tmp_path / "run")
    assert all(torch.equal(found[name], each) for name, each in trained.items())


def test_the_last_layer_is_new_where_the_classes_are_others(trained: dict[str, Tensor], tmp_path: Path) -> None:
    wide = {"weight": torch.zeros(1000, trained["scores.weight"].shape[1]), "bias": torch.zeros(1000)}
    held = {name: wide.get(name.removeprefix("scores."), each) for name, each in trained.items()}
    held = {f"module.{name}": each for name, each in held.items() if not name.endswith("num_batches_tracked")}
    held["module.AuxLogits.fc.weight"] = torch.zeros(3)
    torch.save({"state_dict": held, "epoch": 3}, tmp_path / "net.pth")
    found = trunk_of(BASE.replace(weights=str(tmp_path / "net.pth")), tmp_path / "run")
    drawn = trunk_of(BASE, tmp_path / "plain")
    for name, each in found.items():
        kept = name.startswith("scores.") or name.endswith("num_batches_tracked")
        assert torch.equal(each, drawn[name] if kept else trained[name]), name


def test_weights_of_another_network_are_refused(trained: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({**trained, "conv9.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(
        RunError, match=r"its conv9.weight is \[2\], that of the network to train not there; expected w"
    ):
        trunk_of(BASE.replace(weights=str(tmp_path / "other.pth")), tmp_path / "run")


def test_files_that_hold_no_weights(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("no")
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")  # a pickled class: reading it would run code
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    (tmp_path / "text.safetensors").write_text("no")
    for name in ("text.pth", "module.pth", "empty.pth", "text.safetensors", "gone.pth"):
        with pytest.raises(
            RunError, match=rf"cannot read .*{name}: .*expected a .safetensors file, or what torch"
        ) as told:
            read_weights(tmp_path / name)
        assert "weights_only" not in str(told.value), "torch advises to switch its protection off"


def test_files_of_old_versions_of_torch(trained: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(trained, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert all(torch.equal(each, trained[name]) for name, each in read_weights(tmp_path / "old.pth").items())


def test_one_start_only() -> None:
    with pytest.raises(ConfigError, match="start_from=a and weights=b; expected one of them"):
        Config(start_from="a", weights="b")


def test_published_weights_come_from_the_packages_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchvision reads what it has fetched before; without the file it would ask the network."""
    from torchvision import models

    torch.manual_seed(3)
    theirs = models.squeezenet1_1()
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    name = models.get_model_weights("squeezenet1_1").DEFAULT.url.rpartition("/")[2]
    torch.save(theirs.state_dict(), tmp_path / "hub" / "checkpoints" / name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    found = published_weights("torchvision/squeezenet1_1")
    assert all(torch.equal(found[key], each) for key, each in theirs.state_dict().items())
