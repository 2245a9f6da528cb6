"""The paper's figures and claims -> the rows to train: the four methods over epochs, rates and losses.

On a CPU a study has two versions: on the paper's net with He initialization, and (``lenet``) on a LeNet.
"""

from collections.abc import Mapping, Sequence

from deepsup.paper.plan import Panel, Place, Plan, Row, at, differences
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.recipes import FLAT, FLAT_COMPANIONS, WEAK, find_recipe
from deepsup.trainer.studies import METHODS, Method, for_method

RATES = (0.003, 0.01, 0.03, 0.1)
ALPHAS = (0.1, 1.0)
SMALL = Config(
    data="mnist", network="cnn", train_size=1000, epochs=20, batch_size=50, tensorboard=False, gradient_every=0,
    loss="squared_hinge", alpha=(0.3,), schedule="constant", head_lr=0.01, lr=0.005, **FLAT,
)  # fmt: skip
"""What the studies on few digits train on a CPU: a conventional CNN with the paper's two dropouts."""

NIN = Config(
    data="mnist", network="nin-mnist", network_options={"init": "he"}, normalize="none", batch_size=25,
    tensorboard=False, gradient_every=0,
)  # fmt: skip
"""The paper's net with He initialization, under which it learns without companions too. Companions: the defaults."""
HALF_NIN = NIN.replace(network_options={"init": "he", "width": 0.5})
"""Half as wide, a quarter of the work: for studies that train it on all digits, or many times."""
WEAK_NIN = HALF_NIN.replace(**WEAK)
"""With the first defaults, for the studies that were recorded with them."""
STEPS = 1200
"""Of every run of NIN on few digits, whatever their number: 60 epochs of batch 25 at 500."""
Candidates = Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]
CANDIDATES: Candidates = {
    "CNN-Softmax": ((0.01, 0.03, 0.06, 0.1), ()),
    "DSN-Softmax": ((0.03, 0.06), (0.3, 1.0)),
    "CNN-SVM": ((0.003, 0.006, 0.01, 0.02), ()),
    "DSN-SVM": ((0.01, 0.02), (0.3, 1.0)),
}
"""Method -> its learning rates and, with weak companions, its alphas on NIN: four combinations for each."""
FLAT_CANDIDATES: Candidates = {
    "DSN-Softmax": ((0.03, 0.06), (0.3, 1.0)),
    "DSN-SVM": ((0.005, 0.01), (0.1, 0.3)),  # with alpha 1 flat companions diverge here
}
"""The same for flat companions."""
AS_TRAINED = "; flat companions, alpha constant, no |w|^2"
"""What rows with these companions say of them."""
FLAT_ALPHAS = {"DSN-Softmax": (1.0,), "DSN-SVM": (0.3,)}
"""Where only the rate varies: the alphas that held-out digits chose for flat companions (Fig. 2b, NIN)."""
GRIDS = {"Softmax": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "SVM": (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)}
"""Loss -> the learning rates of NIN's robustness: 1/30 to 10 times the rate that held-out digits chose for the CNN
(Fig. 2b, NIN), about a factor 3 apart."""
L1_CANDIDATES: Candidates = {"CNN-SVM": ((0.01, 0.02, 0.04, 0.08), ()), "DSN-SVM": ((0.02, 0.04), (0.3, 1.0))}
"""The gradient of the plain hinge does not grow with the loss, so that it takes higher rates."""


def digits(preset: str, size: int | None, epochs: int) -> Config:
    """Return the base of a study on MNIST: the paper's net and protocol, or the small net for a CPU."""
    if preset == "paper":
        return find_recipe("dsn-mnist").replace(train_size=size, tensorboard=False, batch_size=min(128, size or 128))
    return SMALL.replace(train_size=size, epochs=epochs)


def rates(preset: str) -> tuple[float, ...]:
    """Return the learning rates to choose from: the paper's net under |w|^2 and C = 10 needs lower ones."""
    return (0.0003, 0.001, 0.003) if preset == "paper" else RATES


