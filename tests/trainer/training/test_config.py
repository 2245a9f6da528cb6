"""Every setting: its type, its bounds, its group, its YAML, and the words in which a wrong one is refused."""

import dataclasses
import pickle
import re
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from deepsup import Companion, Objective
from deepsup.errors import ConfigError
from deepsup.trainer.config import (
    GROUPS,
    PLACES,
    Config,
    DataSettings,
    NetworkSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Phase,
    settings_of,
)
from deepsup.trainer.recipes import FLAT, RECIPES, find_recipe
from deepsup.trainer.training._build import build_net, build_objective


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_survives_yaml(name: str, tmp_path: Path) -> None:
    config = find_recipe(name)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert Config.from_yaml(tmp_path / "config.yaml") == config
    assert RECIPES[name].__doc__


def test_scalars_and_numbers_of_the_other_kind_are_taken() -> None:
    config = Config.from_dict({"alpha": 1, "gamma": [0, 1], "taps": "conv1", "pool": 4, "lr": 1, "hidden": [8]})
    assert config.objective.alpha == (1.0,)
    assert config.objective.gamma == (0.0, 1.0)
    assert config.supervision.taps == ("conv1",)
    assert (config.supervision.pool, config.optimizer.lr, config.supervision.hidden) == ("4", 1.0, (8,))
    assert Config.from_dict({"lr": "1e-3"}).optimizer.lr == 0.001  # as YAML reads it


def test_older_names_of_settings_are_read() -> None:
    old = Config.from_dict({"taps": ["conv1"], "learning_rate": 0.1}).replace(taps=("conv2",))
    assert old == Config(at="conv2", lr=0.1) == Config.from_dict({"supervision": {"taps": ["conv2"]}, "lr": 0.1})
    assert old.to_dict()["at"] == ["conv2"]
    with pytest.raises(ConfigError, match="at is given twice"):
        Config.from_dict({"taps": ["conv1"], "supervision": {"at": ["conv1"]}})


