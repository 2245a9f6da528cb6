"""Every knob: its own type, its limits, its YAML, and the words in which a wrong one is refused."""

from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from deepsup import Companion, Objective
from deepsup.config import Config, Phase
from deepsup.errors import ConfigError
from deepsup.recipes import FLAT, RECIPES, find_recipe
from deepsup.training.build import build_net, build_objective


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
    assert Config.from_dict({"lr": "1e-3"}).lr == 0.001  # as YAML reads it


def test_the_plan() -> None:
    assert Config(epochs=7, lr=0.1).plan == (Phase(7, 0.1, anneal_factor=20.0),)
    phases = [{"epochs": 2, "lr": 0.1}, {"epochs": 3, "lr": 0.01, "companions": False}]
    config = Config.from_dict({"phases": phases, "epochs": 99})
    assert config.total_epochs == 5
    assert config.plan[1] == Phase(3, 0.01, companions=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epohs": 3}, r"no knob 'epohs'; did you mean 'epochs'"),
        ({"epochs": 0}, r"epochs=0; expected a number of at least 1: passes over the training images"),
        ({"epochs": "3"}, r"epochs='3'; expected int"),
        ({"epochs": 2.5}, r"epochs=2\.5; expected int"),
        ({"lr": -1}, r"lr=-1\.0; expected a number of at least 0"),
        ({"lr": float("nan")}, r"lr=nan"),
        ({"momentum": 1.5}, r"momentum=1\.5; expected a number of at least 0 and at most 1"),
        ({"alpha": [0.1, -0.1]}, r"alpha=-0\.1"),
        ({"loss": "softmx"}, r"loss='softmx'; did you mean 'softmax'"),
        ({"shuffle": 1}, r"shuffle=1; expected bool"),
        ({"anneal": "plateau"}, r"anneal=stall .* without validation images"),
        ({"select": "best"}, r"select=best without validation images"),
        ({"label_smoothing": 0.1, "loss": "squared_hinge"}, r"label_smoothing=0\.1 with loss=squared_hinge"),
        ({"phases": [{"epochs": 1}]}, r"expected at least epochs and lr"),
        ({"phases": [{"epochs": 1, "lr": 1, "lrr": 2}]}, r"a phase has no key 'lrr'; did you mean 'lr'"),
        ({"phases": [{"epochs": 0, "lr": 1}]}, r"epochs=0; expected a number of at least 1"),
        ({"phases": 5}, r"phases=5; expected a list of phases"),
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
    [("- 1", "holds a list; expected keys and values"), ("a: [", "is not YAML"), ("lrr: 1", "no knob 'lrr'")],
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


def test_the_defaults_are_those_of_the_library() -> None:
    """What a Config trains is what ``supervise(...)`` and ``Objective(net)`` do by themselves, setting by setting."""
    net = build_net(Config(), 10, (1, 28, 28))
    assert {net.head(name).companion for name in net.taps} == {Companion()}
    ours, theirs = build_objective(Config(), net), Objective(net)
    named = [name for name in signature(Objective).parameters if name != "net"]
    assert {name: getattr(ours, name) for name in named} == {name: getattr(theirs, name) for name in named}
    shared = {field.name: field.default for field in fields(Config) if field.name in named}
    assert shared.keys() == set(named) - {"ignore_index"}  # labels to be ignored are none of a run's
    for name, default in shared.items():
        once = default[0] if isinstance(default, tuple) else default
        assert once == signature(Objective).parameters[name].default, name


def without(config: Config, *newer: str) -> dict[str, Any]:
    """A config as a version wrote it that did not have these settings."""
    return {name: value for name, value in config.to_dict().items() if name not in newer}


def test_a_record_that_is_older_than_a_setting_has_it_off() -> None:
    for config in (Config(), find_recipe("dsn-mnist"), Config(**FLAT)):
        old = Config.recorded(without(config, "companion_length", "average"))
        assert old == config.replace(companion_length=0.0, average=False)
        assert Config.recorded(config.to_dict()) == config
    assert Config().supervision.companion_length != 0  # what is left out of a new config is not off
    with pytest.raises(ConfigError, match="row 3: no knob 'epohs'; did you mean 'epochs'"):
        Config.recorded({"epohs": 3}, "row 3")


def test_every_knob_is_explained() -> None:
    assert all(knob.metadata["doc"] for knob in fields(Config))


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
