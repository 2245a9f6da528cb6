"""The paper's figures, tables and claims -> the rows to train, all by one protocol.

The protocol, the same for every method: NIN with He initialization, SGD with momentum 0.9, the learning rate rising and
then falling in a line to 0. The rate is chosen from ``RATES``, which grow until the choice is inside, on held-out
images, by the mean of three seeds. Every DSN stands beside its twin: the same net, loss and seeds without companions.
"""

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any

from deepsup.paper.plan import Panel, Place, Plan, Row, at, differences
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.data import KNOWN
from deepsup.trainer.recipes import FLAT, find_recipe
from deepsup.trainer.studies import Method, for_method

RATES = (0.01, 0.03, 0.1)
"""Learning rates to choose from, for every method: with the losses on one scale, one grid serves all."""
SEARCH_SEEDS = 3
FORMS = {"one-vs-rest": "squared_hinge_ovr", "multiclass": "squared_hinge"}
"""The squared hinge of the authors' code, which made the paper's numbers, and the one that the paper prints."""
SCALE: dict[str, Any] = {"balance": "softmax", "output_init": "zero"}
"""The losses on the scale of softmax at zero scores, and scores that start there."""
FLAT_STRONG: dict[str, Any] = {**FLAT, "decay_by": "step", "alpha": (1.0,), "schedule": "linear", "companion_lr": 0.01}
"""The paper's companions, flat and linear, with what it leaves open: alpha 1 that falls to 0, and a hundredth of the
learning rate for the companions themselves."""
GRID_STRONG: dict[str, Any] = {**FLAT_STRONG, "pool": "4"}
"""The same on maps pooled to 4 x 4, where a flat companion would have more weights than the net."""

NIN = Config(
    data="mnist", network="nin-mnist", network_options={"init": "he"}, normalize="none", batch_size=25,
    anneal="triangular", warmup=0.2, tensorboard=False, gradient_every=0, **FLAT_STRONG, **SCALE,
)  # fmt: skip
HALF: dict[str, Any] = {"init": "he", "width": 0.5}
HALF_NIN = NIN.replace(network_options=HALF)
STEPS = 1200
"""Of a run on few digits, whatever their number: 60 epochs of batch 25 at 500."""
SOFTMAX = ("CNN-Softmax", "DSN-Softmax")
SVM = ("CNN-SVM", "DSN-SVM")


def trial(config: Config, least_steps: int = 750) -> Config:
    """Return the run that judges a rate: a quarter of the epochs, on at most 10,000 images, but enough steps to learn.

    Where a quarter has fewer than ``least_steps``, as many epochs as these take, at most the steps of the whole run.
    """
    images = config.data.train_size or KNOWN[config.data.source].counts["train"]
    size = min(images, 10_000)
    enough, most = ceil(least_steps * config.run.batch_size / size), ceil(config.run.epochs * images / size)
    epochs = min(most, max(ceil(config.run.epochs / 4), enough))
    return config.replace(train_size=size, epochs=epochs, test_every=0, gradient_every=0)


def of_method(config: Config, method: str, form: str = "one-vs-rest") -> Config:
    """Return the config of one of the four methods, an SVM with one of the two forms of the hinge."""
    config = for_method(config, method)
    return config if method in SOFTMAX else config.replace(loss=FORMS[form])


def label(method: str, form: str, config: Config, *more: str) -> str:
    """Return what people call a row."""
    width = {0.5: "half width"}.get(config.network.options.get("width", 1.0), "")
    return ", ".join(filter(None, (f"{method} ({form})" if form else method, width, *more)))


def choosing_rate(name: str, config: Config, seeds: int, searches: int = SEARCH_SEEDS) -> Method:
    """Return a method whose rate is chosen from the grid; rows that differ in their epochs alone share their trials."""
    short = trial(config)
    whole = "" if short.data.train_size == config.data.train_size else f" of {short.data.train_size}"
    shared = f"{name.removesuffix(f', {config.run.epochs} epochs')}, {short.run.epochs} epochs{whole}"
    return Method(name, at(config, RATES), seeds, searches, trial=trial, trial_name=shared)


