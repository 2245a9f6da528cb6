"""Runs from before companions were scaled and losses averaged: read, gone on with and repeated as they were."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from deepsup.cli import main
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import _checkpoint as checkpoint

NEWER = ("companion_length", "average", "join", "decay_by")


def older(config: dict[str, Any]) -> dict[str, Any]:
    assert config["anneal"] == "triangular"
    return {name: value for name, value in config.items() if name not in NEWER} | {"anneal": "triangle"}


def make_older(run: RunFolder) -> None:
    """Take the newer settings out of everything that a run has written."""
    path = run.folder / "config.yaml"
    path.write_text(yaml.safe_dump(older(yaml.safe_load(path.read_text()))))
    for step in checkpoint.all_steps(run.checkpoints):
        state = checkpoint.load(step)
        checkpoint.save(step, {**state, "config": older(state["config"])})
    with safe_open(run.model, "pt") as file:
        about = json.loads(file.metadata()["deepsup"])
    about["config"] = older(about["config"])
    save_file(load_file(run.model), run.model, {"deepsup": json.dumps(about)})


@pytest.fixture
def flat(small: Config) -> Config:
    """What the older version trained: its companions were the paper's."""
    return small.replace(**FLAT, limit_steps=8)


def test_a_recorded_config_trains_as_it_did(flat: Config, tmp_path: Path) -> None:
    expected = train(flat, tmp_path / "flat")
    again = train(Config.recorded(older(flat.to_dict())), tmp_path / "again")
    assert again.metrics[0]["loss"] == expected.metrics[0]["loss"]
    assert again.metrics[0]["companion_losses"] == expected.metrics[0]["companion_losses"]
    now = train(Config.from_dict(older(flat.to_dict())), tmp_path / "now")
    assert now.metrics[0]["companion_losses"] != expected.metrics[0]["companion_losses"]


def test_an_older_run_is_read_and_gone_on_with(flat: Config, tmp_path: Path) -> None:
    expected = train(flat.replace(limit_steps=12), tmp_path / "straight")
    run = train(flat, tmp_path / "older")
    net = load_model(run).net
    make_older(run)
    assert run.config == flat
    x = torch.randn(2, 1, 28, 28)
    assert all(map(torch.equal, load_model(run).net(x).companions.values(), net(x).companions.values()))
    assert main(["train", "--out", str(run.folder), "--resume", "--limit-steps", "12"]) == 0
    weights, straight = load_file(run.model), load_file(expected.model)
    assert all(torch.equal(weights[name], straight[name]) for name in straight)
