"""A net that runs one block eight times solves 4x4 Sudoku, with and without a companion per step: results/loop.json.

    python dev/loop_record.py pilot loop-pilot.json       # choose rate and alpha on validation puzzles
    python dev/loop_record.py record results/loop.json    # 5 seeds of each, one thread

There are 288 solved grids. Of each 6 to 9 of 16 cells are emptied, so that one solution is left; puzzles of 58 grids
are the test set, of 29 the validation set, of the others the training set. A cell is a token, its digit the label;
given cells have the label -100, which counts nowhere. In each step a cell hears the cells of its row, column and box.
Companions are the net's own last layers, one per step. Same recipe for both, rate chosen for the net without.

B batch, 16 cells, D width.
"""

import argparse
import itertools
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeeplySupervised, Objective, supervise
from deepsup.trainer.runs import environment_now

WIDTH, STEPS, BATCH = 32, 8, 64
HOLES = (6, 10)  # cells that are empty, from and below


@dataclass(frozen=True)
class Recipe:
    """What is chosen on validation puzzles; alpha 0 is the net without companions."""

    rate: float = 2e-3
    alpha: float = 0.0
    schedule: str = "linear"
    updates: int = 400


class Step(nn.Module):
    """One step: every cell and the sum of its neighbours [B,16,D] -> the cell."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = (
            nn.Linear(3 * WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
        )
        row, column = torch.arange(16) // 4, torch.arange(16) % 4
        groups = torch.stack([row, column, 2 * (row // 2) + column // 2])
        near = (groups[:, :, None] == groups[:, None]).any(0) & ~torch.eye(16, dtype=torch.bool)
        self.register_buffer("near", near.float())

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        """Return the cells after the step."""
        heard = torch.cat([x, self.near @ x, given], 2)
        y: Tensor = self.norm(x + self.down(self.up(heard).relu()))
        return y


class Solver(nn.Module):
    """Cells [B,16], 0 for an empty one -> scores of the digits [B,16,4]; one block, run several times."""

    def __init__(self) -> None:
        super().__init__()
        self.digits, self.block = nn.Embedding(5, WIDTH), Step()
        self.norm, self.answer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, cells: Tensor) -> Tensor:
        """Return the scores."""
        given = self.digits(cells)
        x = given
        for _ in range(STEPS):
            x = self.block(x, given)
        scores: Tensor = self.answer(self.norm(x))
        return scores


def all_grids() -> Tensor:
    """Return the 288 solved grids [288,16]."""
    rows = list(itertools.permutations(range(4)))
    grids = []
    for grid in itertools.product(rows, repeat=4):
        boxes = [[grid[r + i][c + j] for i in (0, 1) for j in (0, 1)] for r in (0, 2) for c in (0, 2)]
        if all(len(set(group)) == 4 for group in [*zip(*grid, strict=True), *boxes]):
            grids.append([cell for row in grid for cell in row])
    return torch.tensor(grids)


def puzzles(grids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return cells and labels [N,16] of at most a puzzle per grid: those with one solution."""
    holes = torch.randint(*HOLES, (len(grids), 1), generator=generator)
    empty = torch.rand(grids.shape, generator=generator).argsort(1).argsort(1) < holes
    fits = (empty[:, None] | (grids[:, None] == GRIDS)).all(2)
    single = fits.sum(1) == 1
    grids, empty = grids[single], empty[single]
    return torch.where(empty, 0, grids + 1), torch.where(empty, grids, -100)


GRIDS = all_grids()


def split() -> dict[str, Tensor]:
    """Return part -> its solved grids."""
    grids = GRIDS[torch.randperm(len(GRIDS), generator=torch.Generator().manual_seed(0))]
    return {"test": grids[:58], "validation": grids[58:87], "train": grids[87:]}


