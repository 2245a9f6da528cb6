"""Networks of other packages by name, in a process of its own: no conftest has made torchvision importable there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepsup.errors import ConfigError
from deepsup.trainer.config import Config
from deepsup.trainer.networks._own_network import own_network


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(["torchvision.models:resnet18"], marks=pytest.mark.slow),
        pytest.param(["timm:create_model", "--network-options", "model_name=resnet10t"], marks=pytest.mark.slow),
        ["wrapped:net"],
    ],
    ids=lambda words: words[0],
)
def test_a_network_that_needs_torchvision(network: list[str], tmp_path: Path) -> None:
    """The commands of docs/training.md; and a module of the user's own that imports torchvision."""
    (tmp_path / "wrapped.py").write_text(
        "import torchvision\n"
        "def net(num_classes):\n"
        "    return torchvision.models.squeezenet1_1(num_classes=num_classes)\n"
    )
    code = (
        "import numpy as np, pathlib\n"
        "from PIL import Image\n"
        "for i in range(8):\n"
        "    path = pathlib.Path('photos', 'ab'[i % 2], f'{i}.png')\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        "    Image.fromarray(np.full((64, 64, 3), 30 * i, np.uint8)).save(path)\n"
        "from deepsup.cli import main\n"
        "import sys\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [
        "train",
        "--data",
        "photos",
        "--image-size",
        "64",
        "--network",
        *network,
        "--taps",
        "auto",
        "--pool",
        "4",
        "--lr",
        "0.001",
    ]
    words += ["--batch-size", "4", "--limit-steps", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--out", "run"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1


def test_other_failures_keep_their_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_net.py").write_text("def net(num_classes):\n    raise RuntimeError('out of luck')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"failing_net:net cannot be built \(RuntimeError: out of luck\)"):
        own_network(Config(network="failing_net:net"), 3)
