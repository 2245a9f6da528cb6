"""The README's Python, run as it stands there, and the README's figures against the records."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from deepsup import Objective, supervise
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.trainer.statistics import error_ratio

ROOT = Path(__file__).parent.parent


def blocks(page: str, kind: str = "python") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_block_prints_what_the_readme_says(tmp_path: Path) -> None:
    """As a reader would run it: a file of its own, nothing defined before. Other processors round otherwise."""
    (first,) = blocks("README.md")
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
    groups = json.loads((ROOT / "results" / "harm.json").read_text())["groups"]
    page = (ROOT / "README.md").read_text()
    for name in ("nine kinds", "plain nets"):
        group = groups[name]
        low, high = group["interval"]
        assert f"{group['geometric_mean']:.2f} over" in page, name
        assert f"{low:.2f} to {high:.2f}" in page
        assert f"{group['better']} of {group['pairs']}" in page
    assert f"{sum(len(group['woken']) for group in groups.values())} combinations train only with companions" in page
    assert not any(group["harmed"] for group in groups.values())
    assert "none is worse than 1.1 times the plain error plus 1 point" in page
    others = json.loads((ROOT / "results" / "harm-others.json").read_text())["groups"]["others"]
    low, high = others["interval"]
    assert f"{others['geometric_mean']:.2f} ({low:.2f} to {high:.2f}; {others['better']} of {others['pairs']})" in page
    assert not others["harmed"]


def test_what_the_readme_says_of_depth_is_the_record() -> None:
    record = json.loads((ROOT / "results" / "when-cpu.json").read_text())
    page = (ROOT / "README.md").read_text()
    rows = {RowId.of(row): f"{row['mean']:.1f}" for row in record["rows"]}
    first = RowId(WITHOUT, "plain", None, "none", "sgd", size=500)
    for depth in (6, 12, 21, 30):
        bare = replace(first, depth=depth)
        assert f"{depth} layers {rows[bare]} and {rows[replace(bare, method=WITH)]} %" in page
    printed = [rows[replace(first, depth=depth, method=WITH, companions="printed")] for depth in (6, 12, 21, 30)]
    assert f"{', '.join(printed)} % at 6, 12, 21 and 30 layers" in page
    norm = [rows[replace(first, depth=depth, norm="batch")] for depth in (6, 12, 21, 30)]
    assert f"add it first: {', '.join(norm)} %" in page


def test_what_the_readme_says_of_the_main_job_is_the_record() -> None:
    record = json.loads((ROOT / "results" / "main-job.json").read_text())
    page = (ROOT / "README.md").read_text()
    for each in record["methods"].values():
        errors = ", ".join(f"{error:.1f}" for error in each["errors"])
        assert f"{each['mean']:.2f} ± {each['deviation']:.2f} % ({errors})" in page
    ratio = record["ratios"]["DSN-Softmax / CNN-Softmax"]
    low, high = ratio["interval"]
    assert (
        f"{ratio['ratio']:.2f} times that without (95 % {low:.2f} to {high:.2f}, lower in {ratio['lower']} of" in page
    )
    assert f"BatchNorm instead {record['ratios']['BatchNorm / CNN-Softmax']['ratio']:.2f} times" in page


def test_what_the_readme_says_of_the_budget_curves_is_the_record() -> None:
    record = json.loads((ROOT / "results" / "budget-cpu.json").read_text())
    page = (ROOT / "README.md").read_text()
    rows = {RowId.of(row): row for row in record["rows"]}

    def row(method: str, epochs: int, loss: str = "") -> dict[str, Any]:
        return rows[RowId(method, "nin-mnist", loss=loss, size=500, epochs=epochs, width=0.5)]

    def times(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
        answer = error_ratio(ours["values"], theirs["values"])
        low, high = answer["interval"]
        return f"({answer['ratio']:.2f} times, {low:.2f} to {high:.2f}"

    (faster,) = (each for each in record["readings"] if each["id"]["reading"] == "faster" and "loss" not in each["id"])
    low, high = faster["interval"]
    assert f"in {faster['mean']:.2f} of the epochs (95 % {low:.2f} to {high:.2f})" in page
    dsn, cnn = row("DSN-Softmax", 120), row("CNN-Softmax", 120)
    assert f"end at {dsn['mean']:.2f} instead of {cnn['mean']:.2f} % {times(dsn, cnn)})" in page
    svm, cnn = row("DSN-SVM", 60, "one-vs-rest"), row("CNN-Softmax", 60)
    assert f"has {svm['mean']:.2f} % after 60 epochs, CNN-Softmax {cnn['mean']:.2f} % {times(svm, cnn)};" in page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 9_216
    assert len(blocks("README.md")[0].splitlines()) <= 25


@pytest.mark.slow
def test_the_other_seeds_that_the_readme_names() -> None:
    """The first block with seeds 1 to 4, as the sentence below it says; other processors round otherwise."""
    page = (ROOT / "README.md").read_text()
    without, with_ = (
        [int(word) for word in re.findall(r"\d+", words)]
        for words in re.search(r"Seeds 1 to 4: (.+?) % without, (.+?) % with\.", page).groups()
    )
    for seed, expected in enumerate(zip(without, with_, strict=True), 1):
        code = blocks("README.md")[0].replace("torch.manual_seed(0)", f"torch.manual_seed({seed})")
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
        assert [int(each) for each in re.findall(r"(\d+)% error", ran.stdout)] == pytest.approx(expected, abs=5)