def train(recipe: Recipe, seed: int, grids: Tensor) -> tuple[DeeplySupervised, float]:
    """Return a trained net, and the seconds that it took; without companions they only watch."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    companion = Companion(head=["norm", "answer"], detach=recipe.alpha == 0)
    calls = [f"block#{step}" for step in range(1, STEPS)]  # not the last, which the output follows
    net = supervise(Solver(), calls, num_classes=4, example=grids[:2], companion=companion)
    objective = Objective(net, alpha=recipe.alpha, schedule=recipe.schedule, steps=recipe.updates)
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.updates, pct_start=0.1)
    begin = time.perf_counter()
    for _ in range(recipe.updates):
        cells, labels = puzzles(grids[torch.randint(len(grids), (BATCH,), generator=generator)], generator)
        if recipe.alpha:
            loss = objective(net(cells), labels).total
        else:
            loss = F.cross_entropy(net.trunk(cells).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return net.eval(), time.perf_counter() - begin


@torch.no_grad()
def measure(net: DeeplySupervised, grids: Tensor) -> dict[str, dict[str, float]]:
    """Return step -> percent of empty cells that are wrong, and of puzzles that are not solved; up to 20 per grid."""
    cells, labels = puzzles(grids.repeat(20, 1), torch.Generator().manual_seed(1))
    out, empty = net(cells), labels >= 0
    found = {}
    for name, scores in {**out.companions, "output": out.scores}.items():
        wrong = (scores.argmax(-1) != labels) & empty
        found[name] = {
            "wrong cells": 100 * float(wrong[empty].float().mean()),
            "unsolved": 100 * float(wrong.any(1).float().mean()),
        }
    return found


def pilot(out: Path) -> None:
    """Try the rates without companions, then alphas and schedules at the best rate; one seed, validation puzzles."""
    parts = split()
    rows: list[dict[str, Any]] = []

    def tried(recipe: Recipe) -> float:
        runs = [train(recipe, seed, parts["train"]) for seed in (100,)]
        found = [measure(net, parts["validation"]) for net, _ in runs]
        wrong = mean(each["output"]["wrong cells"] for each in found)
        rows.append({**asdict(recipe), "wrong cells": wrong, "validation": found})
        out.write_text(json.dumps(rows, indent=1) + "\n")
        print(recipe, round(wrong, 2), [round(seconds) for _, seconds in runs], flush=True)  # noqa: T201
        return wrong

    best = Recipe(rate=min((2e-3, 4e-3, 8e-3), key=lambda rate: tried(Recipe(rate=rate))))
    for alpha, schedule in ((0.3, "linear"), (0.3, "constant"), (0.1, "linear")):
        tried(replace(best, alpha=alpha, schedule=schedule))


def record(out: Path, recipes: dict[str, Recipe]) -> None:
    """Train 5 seeds of each recipe and write what they do on the test puzzles."""
    parts = split()
    runs: list[dict[str, Any]] = []
    for seed in range(5):
        for name, recipe in recipes.items():
            net, seconds = train(recipe, seed, parts["train"])
            runs.append({"name": name, "seed": seed, "seconds": seconds, "steps": measure(net, parts["test"])})
            done = {
                "recipes": {each: asdict(given) for each, given in recipes.items()},
                "summary": summary(runs),
                "runs": runs,
                "grids": {part: len(each) for part, each in parts.items()},
                "model": {"width": WIDTH, "steps": STEPS, "batch": BATCH, "holes": HOLES},
                "environment": environment_now() | {"threads": torch.get_num_threads(), "busy": True},
            }
            out.write_text(json.dumps(done, indent=1) + "\n")
            print(name, seed, runs[-1]["steps"]["output"], round(seconds), flush=True)  # noqa: T201


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return per recipe and step the mean and deviation of both errors over the seeds."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        found[name] = {
            step: {what: [mean(v), stdev(v) if len(v) > 1 else 0.0] for what in kinds
                   for v in [[run["steps"][step][what] for run in own]]}
            for step, kinds in own[0]["steps"].items()
        }  # fmt: skip
    return found


def main() -> None:
    """Run the pilot or the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["pilot", "record"])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "pilot":
        pilot(given.out)
    else:
        record(given.out, RECIPES)


RECIPES = {"without": Recipe(), "with": Recipe(alpha=0.3)}

if __name__ == "__main__":
    main()