def digits_differ(config: Config) -> str:
    """Say what differs from the paper's protocol on digits, apart from the images and epochs that studies vary."""
    full = find_recipe("dsn-mnist").replace(train_size=config.data.train_size, epochs=config.run.epochs)
    return differences(config, full)


# Fig. 2b, and the error over the budget


def digits_row(
    method: str,
    form: str,
    base: Config,
    size: int,
    epochs: int,
    seeds: int,
    place: Callable[[RowId], Place],
    by_epochs: bool = False,
) -> Row:
    """Return one method on so many digits for so many epochs; the same row has the same name in every target."""
    config = of_method(base.replace(train_size=size, epochs=epochs), method, form or "one-vs-rest")
    width = float(config.network.options.get("width", 1.0))
    name = RowId(method, "nin-mnist", loss=form, size=size, epochs=epochs if by_epochs else None, width=width)
    words = label(method, form, config, f"{size:,} digits", f"{epochs} epochs")
    return Row(name, choosing_rate(words, config, seeds), differs=digits_differ(config), places=(place(name),))


def line_of(name: RowId) -> str:
    """Return the line of a figure that a row belongs to."""
    return f"{name.method} ({name.loss})" if name.loss else name.method


SIZES = (500, 250, 1000, 2000, 5000)


def sizes(preset: str) -> Plan:
    """Fig. 2b: the four methods over the number of digits, both forms of the hinge; 500 digits at full width first."""

    def place(name: RowId) -> Place:
        wide = ", full width" if name.width == 1.0 and preset != "paper" else ""
        return Place(line_of(name) + wide, name.size or 0, int(name.loss == "multiclass"), look=name.method)

    def rows(methods: Iterable[str], form: str, base: Config, size: int, seeds: int) -> tuple[Row, ...]:
        epochs = 100 if preset == "paper" else STEPS * base.run.batch_size // size
        return tuple(digits_row(method, form, base, size, epochs, seeds, place) for method in methods)

    def by_form(base: Config, size: int, seeds: int) -> list[tuple[Row, ...]]:
        return [rows(SOFTMAX, "", base, size, seeds), *(rows(SVM, form, base, size, seeds) for form in FORMS)]

    if preset == "paper":
        counts = (500, 1000, 2000, 5000, 10_000, 20_000, 60_000)
        groups = [group for size in counts for group in by_form(NIN, size, 10 if size == 500 else 5)]
    else:
        groups = by_form(NIN, 500, 10)
        halves = {size: by_form(HALF_NIN, size, 5) for size in SIZES}
        groups += [group for each in halves.values() for group in each[:2]]
        groups += [each[2] for each in halves.values()]
    titles = ["softmax and one-vs-rest", "multiclass"]
    if preset != "paper":
        titles = [f"{title}, half width; large marks: full width" for title in titles]
    panels = tuple(Panel("training digits", title) for title in titles)
    return Plan(tuple(groups), f"nin-digits-{preset}", twins(groups) + against_softmax(groups), panels)


def twins(groups: Sequence[Sequence[Row]]) -> tuple[tuple[RowId, RowId], ...]:
    """Return every DSN with its twin, which stands in the same group."""
    return tuple(
        (dsn.id, cnn.id)
        for group in groups for dsn in group for cnn in group
        if dsn.id.method.startswith("DSN") and cnn.id.method == dsn.id.method.replace("DSN", "CNN")
        and {**dsn.id.to_dict(), "method": "", "alpha": 0} == {**cnn.id.to_dict(), "method": "", "alpha": 0}
    )  # fmt: skip


def against_softmax(groups: Sequence[Sequence[Row]]) -> tuple[tuple[RowId, RowId], ...]:
    """Return every DSN-SVM with the CNN-Softmax of the same digits: Fig. 2b's number."""
    rows = [row.id for group in groups for row in group]
    return tuple(
        (dsn, cnn)
        for dsn in rows for cnn in rows
        if dsn.method == "DSN-SVM" and cnn.method == "CNN-Softmax" and (dsn.size, dsn.width) == (cnn.size, cnn.width)
    )  # fmt: skip