def test_the_plan() -> None:
    assert Config(epochs=7, lr=0.1).plan == (Phase(7, 0.1, anneal="triangular"),)
    phases = [{"epochs": 2, "lr": 0.1}, {"epochs": 3, "lr": 0.01, "companions": False}]
    config = Config.from_dict({"phases": phases, "epochs": 99})
    assert config.total_epochs == 5
    assert config.plan[1] == Phase(3, 0.01, companions=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epohs": 3}, r"no setting 'epohs'; did you mean 'epochs'"),
        ({"epochs": 0}, r"epochs=0; expected a number of at least 1: passes over the training images"),
        ({"epochs": "3"}, r"epochs='3'; expected int"),
        ({"epochs": 2.5}, r"epochs=2\.5; expected int"),
        ({"lr": -1}, r"lr=-1\.0; expected a number of at least 0"),
        ({"lr": float("nan")}, r"lr=nan"),
        ({"momentum": 1.5}, r"momentum=1\.5; expected a number of at least 0 and at most 1"),
        ({"alpha": [0.1, -0.1]}, r"alpha=-0\.1"),
        ({"loss": "softmx"}, r"loss='softmx'; did you mean 'softmax'"),
        ({"shuffle": 1}, r"shuffle=1; expected bool"),
        ({"balance": "sofmax"}, r"balance='sofmax'; expected a number or softmax: factor in front of every loss"),
        ({"balance": -1}, r"balance=-1\.0; expected a number of at least 0"),
        ({"balance": None}, r"balance=None; expected float"),
        ({"output_init": "one"}, r"output_init='one'; did you mean 'own'"),
        ({"clip_norm": -1}, r"clip_norm=-1\.0; expected a number of at least 0"),
        ({"anneal": "plateau"}, r"anneal=plateau .* without validation images"),
        ({"anneal": "triangel"}, r"anneal='triangel'; did you mean 'triangular'"),
        ({"anneal": ["step"]}, r"anneal=\['step'\]; did you mean 'step'"),
        (
            {"anneal": "cosine", "phases": [{"epochs": 1, "lr": 1}]},
            r"anneal=cosine with phases; expected anneal=cosine in the phases",
        ),
        ({"optimizer": "adam"}, r"optimizer='adam'; did you mean 'adamw'"),
        ({"optimizer": "adamw", "nesterov": True}, r"nesterov with optimizer=adamw; expected optimizer=sgd or muon"),
        ({"companion_loss": "softmx"}, r"companion_loss='softmx'; did you mean 'softmax'"),
        ({"network_options": 3}, r"network_options=3; expected dict: options of the network"),
        ({"sides": [16, 0]}, r"sides=0; expected a number of at least 1: sides in pixels"),
        ({"lr": True}, r"lr=True; expected float: learning rate"),
        ({"train_size": 0}, r"train_size=0; expected a number of at least 1"),
        ({"optimizer": {"lrr": 1}}, r"no setting 'lrr' in optimizer; did you mean 'lr'"),
        ({"optimizer": {"epochs": 3}}, r"epochs stands in optimizer; expected it in run, or without a group"),
        ({"optimizer": {"lr": 1}, "lr": 2}, r"lr is given twice, by itself and in optimizer; expected it once"),
        ({"run": 5}, r"run is a group; expected settings and their values in it"),
        ({"optimizer": {"lr": -1}}, r"lr=-1\.0; expected a number of at least 0: learning rate"),
        ({"select": "best"}, r"select=best without validation images"),
        ({"label_smoothing": 0.1, "loss": "squared_hinge"}, r"label_smoothing=0\.1 with loss=squared_hinge"),
        ({"phases": [{"epochs": 1}]}, r"expected at least epochs and lr"),
        ({"phases": [{"epochs": 1, "lr": 1, "lrr": 2}]}, r"a phase has no key 'lrr'; did you mean 'lr'"),
        ({"phases": [{"epochs": 0, "lr": 1}]}, r"epochs=0; expected a number of at least 1"),
        ({"phases": 5}, r"a phase is 5; expected keys and values: epochs, lr, companions"),
        ({"phases": [{"epochs": 1, "lr": 1, "companions": "no"}]}, r"companions='no'; expected bool"),
        ({"phases": [{"epochs": 1, "lr": 1, "anneal_factor": 0}]}, r"anneal_factor=0\.0"),
        ({"phases": [{"epochs": 1, "lr": 1, "only": "a", "companions": False}]}, r"only 'a' with companions off"),
        ({"nesterov": True, "momentum": 0}, r"nesterov with momentum=0"),
        ({"seed": 2**40}, r"seed=1099511627776; expected a number of at least 0 and at most"),
        ({"phases": [3]}, r"a phase is 3; expected keys and values"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.from_dict(given)


@pytest.mark.parametrize(
    ("text", "message"),
    [("- 1", "holds a list; expected keys and values"), ("a: [", "is not YAML"), ("lrr: 1", "no setting 'lrr'")],
)
def test_files_that_are_no_config(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Config.from_yaml(tmp_path / "c.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        Config.from_yaml(tmp_path / "none.yaml")


def test_unknown_recipe() -> None:
    with pytest.raises(ConfigError, match="no recipe 'dsn-mnst'; did you mean 'dsn-mnist'"):
        find_recipe("dsn-mnst")


def test_a_mirrored_net_takes_the_default_companions() -> None:
    """The shapes of its maps do not tell where the channels are: its convolutions do."""
    net = build_net(Config(network="fast", network_options={"mirror": True}), 10, (3, 32, 32))
    assert len(net(torch.zeros(2, 3, 32, 32)).companions) == len(net.taps) > 0


def test_the_defaults_are_those_of_the_library() -> None:
    """What a Config trains is what ``supervise(...)`` and ``Objective(net)`` do by themselves, setting by setting."""
    net = build_net(Config(), 10, (1, 28, 28))
    assert {net.head(name).companion for name in net.taps} == {replace(Companion(), rate=1.0)}
    assert Config().optimizer.companion_lr == Companion().rate  # here the optimizer's groups have it
    ours, theirs = build_objective(Config(), net), Objective(net)
    named = [name for name in signature(Objective).parameters if name != "net"]
    assert {name: getattr(ours, name) for name in named} == {name: getattr(theirs, name) for name in named}
    shared = {field.name: field.default for field in fields(ObjectiveSettings) if field.name in named}
    # labels to be ignored, tokens and losses of one's own are none of a run's; its progress is counted by the training
    assert shared.keys() == set(named) - {"ignore_index", "steps", "output_loss", "shift"}
    for name, default in shared.items():
        once = (default[0] if default else None) if isinstance(default, tuple) else default
        assert once == signature(Objective).parameters[name].default, name


def without(config: Config, *newer: str) -> dict[str, Any]:
    """A config as a version wrote it that did not have these settings."""
    return {name: value for name, value in config.to_dict().items() if name not in newer}


def test_a_record_that_is_older_than_a_setting_has_it_off() -> None:
    for config in (Config(), find_recipe("dsn-mnist"), Config(**FLAT)):
        old = Config.recorded(without(config, "companion_length", "average", "join", "decay_by"))
        assert old == config.replace(companion_length=0.0, average=False, join="sum", decay_by="epoch")
        assert Config.recorded(config.to_dict()) == config
    assert Config().supervision.join != "sum"  # what is left out of a new config is not as it was
    assert Config().objective.decay_by != "epoch"
    with pytest.raises(ConfigError, match="row 3: no setting 'epohs'; did you mean 'epochs'"):
        Config.recorded({"epohs": 3}, "row 3")


def test_every_setting_is_explained_and_has_a_name_of_its_own() -> None:
    settings = [each for group in (*GROUPS.values(), Phase) for each in settings_of(group)]
    for each in settings:
        assert re.fullmatch(r"\S.*[^\s.]", each.doc), each  # it ends a line of help: no full stop
    names = [each.name for group in GROUPS.values() for each in settings_of(group)]
    assert names == list(PLACES) == list(Config().to_dict())
    assert len(set(names)) == len(names) == 74


def test_a_group_or_a_name_is_the_same() -> None:
    named = Config(
        data="mnist", train_size=50, network="fast", network_options={"drop": 0.1}, optimizer="adamw", lr=0.1
    )
    assert named.data == DataSettings("mnist", train_size=50)
    assert named.network == NetworkSettings("fast", {"drop": 0.1})
    assert named.optimizer == OptimizerSettings("adamw", lr=0.1)
    grouped = {
        "data": {"source": "mnist", "train_size": 50},
        "network": {"name": "fast", "network_options": {"drop": 0.1}},  # by field or by name
        "optimizer": {"name": "adamw"},
        "lr": 0.1,
    }
    assert Config(**grouped) == Config.from_dict(grouped) == named
    assert Config(data=named.data, network=named.network, optimizer=named.optimizer) == named
    assert Config(optimizer=named.optimizer, lr=0.2).optimizer == OptimizerSettings("adamw", lr=0.2)


def test_a_yaml_file_may_have_groups_and_is_written_without(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "data: {source: mnist, train_size: 50}\nseed: 3\noptimizer:\n  lr: 1e-3\n  anneal: stall\nvalidation: 9"
    )
    config = Config.from_yaml(path)
    assert config == Config(data="mnist", train_size=50, seed=3, lr=0.001, anneal="plateau", validation=9)
    flat = yaml.safe_load(config.to_yaml())
    assert (flat["data"], flat["lr"], flat["seed"], flat["network"]) == ("mnist", 0.001, 3, "cnn")
    assert flat == config.to_dict()


def test_settings_are_replaced_by_name_or_in_groups() -> None:
    config = Config(data="mnist", train_size=50, lr=0.1, phases=(Phase(1, 0.5),))
    assert config.replace() == config
    changed = config.replace(data="cifar10", optimizer={"momentum": 0.5}, seed=3)
    assert changed == Config(data="cifar10", train_size=50, lr=0.1, momentum=0.5, seed=3, phases=(Phase(1, 0.5),))
    assert config.replace(optimizer=OptimizerSettings("adamw")).optimizer == OptimizerSettings("adamw")
    assert config.replace(optimizer="adamw").optimizer == OptimizerSettings("adamw", lr=0.1)
    with pytest.raises(ConfigError, match="lr=-1"):
        config.replace(lr=-1)
    with pytest.raises(ConfigError, match="no setting 'lrr'"):
        config.replace(lrr=1)


def test_the_replace_of_dataclasses_changes_a_setting_or_says_what_to_use() -> None:
    config = Config(data="mnist", train_size=50)
    assert dataclasses.replace(config, lr=0.1, seed=3) == config.replace(lr=0.1, seed=3)
    with pytest.raises(ConfigError, match=r"data='cifar10' beside whole groups; expected e.g. config.replace\(data="):
        dataclasses.replace(config, data="cifar10")  # it would lose train_size


def test_scripts_that_read_settings_by_name_are_warned() -> None:
    config = Config(lr=0.1, network_options={"drop": 0.1})
    with pytest.warns(DeprecationWarning, match=r"config.lr is now config.optimizer.lr"):
        assert config.lr == 0.1
    with pytest.warns(DeprecationWarning, match=r"config.network_options is now config.network.options"):
        assert config.network_options == {"drop": 0.1}
    with pytest.raises(AttributeError, match="Config has no attribute 'lrr'"):
        _ = config.lrr
    assert not hasattr(object.__new__(Config), "data")  # no endless search in one that is being unpickled


def test_a_config_is_frozen_and_goes_to_other_processes() -> None:
    config = Config(lr=0.1, phases=(Phase(1, 0.5),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.optimizer.lr = 0.2
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.optimizer = OptimizerSettings()
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(("old", "new"), [("epochs", "step"), ("stall", "plateau"), ("triangle", "triangular")])
def test_the_words_of_earlier_versions_are_read(old: str, new: str) -> None:
    for made in (Config(anneal=old, validation=9), Config.recorded({"anneal": old, "validation": 9}),
                 Config.from_dict({"optimizer": {"anneal": old}, "data": {"validation": 9}})):  # fmt: skip
        assert made.optimizer.anneal == made.to_dict()["anneal"] == new
    assert OptimizerSettings(anneal=old) == OptimizerSettings(anneal=new)


def test_a_record_may_have_groups_too() -> None:
    old = {"optimizer": {"lr": 0.1}, "objective": {"average": True}}
    expected = Config(lr=0.1, average=True, companion_length=0.0, join="sum", decay_by="epoch")
    assert Config.recorded(old) == expected


def test_sides_share_the_epochs() -> None:
    config = Config(sides=(20, 24, 32), epochs=7)
    assert [config.side(epoch) for epoch in range(7)] == [20, 20, 20, 24, 24, 32, 32]
    assert Config(epochs=3).side(2) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"network": "cnn", "pool": "avg"}, "cnn"),  # a fixed linear layer
        ({"network": "fast", "pool": "none"}, "pool=none"),  # companions on flattened maps
        ({"network": "fast", "pool": "avg", "sides": (5, 28)}, "images of 5 "),  # too small
    ],
)
def test_sides_are_refused_where_the_net_takes_one_size_only(given: dict[str, Any], reason: str) -> None:
    config = Config(**({"sides": (16, 28)} | given))
    with pytest.raises(ConfigError, match=f"{reason}.*expected a net that ends in a global pooling"):
        build_net(config, 10, (1, 28, 28))


def test_sides_are_taken_by_nets_that_pool_globally() -> None:
    assert build_net(Config(network="fast", pool="avg", sides=(16, 28)), 10, (1, 28, 28)).training
