"""A flipped bit in a checkpoint or in a model is found, or lies where it changes nothing."""

import json
import logging
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deepsup.errors import RunError
from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import _checkpoint as checkpoint


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    config = Config(data=str(digits), epochs=2, batch_size=30, lr=0.01, checkpoint_steps=4, tensorboard=False)
    return train(config, tmp_path_factory.mktemp("rot") / "run")


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_flipped_bit_in_a_checkpoint(run: RunFolder, tmp_path: Path) -> None:
    data = checkpoint.all_steps(run.checkpoints)[-1].read_bytes()
    path = tmp_path / "step-1.pt"
    path.write_bytes(data)
    whole, found = checkpoint.load(path), 0
    random = Random(0)
    for _ in range(150):
        path.write_bytes(flipped(data, random.randrange(8 * len(data))))
        try:
            assert same(checkpoint.load(path), whole)
        except RunError:
            found += 1
    assert found > 100


def test_a_flipped_bit_in_a_model(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(run.folder, tmp_path / "run"))
    data, whole, found = run.model.read_bytes(), load_model(run), 0
    random = Random(0)
    places = [random.randrange(8 * 3000) for _ in range(40)] + [random.randrange(8 * len(data)) for _ in range(40)]
    for bit in places:
        copy.model.write_bytes(flipped(data, bit))
        try:
            model = load_model(copy)
        except RunError:
            found += 1
        else:
            assert same(model.net.state_dict(), whole.net.state_dict())
            assert (model.classes, model.config) == (whole.classes, whole.config)
    assert found > 70


def test_a_model_of_an_older_version_has_no_checksum(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(run.folder, tmp_path / "run"))
    with safe_open(run.model, "pt") as file:
        about = {"deepsup": file.metadata()["deepsup"]}
        save_file({name: file.get_tensor(name) for name in file.keys()}, copy.model, about)  # noqa: SIM118
    assert same(load_model(copy).net.state_dict(), load_model(run).net.state_dict())


def test_the_one_before_is_used(small: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = small.replace(checkpoint_steps=8)
    whole = train(config, tmp_path / "whole")
    train(config.replace(limit_steps=16), tmp_path / "rot")
    before, newest = checkpoint.all_steps(tmp_path / "rot" / "checkpoints")
    newest.write_bytes(flipped(newest.read_bytes(), 8 * newest.stat().st_size // 2))
    with caplog.at_level(logging.WARNING, "deepsup"):
        rot = train(config, tmp_path / "rot", resume=True)
    assert f"{newest.name} cannot be read as a checkpoint (the checksum of" in caplog.text
    assert "going on from the one before" in caplog.text
    assert same(load_model(rot).net.state_dict(), load_model(whole).net.state_dict())
    assert checkpoint.latest_valid(before.parent) is not None


def test_all_of_them_damaged(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.step_path(tmp_path, step).write_bytes(b"PK")
    with pytest.raises(RunError, match=r"step-000000002\.pt cannot be read as a checkpoint"):
        checkpoint.latest_valid(tmp_path)
    assert checkpoint.latest_valid(tmp_path / "none") is None


def test_a_newer_format_is_no_damage(tmp_path: Path) -> None:
    checkpoint.save(checkpoint.step_path(tmp_path, 1), {})
    torch.save({"deepsup": checkpoint.FORMAT + 1}, checkpoint.step_path(tmp_path, 2))
    with pytest.raises(RunError, match="install the newer version"):
        checkpoint.latest_valid(tmp_path)


def test_the_digest_is_in_the_metadata(run: RunFolder) -> None:
    with safe_open(run.model, "pt") as file:
        assert len(file.metadata()["sha256"]) == 64
        assert json.loads(file.metadata()["deepsup"])["format"] == 1
