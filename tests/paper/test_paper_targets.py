"""The protocol of the paper's targets: twins, one grid of rates, one budget for all methods, shared runs."""

from pathlib import Path

import pytest

from deepsup.paper import plan_of
from deepsup.paper.paper_targets import RATES, TABLE_BUDGETS, of_method, trial
from deepsup.paper.plan import START_STEPS, Plan
from deepsup.paper.printed import TABLES
from deepsup.trainer.config import Config
from deepsup.trainer.studies import COMPANIONS

METHODS = ("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM")
STUDIES = (
    "fig2b-nin",
    "budget",
    "budget-cifar10",
    "fig2a-nin",
    "robustness-nin",
    "pretraining-nin",
    "gradient-variance",
)
PRESETS = ("cpu", "paper")


def plan(name: str, preset: str = "cpu") -> Plan:
    return plan_of(name, preset, Path())


def unsupervised(config: Config) -> Config:
    default = Config().to_dict()
    return config.replace(taps=("none",), **{name: default[name] for name in COMPANIONS - {"at"}})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [*STUDIES, *TABLES])
def test_every_dsn_stands_beside_its_twin(name: str, preset: str) -> None:
    """The same net, data, loss, rates, seeds and trials: all settings but those of the companions."""
    rows = {row.id: row.method for row in plan(name, preset).rows}
    pairs = [(a, b) for a, b in plan(name, preset).pairs if a.method.replace("DSN", "CNN") == b.method]
    supervised = [row for row in rows if row.method.startswith("DSN")]
    if name != "robustness-nin":  # it compares whole grids
        assert {ours for ours, _ in pairs} == set(supervised)
    for ours, theirs in pairs:
        assert (rows[ours].seeds, rows[ours].searches) == (rows[theirs].seeds, rows[theirs].searches)
        both = zip(rows[ours].choices.values(), rows[theirs].choices.values(), strict=True)
        for dsn, cnn in both:
            assert dsn.supervision.taps != ("none",)
            assert cnn.supervision.taps == ("none",)
            assert unsupervised(dsn) == unsupervised(cnn)
            assert unsupervised(rows[ours].trial(dsn)) == unsupervised(rows[theirs].trial(cnn))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["fig2b-nin", "budget", "budget-cifar10", "l1-l2-nin", "pretraining-nin", *TABLES])
def test_all_methods_choose_from_one_grid_by_three_seeds(name: str, preset: str) -> None:
    for row in plan(name, preset).rows:
        assert [config.optimizer.lr for config in row.method.choices.values()] == list(RATES)
        assert row.method.searches == (3 if (row.id.method[:3] in ("CNN", "DSN") and "-" in row.id.method)
                                       or row.id.method == "greedy" else 1)  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [*STUDIES, "l1-l2-nin", *TABLES])
def test_nets_start_where_they_learn(name: str, preset: str) -> None:
    """He initialization, none of a source's own rates, and a warm-up: a fifth on a CPU, two epochs of the paper's."""
    for row in plan(name, preset).rows:
        for config in row.method.choices.values():
            assert config.network.options["init"] == "he"
            assert not config.optimizer.published_rates
            if config.optimizer.anneal == "triangular":
                short = preset == "cpu" or name not in (*TABLES, "budget-cifar10", "fig2a-nin", "gradient-variance")
                assert config.optimizer.warmup == pytest.approx(0.2 if short else 2 / config.total_epochs)


def test_a_rate_is_judged_by_a_quarter_of_the_epochs_but_enough_steps() -> None:
    few = Config(data="mnist", train_size=500, batch_size=25, epochs=240)
    trials = {epochs: trial(few.replace(epochs=epochs)).run.epochs for epochs in (15, 30, 60, 240)}
    assert trials == {15: 15, 30: 30, 60: 38, 240: 60}  # 750 steps are 38 epochs of 20
    whole = trial(Config(data="cifar10", batch_size=64, epochs=20))
    assert (whole.data.train_size, whole.run.epochs) == (10_000, 5)
    assert trial(Config(data="cifar10", batch_size=64, epochs=3)) == whole.replace(
        epochs=5
    )  # 3 epochs have 2,344 steps
    assert trial(Config(data="cifar10", batch_size=128, epochs=400)).run.epochs == 100


def test_both_forms_of_the_hinge_are_tried_and_the_most_important_rows_come_first() -> None:
    first = plan("fig2b-nin").groups[:3]
    assert [[(row.id.method, row.id.loss, row.method.seeds) for row in group] for group in first] == [
        [("CNN-Softmax", "", 10), ("DSN-Softmax", "", 10)],
        [("CNN-SVM", "one-vs-rest", 10), ("DSN-SVM", "one-vs-rest", 10)],
        [("CNN-SVM", "multiclass", 10), ("DSN-SVM", "multiclass", 10)],
    ]
    losses = {row.id.loss: {config.objective.loss for config in row.method.choices.values()}
              for row in plan("fig2b-nin").rows}  # fmt: skip
    assert losses == {"": {"softmax"}, "one-vs-rest": {"squared_hinge_ovr"}, "multiclass": {"squared_hinge"}}
    half = [row for row in plan("fig2b-nin").rows if row.id.width == 0.5]
    assert {row.id.size for row in half} == {250, 500, 1000, 2000, 5000}
    for row in half:
        for config in row.method.choices.values():
            assert config.run.epochs * config.data.train_size == 1200 * config.run.batch_size


