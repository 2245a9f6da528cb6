"""The paper's five tables -> the rows to train: its own net, its rivals, and what a CPU can do of both."""

from deepsup.config import Config
from deepsup.paper.plan import Plan, Row, at, differences
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import RowId
from deepsup.recipes import find_recipe
from deepsup.studies.study import Method

PAPER_RATES: tuple[float, ...] = (0.3, 1.0, 3.0)  # times the recipe's own
CPU_RATES = {"DSN-SVM": (1.0, 5.0)}  # the recipe's rate is for very many more steps
OTHER_CPU_RATES = (0.2, 1.0)
CPU = {"train_size": 1000, "epochs": 8, "batch_size": 25, "extra": False, "anneal": "triangular", "anneal_at": ()}
NOTES = {
    "CNN": "a LeNet: the source's own net is not known",
    "DropConnect": "one net; the paper's number is a vote",
    "Tree-based priors": "the tree is the 20 superclasses; the paper's number has a learned one",
}


def table(name: str, preset: str) -> Plan:
    """Return the rows of one table."""
    rows = [row(method, preset, *printed) for method, printed in TABLES[name].rows.items()]
    groups = [(each,) for each in rows]
    return Plan(tuple(groups), f"{name}-{preset}", ((RowId("DSN-SVM"), RowId("NIN")),))


def row(method: str, preset: str, error: float, recipe: str) -> Row:
    """Return one row: the recipe, or the recipe cut down to what a CPU does in minutes."""
    full = find_recipe(recipe).replace(tensorboard=False)
    config, factors, seeds = full, PAPER_RATES, 3
    if preset == "cpu":
        config = Config.from_dict({**full.to_dict(), **CPU})
        factors, seeds = CPU_RATES.get(method, OTHER_CPU_RATES), 1
    rates = [factor * config.optimizer.lr for factor in factors]
    differs = "; ".join(filter(None, [differences(config, full), NOTES.get(method, "")]))
    trial = half if preset == "cpu" else same
    return Row(RowId(method), Method(method, at(config, rates), seeds, trial=trial), error, differs)


def same(config: Config) -> Config:
    """Choose by full runs."""
    return config


def half(config: Config) -> Config:
    """Choose by runs of half as many epochs."""
    return config.replace(epochs=max(1, config.run.epochs // 2))
