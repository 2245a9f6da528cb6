"""A supervised net -> a Lightning module that trains, validates, tests and predicts.

Works with ``pytorch_lightning`` and with ``lightning.pytorch``: with the one that is imported already, or installed.
B batch, K classes.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from deepsup.adapters import torchvision_first as torchvision_first
from deepsup.errors import ObjectiveError
from deepsup.objective import Objective
from deepsup.supervision import DeeplySupervised, DeepOutput, as_call

if TYPE_CHECKING:
    from pytorch_lightning import LightningModule, Trainer
elif "lightning.pytorch" in sys.modules or importlib.util.find_spec("pytorch_lightning") is None:
    from lightning.pytorch import LightningModule, Trainer
else:
    from pytorch_lightning import LightningModule, Trainer


def training_progress(trainer: Trainer) -> float:
    """Return the progress of a Lightning training, 0 to 1: for the ``training_step`` of a module of your own."""
    total = trainer.estimated_stepping_batches
    if not 0 < total < float("inf"):
        raise ObjectiveError(
            "the Trainer does not know when it ends, so the companions cannot decay; give it max_epochs or max_steps"
        )
    return min(1.0, trainer.global_step / total)


class SupervisedModule(LightningModule):
    """Trains a supervised net on batches (inputs, labels); ``module(inputs)`` returns the scores [B,K].

    net: what ``supervise`` returned; ``module.net.strip()`` gives the model back.
    optimizer: a function of the parameters, e.g. ``lambda parameters: torch.optim.SGD(parameters, lr=0.1)``; whatever
        ``configure_optimizers`` may return.
    objective: makes the objective of the net, e.g. ``Objective.paper``.
    """

    def __init__(
        self,
        net: DeeplySupervised,
        optimizer: Callable[[Iterable[nn.Parameter]], Any],
        objective: Callable[[nn.Module], Objective] = Objective,
    ) -> None:
        super().__init__()
        self.net = net
        self.objective = objective(net)
        self.make_optimizer = optimizer

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the model and the companions."""
        return self.make_optimizer(self.net.parameters())

    def output_of(self, inputs: Any) -> DeepOutput:
        """Return the scores of the model and of the companions; inputs are a tensor, a tuple or a mapping."""
        args, kwargs = as_call(inputs)
        out: DeepOutput = self.net(*args, **kwargs)
        return out

    def forward(self, inputs: Any) -> Tensor:
        """Return the scores [B,K]."""
        return self.output_of(inputs).scores

    def training_step(self, batch: Any, _index: int) -> Tensor:
        """Return the objective, with the Trainer's own count of steps."""
        inputs, labels = batch
        loss = self.objective(self.output_of(inputs), labels, progress=training_progress(self.trainer))
        self.log("train_loss", loss.output_loss)
        return loss.total

    def validation_step(self, batch: Any, _index: int) -> None:
        """Log the loss and the accuracy of the model, and the accuracy of each companion."""
        self.measure(batch, "val")

    def test_step(self, batch: Any, _index: int) -> None:  # noqa: PT019 - Lightning's name, not a test
        """Log the same for test batches."""
        self.measure(batch, "test")

    def predict_step(self, batch: Any, _index: int) -> Tensor:
        """Return the scores of a batch, with or without labels."""
        return self(batch[0] if isinstance(batch, tuple | list) else batch)  # type: ignore[no-any-return]

    def measure(self, batch: Any, part: str) -> None:
        """Log the model's own loss, and the accuracies where labels are class numbers."""
        inputs, labels = batch
        out = self.output_of(inputs)
        loss = self.objective(out, labels, progress=1.0)
        size = len(out.scores)
        self.log(f"{part}_loss", loss.output_loss, prog_bar=True, batch_size=size)
        if labels.ndim == 1 and not torch.is_floating_point(labels):
            for name, scores in {"": out.scores, **{f"/{tap}": each for tap, each in out.companions.items()}}.items():
                right = (scores.argmax(1) == labels).float().mean()
                self.log(f"{part}_accuracy{name}", right, prog_bar=not name, batch_size=size)
