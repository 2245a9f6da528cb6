"""A run to a folder and back: the same predictions; folders of strangers are refused in one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import deepsup
from deepsup import DeeplySupervised, Run
from deepsup.errors import DeepsupError, RunError
from deepsup.trainer.config import Config


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = Config(data=str(digits), epochs=1, batch_size=30, lr=0.01, limit_steps=3, tensorboard=False)
    return Run(deepsup.train(config, tmp_path_factory.mktemp("runs") / "mine").folder)


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> Path:
    run.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def refused(folder: Path, match: str, **settings: Any) -> None:
    with pytest.raises(DeepsupError, match=match) as caught:
        Run.from_pretrained(folder, **settings)
    assert "\n" not in str(caught.value)


def test_the_same_run(run: Run, saved: Path, tmp_path: Path) -> None:
    back = Run.from_pretrained(saved)
    images = np.random.default_rng(0).integers(0, 256, (4, 1, 28, 28), dtype=np.uint8)
    with torch.no_grad():
        expected, found = (each.load()(each.preprocess(images)) for each in (run, back))
    assert torch.equal(expected.scores, found.scores)
    assert all(torch.equal(scores, found.companions[name]) for name, scores in expected.companions.items())
    assert (back.classes, back.result) == (run.classes, run.result)
    Image.fromarray(images[0, 0]).save(tmp_path / "a.png")
    assert back.predict([tmp_path / "a.png"]) == run.predict([tmp_path / "a.png"])
    names = {path.name for path in saved.iterdir()}
    assert names >= {"README.md", "config.yaml", "model.safetensors", "result.json"}
    assert "checkpoints" not in names
    assert "test error" in (saved / "README.md").read_text()


def test_a_network_that_it_names_is_not_imported(run: Run, saved: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "stranger.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with safe_open(saved / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["deepsup"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about["config"]["network"] = "stranger:net"
    save_file(tensors, saved / "model.safetensors", {"deepsup": json.dumps(about)})
    refused(saved, "names a network that is not part of deepsup, stranger:net")
    assert not (tmp_path / "ran").exists()
    own = run.load().strip()
    Run.from_pretrained(saved, network=lambda **_options: own)  # the caller's own is used


def test_damaged_and_wrong_folders(run: Run, saved: Path, tmp_path: Path) -> None:
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (saved / "model.safetensors").write_bytes(content)
    refused(saved, "is damaged: its checksum differs")
    (saved / "model.safetensors").write_bytes(b"\x80\x04.")
    refused(saved, "is not a model that deepsup wrote")
    run.load().save_pretrained(tmp_path / "net")
    refused(tmp_path / "net", "is no run: it has no config.yaml")
    with pytest.raises(RunError, match=r"has no config.json; .*Run.from_pretrained"):
        DeeplySupervised.from_pretrained(run.folder)
    unfinished = Path(shutil.copytree(run.folder, tmp_path / "unfinished"))
    (unfinished / "result.json").unlink()
    with pytest.raises(RunError, match="has no result yet"):
        Run(unfinished).save_pretrained(tmp_path / "x")


def test_the_hub(saved: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda _id, **options: given.update(options) or str(saved)
    )
    monkeypatch.setattr(
        huggingface_hub.HfApi, "create_repo", lambda _api, repo_id, **_options: f"https://hub/{repo_id}"
    )
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", lambda _api, **options: given.update(options))
    assert Run.from_pretrained("owner/digits").classes == run.classes
    assert all("*" not in pattern for pattern in given["allow_patterns"])
    assert run.push_to_hub("owner/digits") == "https://hub/owner/digits"
    assert given["repo_id"] == "owner/digits"
