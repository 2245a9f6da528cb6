"""The README's and the docs' Python, run as it stands there."""

import re
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

ROOT = Path(__file__).parent.parent


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


PAGES = ["README.md", "docs/supervision.md"]


@pytest.mark.parametrize(("page", "index"), [(page, index) for page in PAGES for index in range(len(blocks(page)))])
def test_python_blocks_run(page: str, index: int) -> None:
    model = torchvision.models.resnet18(num_classes=10)
    names = {"model": model, "images": torch.randn(4, 3, 64, 64), "labels": torch.arange(4), "epoch": 1, "epochs": 3}
    exec("import torch; from deepsup import Companion, Objective, supervise", names)
    exec(blocks(page)[index], names)


def test_the_six_lines_do_what_their_comments_say() -> None:
    model = torchvision.models.resnet18(num_classes=10)
    keys = list(model.state_dict())
    names = {"model": model, "images": torch.randn(4, 3, 64, 64), "labels": torch.arange(4), "epoch": 1, "epochs": 10}
    exec(blocks("README.md")[0], names)
    out, loss, plain = names["out"], names["loss"], names["plain"]
    assert {name: tuple(scores.shape) for name, scores in out.companions.items()} == {
        "layer1": (4, 10),
        "layer2": (4, 10),
    }
    torch.testing.assert_close(loss.total, loss.output + sum(loss.companions.values()))
    assert isinstance(plain, nn.Module)
    assert plain is model
    assert list(plain.state_dict()) == keys
    assert model.conv1.weight.grad is not None
