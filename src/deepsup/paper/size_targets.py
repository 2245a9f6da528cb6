"""Fig. 2b -> the rows to train: the four methods over the number of training digits, on NIN and on a LeNet."""

from collections.abc import Mapping
from dataclasses import replace

from deepsup.paper.plan import Panel, Place, Plan, Row
from deepsup.paper.row_id import RowId
from deepsup.paper.study_targets import CANDIDATES, FLAT_CANDIDATES, NIN, candidates, digits, four, told, with_steps
from deepsup.trainer.recipes import FLAT_COMPANIONS, PRINTED, WEAK
from deepsup.trainer.studies import Method

SEEDS = {500: 10, 250: 5, 1000: 5, 2000: 5, 5000: 5}
"""Number of digits -> seeds, in the order in which they are run."""
PAIRS = (("DSN-SVM", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-Softmax", "CNN-Softmax"))
AXES = (Panel("training digits"),)
RATES = {method: (CANDIDATES[method.replace("DSN", "CNN")][0], ()) for method in CANDIDATES}
"""Method -> its learning rates, the same with the default companions and without."""
OTHERS = {"flat": (FLAT_COMPANIONS, FLAT_CANDIDATES), "weak": (WEAK, CANDIDATES), "printed": (PRINTED, RATES)}
"""Other companions at 500 digits -> their settings and candidates."""


def sizes(preset: str) -> Plan:
    """Fig. 2b on the paper's net, 500 digits first."""
    if preset == "paper":
        return paper_sizes()
    net = NIN.network.name
    groups = [sized(candidates(with_steps(NIN, size), RATES, seeds), net, size) for size, seeds in SEEDS.items()]
    pairs = pairs_of(net, SEEDS)
    for place, (kind, (settings, choices)) in enumerate(OTHERS.items(), 1):
        supervised = {method: each for method, each in choices.items() if method.startswith("DSN")}
        methods = candidates(with_steps(NIN.replace(**settings), 500), supervised, SEEDS[500])
        groups.insert(place, sized(methods, net, 500, kind))
        pairs += pairs_of(net, (500,), kind)
    return Plan(tuple(groups), f"fig2b-nin-{preset}", tuple(pairs), AXES)


def paper_sizes() -> Plan:
    """Fig. 2b in the paper's protocol: up to all digits, 100 epochs."""
    counts = (500, 1000, 2000, 5000, 10000, 20000, 60000)
    groups = []
    for size in counts:
        config = digits("paper", size, 100)
        seeds = {500: 10, 60000: 3}.get(size, 5)
        methods = four(config, "paper", seeds, 2 if size == 500 else 1)
        groups.append(sized(methods, config.network.name, size, "printed"))
    return Plan(tuple(groups), "fig2b-paper", tuple(pairs_of("nin-mnist", counts, "printed")), AXES)


def lenet_sizes(_preset: str) -> Plan:
    """Fig. 2b on a LeNet, three layers deep; both presets are the same."""
    groups = []
    for size, epochs in {250: 40, 500: 40, 1000: 40, 2000: 20}.items():
        config = digits("cpu", size, epochs)
        methods = four(config, "cpu", 10 if size == 500 else 5, 2 if size <= 500 else 1)
        groups.append(sized(methods, config.network.name, size))
    return Plan(tuple(groups), "fig2b-cpu", tuple(pairs_of("cnn", (250, 500, 1000, 2000))), AXES)


def sized(methods: Mapping[str, Method], network: str, size: int, companions: str = "") -> tuple[Row, ...]:
    """Return the rows of one number of digits."""
    whose = {name: companions if name.startswith("DSN") else "" for name in methods}
    lines = {name: RowId(name, companions=whose[name]).line for name in methods}
    return tuple(
        Row(
            RowId(name, network, companions=whose[name], size=size),
            replace(method, name=f"{lines[name]}, {size:,} digits"),
            differs=told(next(iter(method.choices.values()))),
            places=(Place(lines[name], size),),
        )
        for name, method in methods.items()
    )


def pairs_of(
    network: str, counts: Mapping[int, int] | tuple[int, ...], companions: str = ""
) -> list[tuple[RowId, RowId]]:
    """Return the rows to compare at every number of digits."""
    return [
        (RowId(ours, network, companions=companions, size=size), RowId(theirs, network, size=size))
        for size in counts
        for ours, theirs in PAIRS
    ]