BUDGETS = (15, 30, 60, 120, 240)


def budget(preset: str) -> Plan:
    """Error over the number of epochs, each with its own schedule and rate: is it faster, or better in the end."""

    def rows(methods: Sequence[str], form: str, epochs: int) -> tuple[Row, ...]:
        base = NIN if preset == "paper" else HALF_NIN
        return tuple(digits_row(method, form, base, 500, epochs, 5, place, by_epochs=True) for method in methods)

    def place(name: RowId) -> Place:
        return Place(line_of(name), name.epochs or 0, int(bool(name.loss)), look=name.method)

    groups = [rows(SOFTMAX, "", epochs) for epochs in BUDGETS]
    groups += [rows(SVM, "one-vs-rest", epochs) for epochs in BUDGETS]
    panels = (Panel("epochs", "softmax"), Panel("epochs", "one-vs-rest hinge"))
    return Plan(tuple(groups), f"nin-digits-{preset}", twins(groups), panels)


# the tables


TABLE_BUDGETS: dict[str, dict[str, Any]] = {
    "mnist": {"epochs": 8, "batch_size": 32},
    **{name: {"epochs": 20, "batch_size": 64} for name in ("cifar10", "cifar10-augmented", "cifar100")},
    "svhn": {"epochs": 8, "batch_size": 64},
}
"""Table -> the budget of its rows on a CPU."""
DROP = 0.2
"""Dropout on a CPU outside MNIST: 0.5, the paper's, is for hundreds of epochs."""
TABLE_SEEDS: dict[str, dict[str, int]] = {
    "mnist": {"Softmax": 5, "SVM": 5},
    "cifar10-augmented": {"Softmax": 5, "SVM": 3},
    **{name: {"Softmax": 3} for name in ("cifar10", "cifar100", "svhn")},
}
"""Table -> the losses of its rows on a CPU, and their seeds."""
RIVAL_EPOCHS = {"maxout-cifar10": 4, "maxout-svhn": 3, "dropconnect-cifar10": 10}
"""Rivals with so much work per image that they get fewer epochs on a CPU."""
NOTES = {
    "CNN": "a LeNet: the source's own net is not known",
    "DropConnect": "one net; the paper's number is a vote",
    "Tree-based priors": "the tree is the 20 superclasses; the paper's number has a learned one",
}


def table_base(name: str, preset: str) -> tuple[Config, Config]:
    """Return the config that all rows of the paper's net share, and the full protocol that it is cut down from."""
    full = find_recipe(TABLES[name].rows["DSN-SVM"][1]).replace(tensorboard=False)
    config = full.replace(
        network_options={"init": "he"}, anneal="triangular", anneal_at=(), norms=False, lr=RATES[1],
        gradient_every=0, **{**GRID_STRONG, **SCALE}, taps=("network",),
    )  # fmt: skip
    config = config.replace(warmup=warmup(config.run.epochs, preset))
    if preset == "paper":
        return config, full
    drop = {} if name == "mnist" else {"drop": DROP}
    return config.replace(network_options=HALF | drop, extra=False, **TABLE_BUDGETS[name]), full


def warmup(epochs: int, preset: str) -> float:
    """Return the fraction of the epochs in which the rate rises: a fifth, of hundreds of epochs two."""
    return 2 / epochs if preset == "paper" else 0.2


def table(name: str, preset: str) -> Plan:
    """Return the rows of one table: the paper's net with and without companions, each loss a group; then the rivals."""
    config, full = table_base(name, preset)
    seeds = dict.fromkeys(("Softmax", "SVM"), 3) if preset == "paper" else TABLE_SEEDS[name]
    groups = [tuple(table_row(name, f"{kind}-{loss}", config, full, count) for kind in ("CNN", "DSN"))
              for loss, count in seeds.items()]  # fmt: skip
    own = {"NIN", "DSN-SVM"}
    rivals = [(rival(name, method, preset),) for method in TABLES[name].rows if method not in own]
    return Plan((*groups, *rivals), f"{name}-{preset}", twins(groups))


