"""Each adapter against a plain loop of 20 steps: the same weights, the companions out of the way."""

import copy
import pickle
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from deepsup import DeeplySupervised, Objective, supervise
from deepsup.adapters import StepProgress
from deepsup.adapters.hugging_face import SupervisedTrainer, SupervisedTrainerMixin
from deepsup.adapters.lightning_module import SupervisedModule, training_progress
from deepsup.adapters.skorch_net import SupervisedNeuralNet
from deepsup.errors import ObjectiveError
from deepsup.objective import Loss

STEPS, BATCH, RATE = 20, 4, 0.1
X = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(40) % 3

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]


def make_net() -> DeeplySupervised:
    """Without dropout, which would draw from a generator that each framework seeds for itself."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return supervise(model, at=["1"], num_classes=3, example=X[:1])


def sgd(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=RATE, momentum=0.9)


def plain_loop(net: DeeplySupervised, x: Any = X, y: Tensor = Y, accumulate: int = 1) -> DeeplySupervised:
    """What a user would write: 2 epochs of 10 batches in order, the progress by hand."""
    net = copy.deepcopy(net).train()
    objective, optimizer = Objective(net), sgd(net.parameters())
    batches = torch.arange(len(y)).split(BATCH) * (STEPS * accumulate * BATCH // len(y))
    for step in range(STEPS):
        optimizer.zero_grad()
        for rows in batches[step * accumulate : (step + 1) * accumulate]:
            inputs = {name: value[rows] for name, value in x.items()} if isinstance(x, dict) else {"input": x[rows]}
            loss = objective(net(**inputs), y[rows], progress=step / STEPS)
            (loss.total / accumulate).backward()
        optimizer.step()
    return net


def assert_same_weights(net: nn.Module, expected: nn.Module) -> None:
    states = net.state_dict(), expected.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], atol=1e-6, rtol=0, msg=name)


def loader(*, labels: bool = True) -> DataLoader[Any]:
    return DataLoader(TensorDataset(X, Y) if labels else TensorDataset(X), BATCH)


def test_the_plain_loop_trains_and_progress_matters() -> None:
    """Otherwise the comparisons below would prove little."""
    net, trained = make_net(), plain_loop(make_net())
    assert not torch.allclose(net.trunk[0].weight, trained.trunk[0].weight, atol=1e-2)
    stuck = copy.deepcopy(net)
    objective, optimizer = Objective(stuck), sgd(stuck.parameters())
    for rows in torch.arange(40).split(BATCH) * 2:
        optimizer.zero_grad()
        objective(stuck(X[rows]), Y[rows], progress=0.0).total.backward()
        optimizer.step()
    assert not torch.allclose(stuck.trunk[0].weight, trained.trunk[0].weight, atol=1e-4)


def test_step_progress_in_a_plain_loop() -> None:
    net, expected = make_net(), plain_loop(make_net())
    objective, optimizer = Objective(net), sgd(net.parameters())
    progress = StepProgress(optimizer, STEPS)
    for _ in range(2):
        for x, y in loader():
            optimizer.zero_grad()
            objective(net(x), y, progress=progress()).total.backward()
            optimizer.step()
    assert progress() == 1.0
    assert_same_weights(net, expected)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate(accumulate: int) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net, optimizer, batches = accelerator.prepare(
        plain := make_net(), sgd(plain.parameters()), DataLoader(TensorDataset(X, Y), BATCH)
    )
    objective, progress = Objective(net), StepProgress(optimizer, STEPS)
    accelerator.register_for_checkpointing(progress)
    for _ in range(2 * accumulate):
        for x, y in batches:
            with accelerator.accumulate(net):
                loss = objective(net(x), y, progress=progress())
                accelerator.backward(loss.total)
                optimizer.step()
                optimizer.zero_grad()
    assert progress.state_dict() == {"steps": STEPS}
    assert_same_weights(accelerator.unwrap_model(net), plain_loop(make_net(), accumulate=accumulate))


def test_the_count_of_steps_can_be_restored() -> None:
    progress = StepProgress(sgd(make_net().parameters()), 10)
    progress.load_state_dict({"steps": 4})
    assert progress() == 0.4
    progress.load_state_dict({"steps": 40})
    assert progress() == 1.0


@pytest.mark.parametrize("total", [0, -1, 1.5, True, None])
def test_a_wrong_number_of_steps(total: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"total_steps=.*; expected a whole number of at least 1"):
        StepProgress(sgd(make_net().parameters()), total)


def lightning_trainer(**settings: Any) -> pl.Trainer:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return pl.Trainer(**({"accelerator": "cpu", "devices": 1, "max_epochs": 2} | quiet | settings))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(accumulate: int) -> None:
    module = SupervisedModule(make_net(), sgd)
    trainer = lightning_trainer(max_epochs=2 * accumulate, accumulate_grad_batches=accumulate)
    trainer.fit(module, loader(), loader())
    assert_same_weights(module.net, plain_loop(make_net(), accumulate=accumulate))
    module.eval()
    with torch.no_grad():
        out = module.net(X)
    right = (out.scores.argmax(1) == Y).float().mean()
    assert trainer.callback_metrics["val_accuracy"] == pytest.approx(float(right))
    (tested,) = trainer.test(module, loader(), verbose=False)
    assert tested["test_loss"] == pytest.approx(float(nn.functional.cross_entropy(out.scores, Y)), abs=1e-5)
    assert tested["test_accuracy/1"] == pytest.approx(float((out.companions["1"].argmax(1) == Y).float().mean()))
    for batches in (loader(), loader(labels=False)):
        torch.testing.assert_close(torch.cat(trainer.predict(module, batches)), out.scores)
    assert type(module.net.strip()) is nn.Sequential


def test_a_lightning_module_of_ones_own() -> None:
    class Mine(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()
            self.objective = Objective(self.net)

        def training_step(self, batch: Any, _: int) -> Tensor:
            x, y = batch
            return self.objective(self.net(x), y, progress=training_progress(self.trainer)).total

        def configure_optimizers(self) -> Any:
            return sgd(self.parameters())

    module = Mine()
    lightning_trainer(max_epochs=-1, max_steps=STEPS).fit(module, loader())
    assert_same_weights(module.net, plain_loop(make_net()))


def test_a_lightning_training_without_an_end() -> None:
    with pytest.raises(ObjectiveError, match=r"does not know when it ends.*give it max_epochs or max_steps"):
        lightning_trainer(max_epochs=-1).fit(SupervisedModule(make_net(), sgd), loader(), loader())


class Rows(Dataset[dict[str, Tensor]]):
    """A data set as ``transformers`` has them: a dict per sample, here with a column that no model takes."""

    def __init__(self, inputs: dict[str, Tensor], labels: Tensor | None) -> None:
        self.columns = {**inputs, "comment": torch.zeros(len(Y))} | ({} if labels is None else {"labels": labels})

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def vit() -> tuple[nn.Module, dict[str, Tensor]]:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = ViTForImageClassification(
        ViTConfig(**sizes, intermediate_size=8, image_size=8, patch_size=4, num_channels=1, num_labels=3)
    )
    return model, {"pixel_values": torch.randn(len(Y), 1, 8, 8)}


def bert() -> tuple[nn.Module, dict[str, Tensor]]:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(
        BertConfig(**sizes, **drop, vocab_size=20, intermediate_size=8, max_position_embeddings=8, num_labels=3)
    )
    return model, {"input_ids": torch.randint(0, 20, (len(Y), 5)), "attention_mask": torch.ones(len(Y), 5).long()}


def arguments(folder: Path, **settings: Any) -> TrainingArguments:
    fixed = {
        "output_dir": str(folder), "use_cpu": True, "max_steps": STEPS, "per_device_train_batch_size": BATCH,
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "report_to": "none", "disable_tqdm": True,
        "save_strategy": "no", "logging_strategy": "no",
    }  # fmt: skip
    return TrainingArguments(**(fixed | settings))


class InOrder(SupervisedTrainer):
    """As a user would write it: the samples in order, and an optimizer of one's own."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def create_optimizer(self, *_: Any) -> Any:
        self.optimizer = sgd(self.model.parameters())
        return self.optimizer


