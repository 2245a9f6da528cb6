"""Check what companions do at the default settings: test errors with and without them, over many kinds of model.

The bar: if the plain model trains, the supervised one must not be worse. Ratios of errors are read seed by seed on the
logarithm.
"""

import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.io import append_line, write_whole
from deepsup.objective import Objective
from deepsup.paper.bench.models import CLASSES, GROUPS, LENGTH, MODELS, VOCABULARY
from deepsup.supervision import supervise
from deepsup.trainer.data import load_data
from deepsup.trainer.runs import environment_now
from deepsup.trainer.studies import error_ratio, mean_test

OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD 0.1": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "SGD 0.01": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "AdamW 0.001": lambda parameters: torch.optim.AdamW(parameters, lr=0.001),
}
TRAINS = 40.0
"""Percent: a plain model with a higher error has not learned and is not counted."""
Data = tuple[Tensor, Tensor, Tensor, Tensor]
"""Training inputs and labels, test inputs and labels."""


@dataclass(frozen=True)
class Budget:
    """The training budget of each model."""

    samples: int = 500
    epochs: int = 20
    batch: int = 25
    test: int = 5000


@dataclass(frozen=True)
class Cell:
    """One training: model, optimizer, seed, with or without companions."""

    model: str
    optimizer: str
    seed: int
    supervised: bool


def measure_harm(
    budget: Budget,
    cells: Sequence[Cell],
    out: Path,
    jobs: int = 1,
    watch: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Train every cell that is not yet in ``out`` (one JSON object per line); return the record."""
    done = dict(known(out, budget))
    missing = [cell for cell in cells if cell not in done]
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(error_of, cell, budget): cell for cell in missing}
        for count, future in enumerate(as_completed(futures), len(cells) - len(missing) + 1):
            cell, (error, seconds) = futures[future], future.result()
            done[cell] = error
            append_line(out, json.dumps({**asdict(cell), **asdict(budget), "error": error, "seconds": seconds}))
            watch(f"{cell.model}, {cell.optimizer}, seed {cell.seed}", count, len(cells))
    return summary({cell: done[cell] for cell in cells}, budget) | {"minutes": (time.monotonic() - began) / 60}


def all_cells(seeds: int, groups: Sequence[str] = tuple(GROUPS)) -> list[Cell]:
    """Return every model of some groups with every optimizer and seed, with and without companions."""
    models = [model for group in groups for model in GROUPS[group]]
    return [Cell(*each) for each in product(models, OPTIMIZERS, range(seeds), (False, True))]


def known(out: Path, budget: Budget) -> Iterator[tuple[Cell, float]]:
    """Yield the cells of this budget that are already trained, with their errors."""
    for line in out.read_text(encoding="utf-8").splitlines() if out.is_file() else []:
        record = json.loads(line)
        if all(record[name] == value for name, value in asdict(budget).items()):
            yield Cell(record["model"], record["optimizer"], record["seed"], record["supervised"]), record["error"]


def error_of(cell: Cell, budget: Budget) -> tuple[float, float]:
    """Train one cell on one thread; return its test error in percent (100 if it diverged) and the seconds."""
    torch.set_num_threads(1)
    began = time.monotonic()
    data = text(budget, cell.seed) if cell.model == "text transformer" else digits(budget, cell.seed)
    torch.manual_seed(cell.seed)
    model = MODELS[cell.model]()
    trained = train_supervised if cell.supervised else train_plain
    finite = trained(model, cell, budget, data)
    return error_percent(model, *data[2:]) if finite else 100.0, round(time.monotonic() - began, 1)


def train_plain(model: nn.Module, cell: Cell, budget: Budget, data: Data) -> bool:
    """Train as in the tutorials; return False if the loss is not finite."""
    return fit(model.parameters(), lambda x, y, _: F.cross_entropy(model(x), y), cell, budget, data)


def train_supervised(model: nn.Module, cell: Cell, budget: Budget, data: Data) -> bool:
    """Train with companions, at the default settings; return False if the loss is not finite."""
    net = supervise(model, num_classes=CLASSES, example=data[0][:1])
    objective = Objective(net)
    finite = fit(net.parameters(), lambda x, y, progress: objective(net(x), y, progress=progress).total,
                 cell, budget, data)  # fmt: skip
    net.strip()
    return finite


def fit(
    parameters: Iterator[nn.Parameter],
    loss_of: Callable[[Tensor, Tensor, float], Tensor],
    cell: Cell,
    budget: Budget,
    data: Data,
) -> bool:
    """Train with a learning rate that decays linearly to 0; the order of samples depends only on the seed."""
    inputs, labels, *_ = data
    optimizer = OPTIMIZERS[cell.optimizer](parameters)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, budget.epochs * (len(inputs) // budget.batch))
    order = torch.Generator().manual_seed(cell.seed)
    torch.manual_seed(cell.seed)  # dropout
    for epoch in range(budget.epochs):
        batches = torch.split(torch.randperm(len(inputs), generator=order), budget.batch)
        for step, batch in enumerate(batches):
            try:
                loss = loss_of(inputs[batch], labels[batch], (epoch + step / len(batches)) / budget.epochs)
            except ValueError:  # scores that are not finite
                return False
            if not loss.isfinite():
                return False
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
            optimizer.step()
            schedule.step()
    return True


@torch.no_grad()
def error_percent(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the test error in percent, in evaluation mode; a sample without finite scores is wrong."""
    model.eval()
    scores = torch.cat([model(part) for part in torch.split(inputs, 500)])
    right = (scores.argmax(1) == labels) & scores.isfinite().all(1)
    return 100 * int((~right).sum()) / len(labels)


def digits(budget: Budget, seed: int) -> Data:
    """Return the embedded digits, standardized; the seed draws the training digits."""
    data = load_data("mnist-mini")
    x, y, test_x, test_y = (
        torch.from_numpy(each.copy()) for part in (data.train, data.test) for each in (part.images, part.labels)
    )
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: budget.samples]
    scaled = [(images.float() / 255 - 0.1307) / 0.3081 for images in (x[kept], test_x[: budget.test])]
    return scaled[0], y[kept].long(), scaled[1], test_y[: budget.test].long()


