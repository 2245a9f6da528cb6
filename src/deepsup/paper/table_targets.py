"""The paper's five tables -> the rows to train: its own net, its rivals, and what a CPU can do of both."""

from deepsup.paper.plan import Plan, Row, at, differences
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import RowId
from deepsup.paper.study_targets import AS_TRAINED
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT_COMPANIONS, find_recipe
from deepsup.trainer.studies import Method, for_method

PAPER_RATES: tuple[float, ...] = (0.3, 1.0, 3.0)  # times the recipe's own
CPU_RATES = (0.2, 1.0)
CPU = {"train_size": 5000, "epochs": 10, "batch_size": 25, "extra": False, "anneal": "triangular", "anneal_at": ()}
"""The budget of every row on a CPU."""
HALF_NIN = {"init": "he", "width": 0.5}
"""NIN, half as wide (a quarter of the work) and with He initialization, under which it learns in few steps."""
NIN_CHOICES: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {
    "NIN": ("CNN-Softmax", (0.01, 0.02, 0.04, 0.08), ()),
    "DSN-SVM": ("DSN-SVM", (0.005, 0.01), (0.1, 0.3)),
    "DSN-Softmax": ("DSN-Softmax", (0.02, 0.04), (0.3, 1.0)),
}
"""Row of a CPU's table -> its method, learning rates and alphas: four combinations for each."""
NOTES = {
    "CNN": "a LeNet: the source's own net is not known",
    "DropConnect": "one net; the paper's number is a vote",
    "Tree-based priors": "the tree is the 20 superclasses; the paper's number has a learned one",
}


def table(name: str, preset: str) -> Plan:
    """Return the rows of one table; on a CPU there is a DSN under softmax too."""
    printed = TABLES[name].rows
    if preset == "paper":
        rows = [paper_row(method, *each) for method, each in printed.items()]
    else:
        own = {"NIN": printed["NIN"][0], "DSN-SVM": printed["DSN-SVM"][0], "DSN-Softmax": None}
        rows = [nin_row(method, name, paper) for method, paper in own.items()]
        rows += [rival_row(method, *each) for method, each in printed.items() if method not in NIN_CHOICES]
    pairs = [(RowId("DSN-SVM"), RowId("NIN"))] + ([] if preset == "paper" else [(RowId("DSN-Softmax"), RowId("NIN"))])
    return Plan(tuple((each,) for each in rows), f"{name}-{preset}", tuple(pairs))


def paper_row(method: str, error: float, recipe: str) -> Row:
    """Return one row of the full protocol: the recipe, with three rates to choose from."""
    config = find_recipe(recipe).replace(tensorboard=False)
    rates = [factor * config.optimizer.lr for factor in PAPER_RATES]
    return Row(
        RowId(method), Method(method, at(config, rates), 3, searches=1, trial=same), error, NOTES.get(method, "")
    )


def cut(recipe: str, **more: object) -> tuple[Config, str]:
    """Return a recipe cut down to a CPU's budget, and what differs."""
    full = find_recipe(recipe).replace(tensorboard=False)
    config = Config.from_dict({**full.to_dict(), **CPU, **more})
    return config, differences(config, full)


def nin_row(method: str, table_name: str, error: float | None) -> Row:
    """Return a row of the paper's net, three seeds; a DSN has flat companions."""
    which, rates, alphas = NIN_CHOICES[method]
    recipe = TABLES[table_name].rows["NIN"][1]
    config, differs = cut(recipe, network_options=HALF_NIN, **({} if method == "NIN" else FLAT_COMPANIONS))
    differs += "" if method == "NIN" else AS_TRAINED
    label = f"{method}, half width"
    choices = at(for_method(config, which), rates, alphas)
    return Row(RowId(method), Method(label, choices, 3, searches=1, trial=half), error, differs)


def rival_row(method: str, error: float, recipe: str) -> Row:
    """Return a row of another method: its recipe at the CPU's budget, He initialization as NIN has it, one seed."""
    config, differs = cut(recipe, network_options={**find_recipe(recipe).network.options, "init": "he"})
    rates = [factor * config.optimizer.lr for factor in CPU_RATES]
    differs = "; ".join(filter(None, [differs, NOTES.get(method, "")]))
    return Row(RowId(method), Method(method, at(config, rates), 1, searches=1, trial=half), error, differs)


def same(config: Config) -> Config:
    """Choose by full runs."""
    return config


def half(config: Config) -> Config:
    """Choose by runs of half as many epochs."""
    return config.replace(epochs=max(1, config.run.epochs // 2))