def table_row(name: str, method: str, config: Config, full: Config, seeds: int) -> Row:
    """Return one row of the paper's net: its number for CNN-Softmax is NIN's."""
    printed = {"CNN-Softmax": "NIN", "DSN-SVM": "DSN-SVM"}.get(method)
    form = "one-vs-rest" if method in SVM else ""
    own = of_method(config, method).replace(test_every=1 if name == "mnist" else 0)
    differs = "; ".join(filter(None, [differences(config, full), "one-vs-rest hinge" if form else "softmax"]))
    paper = TABLES[name].rows[printed][0] if printed else None
    return Row(RowId(method), choosing_rate(label(method, form, config), own, seeds), paper, differs)


def rival(name: str, method: str, preset: str) -> Row:
    """Return a rival, one seed: its net and what its recipe says of the loss, at the budget of the table."""
    error, recipe = TABLES[name].rows[method]
    full = find_recipe(recipe).replace(tensorboard=False)
    config = full.replace(
        network_options={**full.network.options, "init": "he"},
        warmup=warmup(full.run.epochs, preset),
        published_rates=False,
    )
    if preset != "paper":
        cut = TABLE_BUDGETS[name] | {"epochs": RIVAL_EPOCHS.get(full.network.name, TABLE_BUDGETS[name]["epochs"])}
        config = config.replace(extra=False, gradient_every=0, **cut)
    differs = "; ".join(filter(None, [differences(config, full), "one seed", NOTES.get(method, "")]))
    return Row(RowId(method), choosing_rate(method, config, 3 if preset == "paper" else 1, 1), error, differs)


def course(preset: str) -> Plan:
    """Figs. 2a and 2c: the rows of the paper's net in the table of MNIST, whose runs they share."""
    whole = table("mnist", preset)
    return Plan(whole.groups[:2], whole.runs, whole.pairs)


CIFAR_BUDGETS = {"cpu": (3, 6, 12, 20), "paper": (50, 100, 200, 400)}


def cifar_budget(preset: str) -> Plan:
    """Error over the number of epochs on augmented CIFAR-10; at the table's budget the runs are the table's."""
    name = "cifar10-augmented"
    config, full = table_base(name, preset)
    groups = []
    for epochs in CIFAR_BUDGETS[preset]:
        rows = []
        for method in SOFTMAX:
            own = of_method(config.replace(epochs=epochs, warmup=warmup(epochs, preset)), method)
            whole = epochs == config.run.epochs
            words = label(method, "", config, *([] if whole else [f"{epochs} epochs"]))
            place = Place(line_of(RowId(method, width=0.5)), epochs, look=method)
            name_of_row = RowId(method, epochs=epochs, width=0.5)
            rows.append(Row(name_of_row, choosing_rate(words, own, 3), None, differences(own, full), (place,)))
        groups.append(tuple(rows))
    return Plan(
        tuple(groups), f"{name}-{preset}", twins(groups), (Panel("epochs", "CIFAR-10, crops and flips, softmax"),)
    )


# single claims


GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""The learning rates of robustness, the same for all methods, in steps of about three."""


def robustness(preset: str) -> Plan:
    """The error at every rate of one grid, three seeds each: nothing is chosen."""
    base = (NIN if preset == "paper" else HALF_NIN).replace(train_size=500, epochs=STEPS * 25 // 500)
    forms = [("", SOFTMAX), ("one-vs-rest", SVM)]
    groups = []
    for form, methods in forms:
        rows = []
        for method in methods:
            config = of_method(base, method)
            line, words = line_of(RowId(method, loss=form)), label(method, form, config)
            rows += [
                Row(RowId(method, loss=form, lr=lr), Method(f"{words}, lr {lr:g}", at(config, (lr,)), 3), None,
                    digits_differ(config), (Place(line, lr, look=method),))
                for lr in GRID
            ]  # fmt: skip
        groups.append(tuple(rows))
    return Plan(tuple(groups), f"robustness-nin-{preset}", panels=(Panel("learning rate"),))


def hinges(preset: str) -> Plan:
    """L1 against L2: the plain and the squared multiclass hinge, with companions and without."""
    base = (NIN if preset == "paper" else HALF_NIN).replace(train_size=500, epochs=STEPS * 25 // 500)
    losses = {"L2": "squared_hinge", "L1": "hinge"}
    groups = tuple(
        tuple(
            Row(
                RowId(method, loss=loss),
                choosing_rate(label(method, short, base), config, 5),
                differs=digits_differ(config),
            )
            for short, loss in losses.items()
            for config in [for_method(base, method).replace(loss=loss)]
        )
        for method in SVM
    )
    pairs = tuple((RowId(method, loss="hinge"), RowId(method, loss="squared_hinge")) for method in SVM)
    return Plan(groups, f"l1-l2-nin-{preset}", pairs)


GREEDY_RATE = 0.03
"""Learning rate of the layers while they are pre-trained one by one."""


def pretraining(preset: str) -> Plan:
    """Joint training, greedy supervised pre-training with fine-tuning, and the plain net, under softmax.

    Greedy nets are fine-tuned with a schedule of their own and a rate chosen like all others: once within the epochs of
    the others, half of them for pre-training, and once with all of these epochs for fine-tuning alone.
    """
    epochs = STEPS * 25 // 500
    base = (NIN if preset == "paper" else HALF_NIN).replace(train_size=500, epochs=epochs)
    joint, plain = (for_method(base, method) for method in reversed(SOFTMAX))
    layers = ("conv1", "conv2", "conv3")

    def greedy(within: int, tuning: int, words: str) -> Method:
        phases = tuple(Phase(within // len(layers), GREEDY_RATE, only=layer) for layer in layers)
        start = joint.replace(phases=phases, lr=GREEDY_RATE, anneal="step", schedule="constant")
        method = choosing_rate(label("greedy", "", base, words), plain.replace(epochs=tuning), 5)
        return Method(method.name, method.choices, 5, SEARCH_SEEDS, method.trial, start)

    half = epochs // 2
    methods = {
        RowId("DSN-Softmax"): choosing_rate(label("DSN-Softmax", "", base, "joint"), joint, 5),
        RowId("CNN-Softmax"): choosing_rate(label("CNN-Softmax", "", base), plain, 5),
        RowId("greedy"): greedy(half, half, f"{half} + {half} epochs"),
        RowId("greedy", epochs=2 * epochs): greedy(epochs, epochs, f"{epochs} + {epochs} epochs"),
    }
    rows = tuple(Row(name, method, differs=digits_differ(base)) for name, method in methods.items())
    dsn, cnn, short, long = methods
    return Plan((rows,), f"pretraining-nin-{preset}", ((dsn, short), (dsn, long), (dsn, cnn), (short, cnn)))


ALPHAS = (1.0, 0.3)


def first_layer(preset: str) -> Plan:
    """Gradient variance and Fig. 3: NIN on CIFAR-10 at one rate, without companions and with two alphas."""
    base, full = table_base("cifar10", preset)
    if preset != "paper":
        base = base.replace(train_size=10_000, epochs=5)
    base = base.replace(gradient_every=1, lr=RATES[1])
    plain = RowId("CNN-Softmax")
    configs = {plain: for_method(base, "CNN-Softmax")}
    configs |= {
        RowId("DSN-Softmax", alpha=alpha): for_method(base.replace(alpha=(alpha,)), "DSN-Softmax") for alpha in ALPHAS
    }
    words = {name: label(name.method, "", base, *([f"alpha {name.alpha:g}"] if name.alpha else [])) for name in configs}
    rows = tuple(Row(name, Method(words[name], {"fixed": config}, 3), differs=differences(config, full))
                 for name, config in configs.items())  # fmt: skip
    return Plan((rows,), f"first-layer-{preset}", tuple((name, plain) for name in configs if name != plain))