def text(budget: Budget, seed: int) -> Data:
    """Return synthetic texts of 10 topics: 12 to 32 words from the distribution of a topic, padded with 0.

    The topics are the same for every seed and differ little, so that the best possible error is not 0.
    """
    fixed = torch.Generator().manual_seed(0)
    topics = torch.rand(CLASSES, VOCABULARY - 1, generator=fixed).pow(3)  # few words are frequent
    draw = torch.Generator().manual_seed(1000 + seed)
    count = budget.samples + budget.test
    labels = torch.randint(CLASSES, (count,), generator=draw)
    words = 1 + torch.multinomial(topics[labels], LENGTH, replacement=True, generator=draw)
    lengths = torch.randint(12, LENGTH + 1, (count, 1), generator=draw)
    words[torch.arange(LENGTH) >= lengths] = 0
    return words[: budget.samples], labels[: budget.samples], words[budget.samples :], labels[budget.samples :]


def summary(errors: dict[Cell, float], budget: Budget) -> dict[str, Any]:
    """Return a row per model and optimizer, and for each group of models what its rows say together."""
    rows = [
        row_of(model, optimizer, errors)
        for model, optimizer in dict.fromkeys((cell.model, cell.optimizer) for cell in errors)
    ]
    return {
        "rows": rows,
        "budget": asdict(budget),
        "groups": {
            group: mean_of_group for group, models in GROUPS.items()
            if (mean_of_group := together([row for row in rows if row["model"] in models]))
        },
        "environment": environment_now() | {"threads_per_training": 1},
    }  # fmt: skip


def row_of(model: str, optimizer: str, errors: dict[Cell, float]) -> dict[str, Any]:
    """Return one model under one optimizer: errors by seed, and the geometric mean of their ratios."""
    plain, ours = (
        [e for cell, e in errors.items() if (cell.model, cell.optimizer, cell.supervised) == (model, optimizer, on)]
        for on in (False, True)
    )
    trains = mean(plain) < TRAINS
    ratio = error_ratio(ours, plain)
    return {
        "model": model, "optimizer": optimizer, "plain": plain, "supervised": ours, "trains": trains,
        "plain_mean": mean(plain), "supervised_mean": mean(ours),
        "plain_deviation": stdev(plain) if len(plain) > 1 else None,
        "supervised_deviation": stdev(ours) if len(ours) > 1 else None,
        "ratio": ratio["ratio"],
        "better": ratio["lower"],
        "harmless": mean(ours) <= 1.1 * mean(plain) + 1 if trains else None,
        "woken": mean(ours) < TRAINS if not trains else None,
    }  # fmt: skip


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the geometric mean of the ratios of the rows that train, its 95 % interval over rows, and counts."""
    if not rows:
        return {}
    trained = [row for row in rows if row["trains"]]
    test = mean_test([math.log(row["ratio"]) for row in trained]) if trained else None
    return {
        "rows": len(rows),
        "trained": len(trained),
        "geometric_mean": math.exp(test["mean"]) if test else None,
        "interval": [math.exp(end) for end in test["interval"]] if test and test["interval"] else None,
        "pairs": sum(len(row["plain"]) for row in trained),
        "better": sum(row["better"] for row in trained),
        "harmed": [f"{row['model']}, {row['optimizer']}" for row in trained if not row["harmless"]],
        "woken": [f"{row['model']}, {row['optimizer']}" for row in rows if row["woken"]],
    }


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(record, indent=1) + os.linesep).encode())
