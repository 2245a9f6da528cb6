"""The README's Python, run as it stands there, and the README's figures against the records."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest
import torch
import torchvision
from torch import nn

from deepsup import Objective, supervise

ROOT = Path(__file__).parent.parent


def blocks(page: str, kind: str = "python") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_block_prints_what_the_readme_says(tmp_path: Path) -> None:
    """As a reader would run it: a file of its own, nothing defined before. Other processors round otherwise."""
    first, _ = blocks("README.md")  # the other one has its own test
    (tmp_path / "first.py").write_text(first)
    ran = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    printed, promised = (
        [line.rpartition(": ") for line in text.splitlines()] for text in (ran.stdout, blocks("README.md", "text")[0])
    )
    assert [where for where, _, _ in printed] == [where for where, _, _ in promised]
    errors = [[int(error.split("%")[0]) for _, _, error in each] for each in (printed, promised)]
    assert errors[0] == pytest.approx(errors[1], abs=4)
    assert errors[0][-1] < errors[0][0] - 10, "companions help"


@pytest.mark.slow
def test_the_scikit_learn_block_is_better_than_a_default_svc(tmp_path: Path) -> None:
    (tmp_path / "second.py").write_text(blocks("README.md")[1])
    ran = subprocess.run(
        [sys.executable, "second.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert 0.9633 < float(ran.stdout) < 0.975  # SVC() has 0.9633 on these folds


def test_a_resnet_of_ones_own_at_its_own_rate() -> None:
    """What the README promises of three lines: nothing diverges, the loss falls, the model is back as it was given."""
    model = torchvision.models.resnet18(num_classes=10)
    keys, x, y = list(model.state_dict()), torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    net = supervise(model, num_classes=10, example=x[:1])
    objective = Objective(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for step in range(12):
        loss = objective(net(x), y, progress=step / 12)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(loss.output_loss.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < 0.5 * losses[0]
    plain = net.strip()
    assert plain is model
    assert isinstance(plain, nn.Module)
    assert list(plain.state_dict()) == keys


def test_what_the_readme_says_of_harm_is_the_record() -> None:
    record = json.loads((ROOT / "results" / "harm.json").read_text())
    section = (ROOT / "README.md").read_text().split("### Does it ever hurt?")[1].split("\n## ")[0]
    rows = [row for row in record["rows"] if row["trains"]]
    harmed = [f"{row['model']}, {row['optimizer']}" for row in rows if not row["harmless"]]
    worst = max(rows, key=lambda row: row["ratio"])
    lower = sum(row["supervised_mean"] < row["plain_mean"] for row in rows)
    for words in (
        f"In {len(rows)} of {len(record['rows'])} rows the plain model trains",
        f"geometric mean {math.exp(mean(math.log(row['ratio']) for row in rows)):.2f}",
        f"lower in {lower} rows",
        f"the worst ratio is {worst['ratio']:.2f} ({worst['model']}, {worst['optimizer']})",
        f"{len(rows) - len(harmed)} rows stay within our bar",
        *harmed,
    ):
        assert words in section, words
    assert re.findall(r"^\|.*\d \|$", section, re.MULTILINE) == [
        f"| {row['model']} | {row['optimizer']} | {row['plain_mean']:.1f} | {row['supervised_mean']:.1f} |"
        for row in rows
    ]


def test_what_the_readme_says_of_depth_is_the_record() -> None:
    record = json.loads((ROOT / "results" / "when-cpu.json").read_text())
    page = (ROOT / "README.md").read_text()
    means = {
        (row["id"]["depth"], row["id"]["method"], row["id"].get("companions")): f"{row['mean']:.1f}"
        for row in record["rows"]
        if (row["id"]["norm"], row["id"]["optimizer"], row["id"]["size"]) == ("none", "sgd", 500)
    }
    kinds = (("without companions", None), ("with companions", None), ("with companions", "paper"))
    for depth in (6, 12, 21):
        bare, ours, papers = (means[depth, *kind] for kind in kinds)
        assert f"{depth} layers {bare}, {ours} and {papers} %" in page