def test_rows_that_differ_in_their_epochs_alone_share_their_trials() -> None:
    """What is filed under one name is the same training."""
    for target in ("budget", "budget-cifar10", "fig2b-nin", "cifar10-augmented"):
        trials: dict[str, Config] = {}
        for row in plan(target).rows:
            first = next(iter(row.method.choices.values()))
            assert trials.setdefault(row.method.trial_name, row.method.trial(first)) == row.method.trial(first)
    assert len({row.method.trial_name for row in plan("budget-cifar10").rows}) == 2


def test_budgets_share_runs_with_fig2b_and_the_table() -> None:
    """The same name and folder: what one target has trained the other does not train again."""
    for target, other, shared in (("budget", "fig2b-nin", 4), ("budget-cifar10", "cifar10-augmented", 2)):
        assert plan(target).runs == plan(other).runs
        ours, theirs = ({row.method.name: row.method for row in plan(name).rows} for name in (target, other))
        same = ours.keys() & theirs.keys()
        assert len(same) == shared
        for name in same:
            assert ours[name].choices == theirs[name].choices
            assert [ours[name].trial(each) for each in ours[name].choices.values()] == [
                theirs[name].trial(each) for each in theirs[name].choices.values()
            ]
    assert plan("fig2a-nin").runs == plan("fig2c-nin").runs == plan("mnist").runs


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_budget(name: str) -> None:
    rows = [row for row in plan(name).rows if row.id.method in METHODS]
    budget = TABLE_BUDGETS[name]
    for row in rows:
        assert "half width" in row.method.name
        for config in row.method.choices.values():
            assert (config.run.epochs, config.run.batch_size) == (budget["epochs"], budget["batch_size"])
            assert (config.data.train_size, config.data.extra, config.network.options["width"]) == (None, False, 0.5)
    printed = {method: error for method, (error, _) in TABLES[name].rows.items()}
    numbers = {row.id.method: row.paper for row in plan(name).rows}
    assert numbers["CNN-Softmax"] == printed["NIN"]
    assert numbers.get("DSN-SVM", printed["DSN-SVM"]) == printed["DSN-SVM"]


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_preset_cuts_nothing(name: str) -> None:
    for row in plan(name, "paper").rows:
        full = {"train_size": None, "batch_size": 128}
        for config in row.method.choices.values():
            assert {key: config.to_dict()[key] for key in full} == full
            assert config.data.extra == (name == "svhn")
            assert "width" not in config.network.options
            assert config.total_epochs >= (50 if name == "mnist" else 100)
        assert row.method.seeds == 3


@pytest.mark.parametrize("name", [*TABLES, "fig2b-nin", "pretraining-nin"])
def test_the_start_of_the_papers_preset_is_its_rows_cut_short(name: str) -> None:
    for row, whole in zip(plan(name, "start").rows, plan(name, "paper").rows, strict=True):
        ((choice, config),) = row.method.choices.items()
        assert (row.id, row.method.seeds, config.run.limit_steps) == (whole.id, 1, START_STEPS)
        assert config.optimizer.lr == 0.03
        own = whole.method.choices[choice]
        assert config.replace(limit_steps=None, keep=own.run.keep) == own


def test_greedy_nets_are_tuned_with_a_schedule_and_a_rate_of_their_own() -> None:
    rows = {row.id: row.method for row in plan("pretraining-nin").rows}
    for name, (before, tuning) in {"30 + 30": (30, 30), "60 + 60": (60, 60)}.items():
        (method,) = [each for each in rows.values() if name in each.name]
        assert method.start is not None
        assert [phase.only for phase in method.start.run.phases] == ["conv1", "conv2", "conv3"]
        assert method.start.total_epochs == before
        assert method.start.objective.schedule == "constant"  # else the last layer would get almost no gradient
        for config in method.choices.values():
            assert (config.total_epochs, config.optimizer.anneal, config.supervision.taps) == (
                tuning,
                "triangular",
                ("none",),
            )


def test_the_variance_is_measured_at_two_alphas_and_one_rate() -> None:
    configs = [config for row in plan("gradient-variance").rows for config in row.method.choices.values()]
    assert {config.optimizer.lr for config in configs} == {0.03}
    assert {config.objective.alpha for config in configs if config.supervision.taps != ("none",)} == {(1.0,), (0.3,)}
    assert plan("fig3").runs == plan("gradient-variance").runs


def test_an_svm_of_one_form_differs_only_in_its_loss() -> None:
    base = plan("fig2b-nin").rows[1].method.choices["lr0.03"]
    forms = [of_method(base, "DSN-SVM", form) for form in ("one-vs-rest", "multiclass")]
    assert [config.objective.loss for config in forms] == ["squared_hinge_ovr", "squared_hinge"]
    assert forms[0].replace(loss="squared_hinge") == forms[1]
