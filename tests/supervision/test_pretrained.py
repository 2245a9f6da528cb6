"""A supervised net to a folder and back, bit for bit; strangers' folders: no code is run, one line of error."""

import copy
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from deepsup import Companion, DeeplySupervised, Objective, create_network, supervise
from deepsup.errors import DeepsupError, RunError, SupervisionError

IMAGES = torch.randn(5, 1, 16, 16)


class Net(nn.Module):
    """A net with an in-place activation after a tap, tied weights and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.ModuleDict({"conv": nn.Conv2d(1, 4, 3, padding=1), "norm": nn.BatchNorm2d(4)})
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)
        self.second.weight = self.first.weight
        self.scores = nn.Linear(256, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.pool(self.relu(self.block["norm"](self.block["conv"](images))))
        return self.scores(self.second(torch.relu(self.first(maps.flatten(1)))))


def trained(model: nn.Module, **settings: Any) -> DeeplySupervised:
    """A net after three steps: companions are no longer 0, running statistics are not at their start."""
    net = supervise(model, num_classes=3, example=IMAGES[:2], **settings)
    objective, optimizer = Objective(net, schedule="constant"), torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        objective(net(IMAGES.to(next(net.parameters()).dtype)), torch.arange(5) % 3).total.backward()
        optimizer.step()
    return net


def assert_same(net: DeeplySupervised, back: DeeplySupervised, images: Tensor = IMAGES) -> None:
    images = images.to(next(net.parameters()).dtype)
    with torch.no_grad():
        expected, found = net.eval()(images), back(images)
    assert not back.training
    assert torch.equal(expected.scores, found.scores)
    assert list(expected.companions) == list(found.companions)
    assert all(torch.equal(scores, found.companions[name]) for name, scores in expected.companions.items())
    assert all(torch.equal(each, back.state_dict()[name]) for name, each in net.state_dict().items())


SETTINGS: list[dict[str, Any]] = [
    {"at": ["block.norm", "pool"]},
    {"at": {"pool": Companion(pool="avg", hidden=(7, 5)), "first": Companion.paper(), "block.conv": Companion(pool=3)}},
    {"at": []},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["two taps", "their own companions", "none"])
def test_a_net_of_ones_own(settings: dict[str, Any], tmp_path: Path) -> None:
    net = trained(Net(), **settings)
    net.save_pretrained(tmp_path / "new" / "net")
    assert sorted(path.name for path in (tmp_path / "new" / "net").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    for model in (Net(), Net, lambda: Net().train()):
        back = DeeplySupervised.from_pretrained(tmp_path / "new" / "net", model=model)
        assert_same(net, back)
        assert back.output_layer is back.trunk.scores
        for name in net.taps:
            assert back.head(name).companion == net.head(name).companion
    objective = Objective(back, schedule="constant")  # it can be trained on
    objective(back.train()(IMAGES), torch.arange(5) % 3).total.backward()
    assert set(back.strip().state_dict()) == set(Net().state_dict())


def test_a_network_of_deepsup_needs_no_model(tmp_path: Path) -> None:
    network = create_network("plain", num_classes=3, in_channels=1, image_size=16, depth=3, widths=(4, 6), norm="batch")
    net = trained(network, at=list(network.taps))
    net.save_pretrained(str(tmp_path))
    before = torch.get_rng_state()
    assert_same(net, DeeplySupervised.from_pretrained(str(tmp_path)))
    assert torch.equal(before, torch.get_rng_state())


def test_images_of_another_size_come_first(tmp_path: Path) -> None:
    """The grid of a pooled companion is that of the first images that the net has ever seen, not of the next ones."""
    network = create_network("plain", num_classes=3, in_channels=1, image_size=16, depth=3, widths=(4, 6))
    net = trained(network, at=list(network.taps))
    net.save_pretrained(tmp_path)
    assert_same(net, DeeplySupervised.from_pretrained(tmp_path), torch.randn(2, 1, 40, 24))


@pytest.mark.parametrize(
    "change", [{"dtype": torch.bfloat16}, {"dtype": torch.float64}, {"memory_format": torch.channels_last}]
)
def test_precision_and_memory_order(change: dict[str, Any], tmp_path: Path) -> None:
    net = trained(Net(), at=["pool"]).to(**change)
    net.save_pretrained(tmp_path)
    back = DeeplySupervised.from_pretrained(tmp_path, Net)
    assert_same(net, back)
    assert back.trunk.block["conv"].weight.stride() == net.trunk.block["conv"].weight.stride()


def test_before_the_first_run(tmp_path: Path) -> None:
    net = supervise(Net(), at=["pool"], num_classes=3)
    with pytest.raises(SupervisionError, match="has not run yet"):
        net.save_pretrained(tmp_path)
    net(IMAGES)
    net.save_pretrained(tmp_path)
    assert_same(net, DeeplySupervised.from_pretrained(tmp_path, Net))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("saved")
    trained(Net(), at=["pool"]).save_pretrained(path)
    return path


def changed(folder: Path, to: Path, **settings: Any) -> Path:
    """Copy a folder with other settings."""
    copied = Path(shutil.copytree(folder, to))
    given = json.loads((folder / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(given | settings))
    return copied


def refused(folder: Path, match: str, model: Any = Net, kind: type[Exception] = DeepsupError) -> None:
    with pytest.raises(kind, match=match) as caught:
        DeeplySupervised.from_pretrained(folder, model)
    assert "\n" not in str(caught.value)


class Trap:
    """Pickled code that leaves a mark when it is loaded."""

    def __reduce__(self) -> Any:
        return exec, ("import pathlib; pathlib.Path('ran').touch()",)


def test_no_code_is_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stranger.py").write_text("import pathlib; pathlib.Path('ran').touch()\ndef net(**k): return None\n")
    named = changed(folder, tmp_path / "a", network={"name": "stranger:net"})
    refused(named, "names a network 'stranger:net', which is not part of deepsup", model=None)
    refused(
        changed(folder, tmp_path / "b", network={"name": "stranger"}), "no network is called 'stranger'", model=None
    )
    refused(
        changed(folder, tmp_path / "c", network=None),
        r"has a Net, which is not a network of deepsup.*model=Net\(\)",
        model=None,
    )
    refused(changed(folder, tmp_path / "d", network={"name": 5}), "names a network 5", model=None)
    pickled = Path(shutil.copytree(folder, tmp_path / "e"))
    (pickled / "model.safetensors").write_bytes(pickle.dumps({"trunk.x": Trap()}))
    refused(pickled, "cannot read .*model.safetensors")
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    refused(pickled, "has no model.safetensors")
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Trap()))  # the trap works
    assert (tmp_path / "ran").exists()


def tap(**changes: Any) -> dict[str, Any]:
    companion = {
        "pool": 4, "hidden": [], "length": 8.0, "init": "zero", "rate": 1.0, "join": "sum", "select": None,
        "layout": "auto",
    }  # fmt: skip
    given = {"name": "pool", "companion": companion, "layout": "channels_first", "grid": [4, 4], "clone": False}
    return (
        given
        | {key: value for key, value in changes.items() if key in given}
        | {
            "companion": companion
            | {key: value for key, value in changes.items() if key in companion and key != "layout"}
        }
    )


@pytest.mark.parametrize(
    ("match", "settings"),
    [
        ("has format 9; this deepsup reads up to 1", {"format": 9}),
        ("'num_classes' is a str, expected int", {"num_classes": "3"}),
        ("'taps' is a str", {"taps": "pool"}),
        ("the companion at 'pool' has widths \\[4\\]", {"num_classes": 4}),
        ("the companion at 'pool' has widths \\[1000000000, 3\\]", {"taps": [tap(hidden=[10**9])]}),
        ("pool='mean' is not a way to pool", {"taps": [tap(pool="mean")]}),
        ("the companion at 'conv9' has widths", {"taps": [tap(name="conv9")]}),
        ("a grid of \\[4, 100\\]", {"taps": [tap(grid=[4, 100])]}),
        ("a grid of \\['4'\\]", {"taps": [tap(grid=["4"])]}),
        ("layout 'sideways'", {"taps": [tap(layout="sideways")]}),
        ("the output layer 'relu' has no weight", {"output_layer": "relu"}),
        ("do not fit .*no attribute `nowhere`", {"output_layer": "nowhere"}),
        ("do not fit", {"taps": []}),
        ("its checksum differs", {"sha256": "0"}),
        ("'sha256' is a int", {"sha256": 0}),
    ],
)
def test_settings_of_a_stranger(match: str, settings: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    model = Net()
    before = copy.deepcopy(model.state_dict())
    refused(changed(folder, tmp_path / "x", **settings), match, model)
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in before.items())
    assert not any(layer._forward_hooks for layer in model.modules())


def test_damaged_files(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path, "has no config.json; expected a folder that")
    refused(tmp_path / "none" / "there" / "at all", "is no folder")
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    refused(copied, "model.safetensors is damaged: its checksum differs", kind=RunError)
    (copied / "model.safetensors").write_bytes(content[:100])
    refused(copied, "cannot read .*model.safetensors", kind=RunError)
    (copied / "config.json").write_text("{")
    refused(copied, "cannot read .*config.json", kind=RunError)


def test_the_wrong_model(folder: Path) -> None:
    refused(folder, "'scores.weight' is \\[3, 256\\] in the weights and \\[2, 256\\] in the model Two", Two)
    refused(
        folder, "the weights have no '0.weight', which the model Linear|the weights have no 'weight'", nn.Linear(2, 2)
    )
    refused(folder, "model is a int; expected", 3)
    refused(folder, "model is a str; expected", lambda: "x")


class Two(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(256, 2)


def test_a_network_much_larger_than_its_weights(tmp_path: Path) -> None:
    network = create_network("plain", num_classes=3, in_channels=1, image_size=16, depth=3, widths=(4, 6))
    trained(network, at=[]).save_pretrained(tmp_path / "a")
    given = {
        "name": "plain",
        "num_classes": 3,
        "in_channels": 1,
        "image_size": 16,
        "widths": [4, 6],
        "norm": "none",
        "init": "he",
    }
    refused(changed(tmp_path / "a", tmp_path / "b", network=given | {"depth": 10**6}), "many more layers", None)
    refused(
        changed(tmp_path / "a", tmp_path / "c", network=given | {"depth": 3, "widths": [10**6]}),
        "in the weights and",
        None,
    )
    refused(changed(tmp_path / "a", tmp_path / "d", network=given | {"deep": 3}), "plain has no option 'deep'", None)


def test_the_hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network here: the two calls of huggingface_hub are replaced by ones that note what they are given."""
    given: dict[str, Any] = {}

    def fetch(repo_id: str, **options: Any) -> str:
        given.update(options, fetched=repo_id)
        return str(folder)

    def upload(_api: Any, *, repo_id: str, folder_path: str, **_options: Any) -> None:
        given.update(uploaded=repo_id, files=sorted(path.name for path in Path(folder_path).iterdir()))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(
        huggingface_hub.HfApi, "create_repo", lambda _api, repo_id, **_options: f"https://hub/{repo_id}"
    )
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    net = DeeplySupervised.from_pretrained("owner/name", Net, revision="v1")
    assert (given["fetched"], given["revision"]) == ("owner/name", "v1")
    assert given["allow_patterns"] == ["config.json", "model.safetensors"]
    assert net.push_to_hub("owner/name") == "https://hub/owner/name"
    assert (given["uploaded"], given["files"]) == ("owner/name", ["README.md", "config.json", "model.safetensors"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_args, **_options: 1 / 0)
    with pytest.raises(RunError, match="owner/name is no folder here and cannot be fetched from the hub"):
        DeeplySupervised.from_pretrained("owner/name", Net)


def test_without_huggingface_hub(folder: Path) -> None:
    """Folders need no extra package; the hub does, and says which."""
    code = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from deepsup import DeeplySupervised, DeepsupError\n"
        "from torch import nn\n"
        "net = DeeplySupervised(nn.Sequential(nn.Linear(2, 2)), {}, 2); import torch; net(torch.zeros(1, 2))\n"
        "import tempfile; folder = tempfile.mkdtemp(); net.save_pretrained(folder)\n"
        "DeeplySupervised.from_pretrained(folder, nn.Sequential(nn.Linear(2, 2)))\n"
        "try: DeeplySupervised.from_pretrained('owner/name')\n"
        "except DeepsupError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "deepsup[hub]"' in ran.stdout
    assert ran.stdout.count("\n") == 1


def test_the_hub_is_not_imported_before() -> None:
    code = "import sys, deepsup; deepsup.supervise; deepsup.Run; sys.exit('huggingface_hub' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_files_are_plain(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    plain = Net()
    plain.load_state_dict({n.removeprefix("trunk."): t for n, t in tensors.items() if n.startswith("trunk.")})
    save_file(tensors, tmp_path / "again.safetensors")
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: deepsup\n")
    assert "DeeplySupervised.from_pretrained(" in card
