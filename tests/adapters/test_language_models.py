"""A supervised GPT in Hugging Face's Trainer and in Lightning, against a plain loop: the same weights."""

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from deepsup import Companion, DeeplySupervised, Objective, supervise
from deepsup.adapters.hugging_face import SupervisedTrainer
from deepsup.adapters.lightning_module import SupervisedModule

STEPS, BATCH, WORDS = 6, 4, 31
X = torch.randint(0, WORDS, (STEPS * BATCH, 8), generator=torch.Generator().manual_seed(0))
Y = X.masked_fill(torch.rand(X.shape, generator=torch.Generator().manual_seed(1)) < 0.2, -100)

pytestmark = pytest.mark.filterwarnings("ignore")


def make_net() -> DeeplySupervised:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 8}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**settings, **none))
    return supervise(model, "h.*", num_classes=WORDS, example=X[:1], companion=Companion(head="output"))


def objective_of(net: nn.Module) -> Objective:
    return Objective(net, alpha="linear", shift=1)


def sgd(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=0.5)


def plain_loop() -> DeeplySupervised:
    net = make_net().train()
    objective, optimizer = objective_of(net), sgd(net.parameters())
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        objective(net(input_ids=X[rows]), Y[rows], progress=step / STEPS).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    return net


def assert_same(net: DeeplySupervised, expected: DeeplySupervised) -> None:
    for one, other in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


class Texts(Dataset[Any]):
    def __init__(self, pairs: bool) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        return (X[index], Y[index]) if self.pairs else {"input_ids": X[index], "labels": Y[index]}


class InOrder(SupervisedTrainer):
    def _get_train_sampler(self, *_: Any) -> Any:
        return SequentialSampler(self.train_dataset)

    def create_optimizer(self, *_: Any) -> Any:
        self.optimizer = sgd(self.model.parameters())
        return self.optimizer


def test_hugging_faces_trainer(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    net, expected = make_net(), plain_loop()
    settings = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, max_steps=STEPS, per_device_train_batch_size=BATCH, max_grad_norm=0.0,
        lr_scheduler_type="constant", report_to="none", disable_tqdm=True, save_strategy="steps", save_steps=3,
    )  # fmt: skip
    trainer = InOrder(
        model=net, args=settings, objective=objective_of, train_dataset=Texts(False), eval_dataset=Texts(False)
    )
    trainer.train()
    assert_same(net, expected)
    found = trainer.evaluate()
    with torch.no_grad():
        scores: Tensor = expected.eval()(X).scores[:, :-1]
    losses = [nn.functional.cross_entropy(*each) for each in zip(
        (part.flatten(0, 1) for part in scores.split(8)), (part.flatten() for part in Y[:, 1:].split(8)), strict=True
    )]  # fmt: skip
    assert found["eval_loss"] == pytest.approx(float(torch.stack(losses).mean()), abs=1e-5)  # of batches of 8
    again = make_net()
    resumed = InOrder(model=again, args=settings, objective=objective_of, train_dataset=Texts(False))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same(again, expected)
    model = net.strip()
    assert model.generate(X[:1, :3], max_new_tokens=2, pad_token_id=0).shape == (1, 5)  # type: ignore[operator] # a GPT
    capsys.readouterr()


def test_lightning() -> None:
    net, expected = make_net(), plain_loop()
    module = SupervisedModule(net, sgd, objective_of)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    loader = DataLoader(Texts(True), BATCH)
    trainer.fit(module, loader, loader)
    assert_same(net, expected)
    assert copy.deepcopy(net).strip()(X[:1]).logits.shape == (1, 8, WORDS)