def with_steps(config: Config, size: int) -> Config:
    """Return a config of ``STEPS`` steps on so many digits."""
    return config.replace(train_size=size, epochs=STEPS * config.run.batch_size // size)


def candidates(config: Config, choices: Candidates, seeds: int, **trial: int) -> dict[str, Method]:
    """Return the methods by their names, each with its learning rates and alphas to choose from.

    trial: what is smaller in the runs that choose.
    """
    return {
        method: Method(
            labelled(method, config), at(for_method(config, method), lrs, alphas), seeds,
            searches=1, trial=lambda given: given.replace(**trial),
        )
        for method, (lrs, alphas) in choices.items()
    }  # fmt: skip


def told(config: Config) -> str:
    """Say what differs from the paper's protocol, the number of images aside: the studies vary it."""
    return differences(config, find_recipe("dsn-mnist").replace(train_size=config.data.train_size))


def labelled(method: str, config: Config) -> str:
    """Return the name of a method as a row has it: with its net's width, if that is not the paper's."""
    return f"{method}, half width" if config.network.options.get("width") == 0.5 else method


def four(
    config: Config, preset: str, seeds: int, searches: int, trial: dict[str, int] | None = None
) -> dict[str, Method]:
    """Return the four methods by their names, each with its rates, those with companions with their alphas too."""
    return {
        method: Method(method, at(for_method(config, method), rates(preset), ALPHAS), seeds, searches,
            trial=lambda given: given.replace(**(trial or {})))
        for method in METHODS
    }  # fmt: skip


def course(preset: str, lenet: bool = False) -> Plan:
    """Figs. 2a and 2c: the four methods on all digits, the test error after every epoch; flat companions on NIN."""
    nin, preset = base_of(preset, lenet)
    if nin:
        config = HALF_NIN.replace(epochs=8, batch_size=32, test_every=1)
        trial = {"train_size": 5000, "epochs": 4}
        methods = candidates(config, {method: CANDIDATES[method] for method in METHODS}, 3, **trial)
        methods |= candidates(config.replace(**FLAT_COMPANIONS), FLAT_CANDIDATES, 3, **trial)
    else:
        config = digits(preset, None, 5).replace(test_every=1, batch_size=128)
        methods = four(config, preset, 3, 1, {} if preset == "paper" else {"train_size": 5000, "epochs": 4})
    rows = [
        Row(RowId(method), each, differs=told(config) + AS_TRAINED * (nin and method in FLAT_CANDIDATES))
        for method, each in methods.items()
    ]
    pairs = (("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"))
    groups = (tuple(rows[:2]), tuple(rows[2:]))  # softmax, then SVM
    return Plan(groups, folder("fig2a", preset, nin), tuple((RowId(ours), RowId(theirs)) for ours, theirs in pairs))


def base_of(preset: str, lenet: bool) -> tuple[bool, str]:
    """Return whether a study trains NIN with He initialization, and the preset that its other settings follow."""
    return preset == "cpu" and not lenet, "cpu" if lenet else preset


def folder(name: str, preset: str, nin: bool) -> str:
    """Return the folder of a study's runs."""
    return f"{name}-nin-cpu" if nin else f"{name}-{preset}"


def robustness(preset: str, lenet: bool = False) -> Plan:
    """The error over a grid of learning rates, alpha as it is; on NIN flat companions, then our defaults."""
    nin, preset = base_of(preset, lenet)
    config = with_steps(HALF_NIN, 500) if nin else digits(preset, 1000, 20)
    grid = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2) if preset == "paper" else (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    grids = {method: GRIDS[method[4:]] if nin else grid for method in METHODS}
    whose = "printed" if preset == "paper" else ""
    rows = {
        method: over_rates(method, for_method(config, method), grids[method], whose if method[:3] == "DSN" else "")
        for method in METHODS
    }
    groups = [tuple(row for each in rows.values() for row in each)]
    if nin:
        plain, defaults = ([row for method in METHODS if method[:3] == kind for row in rows[method]]
                           for kind in ("CNN", "DSN"))  # fmt: skip
        flat = [
            row for method, alpha in FLAT_ALPHAS.items()
            for row in over_rates(
                method, for_method(config.replace(**{**FLAT_COMPANIONS, "alpha": alpha}), method), grids[method],
                "flat",
            )
        ]  # fmt: skip
        groups = [(*plain, *flat), tuple(defaults)]
    return Plan(tuple(groups), folder("robustness", preset, nin), panels=(Panel("learning rate"),))


def over_rates(method: str, config: Config, grid: Sequence[float], companions: str = "") -> tuple[Row, ...]:
    """Return one method at every learning rate of a grid."""
    line = RowId(method, companions=companions).line
    return tuple(
        Row(RowId(method, companions=companions, lr=lr),
            Method(f"{labelled(line, config)}, lr {lr:g}", at(config, (lr,)), 3), None,
            told(config) + AS_TRAINED * (companions == "flat"), (Place(line, lr),))
        for lr in grid
    )  # fmt: skip


def pretraining(preset: str, lenet: bool = False) -> Plan:
    """Greedy layer-wise supervised pre-training and fine-tuning, joint training, and the plain net: equal epochs."""
    nin, preset = base_of(preset, lenet)
    stage = 15 if nin else 10 if preset == "cpu" else 25
    base = with_steps(WEAK_NIN, 500) if nin else digits(preset, 1000, 4 * stage)
    whole = base.replace(epochs=4 * stage, anneal="step", anneal_at=(3 * stage,), taps=("network",))
    plans = CANDIDATES if nin else dict.fromkeys(METHODS, (rates(preset), ALPHAS))
    joint, plain = for_method(whole, "DSN-SVM"), for_method(whole, "CNN-SVM")
    layers = ("conv1", "conv2") if preset == "cpu" and not nin else ("conv1", "conv2", "conv3")
    stages = {f"lr{lr:g}": greedy(joint, lr, layers, stage) for lr in plans["CNN-SVM"][0]}
    methods = {
        RowId("DSN-SVM"): Method(labelled("DSN-SVM, joint", base), at(joint, *plans["DSN-SVM"]), 5, searches=1),
        RowId("CNN-SVM"): Method(labelled("CNN-SVM, plain", base), at(plain, *plans["CNN-SVM"]), 5, searches=1),
        RowId("greedy"): Method(labelled("greedy pre-training", base), stages, 5, searches=1),
    }
    pairs = (("DSN-SVM", "greedy"), ("DSN-SVM", "CNN-SVM"), ("greedy", "CNN-SVM"))
    rows = tuple(Row(name, method, differs=told(whole)) for name, method in methods.items())
    compared = tuple((RowId(ours), RowId(theirs)) for ours, theirs in pairs)
    return Plan((rows,), folder("pretraining", preset, nin), compared)


def greedy(config: Config, lr: float, layers: tuple[str, ...], stage: int) -> Config:
    """Return one phase a hidden layer, each with its companion alone, then the whole net without companions."""
    left = 4 * stage - len(layers) * stage
    tuning = Phase(left, lr, companions=False, reset_momentum=True, anneal_at=(max(1, left - stage),))
    return config.replace(lr=lr, phases=(*(Phase(stage, lr, only=layer) for layer in layers), tuning))


def hinges(preset: str, lenet: bool = False) -> Plan:
    """L1 against L2: the plain and the squared hinge, with companions and without."""
    nin, preset = base_of(preset, lenet)
    config = with_steps(WEAK_NIN, 500) if nin else digits(preset, 1000, 20)
    same = dict.fromkeys(METHODS, (rates(preset), ALPHAS))
    losses = {"L2": ("squared_hinge", CANDIDATES if nin else same), "L1": ("hinge", L1_CANDIDATES if nin else same)}
    methods = {
        RowId(method, loss=loss): Method(
            labelled(f"{method}, {name}", config),
            at(for_method(config, method).replace(loss=loss), *choices[method]), 5, searches=1,
        )
        for method in ("DSN-SVM", "CNN-SVM") for name, (loss, choices) in losses.items()
    }  # fmt: skip
    pairs = tuple(
        (RowId(method, loss="squared_hinge"), RowId(method, loss="hinge")) for method in ("DSN-SVM", "CNN-SVM")
    )
    rows = tuple(Row(name, method, differs=told(config)) for name, method in methods.items())
    return Plan((rows,), folder("l1-l2", preset, nin), pairs)


def cifar_pair(preset: str) -> Plan:
    """Gradient variance and Fig. 3: the paper's net on CIFAR-10, with companions and without."""
    full = find_recipe("dsn-cifar10").replace(tensorboard=False, gradient_every=1)
    config, chosen, seeds, loss, cut = full, rates("paper"), 3, "SVM", {}
    differs = ""
    if preset == "cpu":
        # softmax: under the squared hinge this net needs more steps before it learns
        config = full.replace(
            network_options=HALF_NIN.network.options, train_size=5000, epochs=5, batch_size=25,
            anneal="triangular", anneal_at=(), norms=False, balance=1.0, schedule="constant", normalize="standardize",
            taps=("conv1", "conv2", "conv3"),
        )  # fmt: skip
        chosen, loss, cut = (0.01, 0.03), "Softmax", {"epochs": 2}
        differs = f"{differences(config, full)}; softmax; no |w|^2, alpha "
        differs += "constant; taps on the raw convolutions, as the authors' code has them"
    names = (f"DSN-{loss}", f"CNN-{loss}")
    rows = tuple(
        Row(RowId(method),
            Method(labelled(method, config), at(for_method(config, method), chosen), seeds, searches=1,
                   trial=lambda given: given.replace(**cut)),
            differs=differs)
        for method in names
    )  # fmt: skip
    return Plan((rows,), f"nin-cifar10-{preset}", ((RowId(names[0]), RowId(names[1])),))
