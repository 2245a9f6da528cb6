"""The paper's figures and claims -> the rows to train: the four methods over epochs, rates and losses."""

from deepsup.config import Config, Phase
from deepsup.paper.plan import Panel, Place, Plan, Row, at, differences
from deepsup.paper.row_id import RowId
from deepsup.recipes import FLAT, find_recipe
from deepsup.studies.compare import METHODS, for_method
from deepsup.studies.study import Method

RATES = (0.003, 0.01, 0.03, 0.1)
ALPHAS = (0.1, 1.0)
SMALL = Config(
    data="mnist", network="cnn", train_size=1000, epochs=20, batch_size=50, tensorboard=False, gradient_every=0,
    loss="squared_hinge", alpha=(0.3,), schedule="constant", head_lr=0.01, lr=0.005, **FLAT,
)  # fmt: skip
"""What the studies on few digits train on a CPU: a conventional CNN with the paper's two dropouts."""


def digits(preset: str, size: int | None, epochs: int) -> Config:
    """Return the base of a study on MNIST: the paper's net and protocol, or the small net for a CPU."""
    if preset == "paper":
        return find_recipe("dsn-mnist").replace(train_size=size, tensorboard=False, batch_size=min(128, size or 128))
    return SMALL.replace(train_size=size, epochs=epochs)


def rates(preset: str) -> tuple[float, ...]:
    """Return the learning rates to choose from: the paper's net under |w|^2 and C = 10 needs lower ones."""
    return (0.0003, 0.001, 0.003) if preset == "paper" else RATES


def told(config: Config) -> str:
    """Say what differs from the paper's protocol, the number of images aside: the studies vary it."""
    return differences(config, find_recipe("dsn-mnist").replace(train_size=config.data.train_size))


def four(config: Config, preset: str, seeds: int, searches: int, trial: dict[str, int] | None = None) -> list[Method]:
    """Return the four methods, each with its rates, those with companions with their alphas too."""
    return [
        Method(method, at(for_method(config, method), rates(preset), ALPHAS), seeds, searches,
            trial=lambda given: given.replace(**(trial or {})))
        for method in METHODS
    ]  # fmt: skip


def course(preset: str) -> Plan:
    """Figs. 2a and 2c: the four methods on all digits, the test error after every epoch."""
    config = digits(preset, None, 5).replace(test_every=1, batch_size=128)
    trial = {} if preset == "paper" else {"train_size": 5000, "epochs": 4}
    rows = tuple(Row(RowId(method.name), method, differs=told(config)) for method in four(config, preset, 3, 1, trial))
    pairs = (("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"))
    return Plan((rows,), f"fig2a-{preset}", tuple((RowId(ours), RowId(theirs)) for ours, theirs in pairs))


def robustness(preset: str) -> Plan:
    """The error over a grid of learning rates, the companions' settings left as they are by default."""
    config = digits(preset, 1000, 20)
    grid = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3) if preset == "cpu" else (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    rows = tuple(
        Row(RowId(method, lr=lr), Method(f"{method}, lr {lr:g}", at(for_method(config, method), (lr,)), 3), None,
            told(config), (Place(method, lr),))
        for method in METHODS for lr in grid
    )  # fmt: skip
    return Plan((rows,), f"robustness-{preset}", panels=(Panel("learning rate"),))


def pretraining(preset: str) -> Plan:
    """Greedy layer-wise supervised pre-training and fine-tuning, joint training, and the plain net: equal epochs."""
    stage = 10 if preset == "cpu" else 25
    whole = digits(preset, 1000, 4 * stage).replace(
        epochs=4 * stage, anneal="step", anneal_at=(3 * stage,), taps=("network",)
    )
    joint, plain = for_method(whole, "DSN-SVM"), for_method(whole, "CNN-SVM")
    layers = ("conv1", "conv2") if preset == "cpu" else ("conv1", "conv2", "conv3")
    stages = {f"lr{lr:g}": greedy(joint, lr, layers, stage) for lr in rates(preset)}
    methods = {
        RowId("DSN-SVM"): Method("DSN-SVM, joint", at(joint, rates(preset), ALPHAS), 5),
        RowId("CNN-SVM"): Method("CNN-SVM, plain", at(plain, rates(preset)), 5),
        RowId("greedy"): Method("greedy pre-training", stages, 5),
    }
    pairs = (("DSN-SVM", "greedy"), ("DSN-SVM", "CNN-SVM"), ("greedy", "CNN-SVM"))
    rows = tuple(Row(name, method, differs=told(whole)) for name, method in methods.items())
    return Plan((rows,), f"pretraining-{preset}", tuple((RowId(ours), RowId(theirs)) for ours, theirs in pairs))


def greedy(config: Config, lr: float, layers: tuple[str, ...], stage: int) -> Config:
    """Return one phase a hidden layer, each with its companion alone, then the whole net without companions."""
    left = 4 * stage - len(layers) * stage
    tuning = Phase(left, lr, companions=False, reset_momentum=True, anneal_at=(max(1, left - stage),))
    return config.replace(lr=lr, phases=(*(Phase(stage, lr, only=layer) for layer in layers), tuning))


def hinges(preset: str) -> Plan:
    """L1 against L2: the plain and the squared hinge, with companions and without."""
    config = digits(preset, 1000, 20)
    methods = {
        RowId(method, loss=loss): Method(
            f"{method}, {name}", at(for_method(config, method).replace(loss=loss), rates(preset), ALPHAS), 5
        )
        for method in ("DSN-SVM", "CNN-SVM") for name, loss in (("L2", "squared_hinge"), ("L1", "hinge"))
    }  # fmt: skip
    pairs = tuple(
        (RowId(method, loss="squared_hinge"), RowId(method, loss="hinge")) for method in ("DSN-SVM", "CNN-SVM")
    )
    rows = tuple(Row(name, method, differs=told(config)) for name, method in methods.items())
    return Plan((rows,), f"l1-l2-{preset}", pairs)


def cifar_pair(preset: str) -> Plan:
    """Gradient variance and Fig. 3: the paper's net on CIFAR-10, with companions and without."""
    full = find_recipe("dsn-cifar10").replace(tensorboard=False, gradient_every=1)
    config, chosen, seeds = full, rates("paper"), 3
    if preset == "cpu":
        config = full.replace(
            train_size=2000, epochs=5, batch_size=32, anneal="triangular", anneal_at=(), norms=False, balance=1.0,
            schedule="constant", taps=("conv1", "conv2", "conv3"),
        )  # fmt: skip
        chosen, seeds = (0.005, 0.02), 1
    cut = {"train_size": 500, "epochs": 3} if preset == "cpu" else {}
    differs = differences(config, full)
    if preset == "cpu":
        differs += "; no |w|^2, C = 1, alpha constant; taps on the raw convolutions, as the authors' code has them"
    rows = tuple(
        Row(RowId(method),
            Method(method, at(for_method(config, method), chosen), seeds, trial=lambda given: given.replace(**cut)),
            differs=differs)
        for method in ("DSN-SVM", "CNN-SVM")
    )  # fmt: skip
    return Plan((rows,), f"nin-cifar10-{preset}", ((RowId("DSN-SVM"), RowId("CNN-SVM")),))