@pytest.mark.parametrize(("make", "tap"), [(vit, "vit.layers.0"), (bert, "bert.encoder.layer.0")])
def test_hugging_face(make: Any, tap: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    keys = list(model.state_dict())
    net = supervise(model, at=[tap], num_classes=3, example={name: value[:1] for name, value in inputs.items()})
    expected = plain_loop(net, inputs)
    trainer = InOrder(
        model=net,
        args=arguments(tmp_path),
        train_dataset=Rows(inputs, Y),
        eval_dataset=Rows(inputs, Y),
        compute_metrics=lambda given: {"accuracy": (np.argmax(given.predictions, 1) == given.label_ids).mean()},
    )
    trainer.train()
    assert_same_weights(net, expected)
    expected.eval()
    with torch.no_grad():
        scores = expected(**inputs).scores
    found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(float(nn.functional.cross_entropy(scores, Y)), abs=1e-5)
    assert found["eval_accuracy"] == pytest.approx(float((scores.argmax(1) == Y).float().mean()))
    for labels in (Y, None):
        answer = trainer.predict(Rows(inputs, labels))
        np.testing.assert_allclose(answer.predictions, scores.numpy(), atol=1e-5)
    plain = net.strip()
    assert plain is model
    assert list(plain.state_dict()) == keys
    plain.save_pretrained(tmp_path / "plain")
    assert type(model).from_pretrained(tmp_path / "plain").config.num_labels == 3
    capsys.readouterr()


def test_hugging_face_accumulates_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A training that is stopped half way and resumed from its checkpoint is the same training."""
    torch.manual_seed(0)
    model, inputs = vit()
    net = supervise(model, at=["vit.layers.0"], num_classes=3, example={"pixel_values": inputs["pixel_values"][:1]})
    expected = plain_loop(net, inputs, accumulate=2)
    settings = {"gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": STEPS // 2}
    for resume in (False, True):
        again = copy.deepcopy(net)
        trainer = InOrder(model=again, args=arguments(tmp_path, **settings), train_dataset=Rows(inputs, Y))
        trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS // 2}") if resume else None)
        assert_same_weights(again, expected)
    capsys.readouterr()


def test_a_trainer_of_ones_own(tmp_path: Path) -> None:
    class Mine(SupervisedTrainerMixin, Trainer):
        pass

    model, inputs = vit()
    net = supervise(model, at=["vit.layers.0"], num_classes=3, example={"pixel_values": inputs["pixel_values"][:1]})
    trainer = Mine(model=net, args=arguments(tmp_path), objective=Objective.paper)
    assert trainer.objective.norms
    with pytest.raises(ObjectiveError, match="net is a ViTForImageClassification without companions"):
        Mine(model=net.strip(), args=arguments(tmp_path))


def test_two_losses_for_a_trainer(tmp_path: Path) -> None:
    model, inputs = vit()
    net = supervise(model, at=["vit.layers.0"], num_classes=3, example={"pixel_values": inputs["pixel_values"][:1]})
    with pytest.raises(ObjectiveError, match=r"label_smoothing_factor or compute_loss_func.*leave it out"):
        SupervisedTrainer(model=net, args=arguments(tmp_path, label_smoothing_factor=0.1))


def skorch_net(**settings: Any) -> SupervisedNeuralNet:
    fixed = {
        "optimizer": torch.optim.SGD, "optimizer__momentum": 0.9, "lr": RATE, "batch_size": BATCH, "max_epochs": 2,
        "train_split": None, "verbose": 0,
    }  # fmt: skip
    return SupervisedNeuralNet(make_net(), **(fixed | settings))


def test_skorch() -> None:
    net = skorch_net().fit(X, Y)
    expected = plain_loop(make_net()).eval()
    assert_same_weights(net.module_, expected)
    with torch.no_grad():
        scores = expected(X).scores
    np.testing.assert_allclose(net.predict_proba(X), scores.softmax(1).numpy(), atol=1e-5)
    assert (net.predict(X) == scores.argmax(1).numpy()).all()
    assert net.score(X.numpy(), Y.numpy()) == pytest.approx(float((scores.argmax(1) == Y).float().mean()))
    assert type(net.module_.strip()) is nn.Sequential


def test_skorch_validates_clones_pickles_and_goes_on() -> None:
    """The progress of a second training starts at 0 again; a copy trains its own companions."""
    from sklearn.base import clone
    from skorch.dataset import ValidSplit

    seen: list[float] = []

    class Watched(Objective):
        def __call__(self, *args: Any, progress: float, **kwargs: Any) -> Loss:
            seen.append(progress)
            return super().__call__(*args, progress=progress, **kwargs)

    net = clone(skorch_net(train_split=ValidSplit(2), objective=Watched, max_epochs=3)).fit(X, Y)
    assert seen == pytest.approx([step / 15 for step in range(15)])
    assert len(net.history[:, "valid_loss"]) == 3
    seen.clear()
    net.partial_fit(X, Y)
    assert seen == pytest.approx([step / 15 for step in range(15)])
    plain = skorch_net().fit(X, Y)
    again = pickle.loads(pickle.dumps(plain))
    assert (again.predict(X) == plain.predict(X)).all()
    again.partial_fit(X, Y)
    assert again.objective_.net is again.module_


def test_a_user_of_the_package_lightning_gets_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """``lightning.pytorch`` and ``pytorch_lightning`` have classes of their own: each Trainer takes its own only."""
    other = ModuleType("lightning.pytorch")
    other.LightningModule = type("LightningModule", (nn.Module,), {})
    other.Trainer = pl.Trainer
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", other)
    loaded = runpy.run_path(sys.modules[SupervisedModule.__module__].__file__)
    assert issubclass(loaded["SupervisedModule"], other.LightningModule)
    assert not issubclass(SupervisedModule, other.LightningModule)
    assert issubclass(SupervisedModule, pl.LightningModule)
