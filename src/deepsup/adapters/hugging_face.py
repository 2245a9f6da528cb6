"""A supervised ``transformers`` model -> Hugging Face's ``Trainer``, with the objective as its loss."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from deepsup.adapters import torchvision_first as torchvision_first  # before transformers, which imports torchvision

# isort: split
from transformers import Trainer

from deepsup.errors import ObjectiveError
from deepsup.objective import Objective, supervised

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class SupervisedTrainerMixin(_Base):
    """``class MyTrainer(SupervisedTrainerMixin, Trainer)``: any Trainer of your own with the objective as its loss.

    objective: makes the objective of the net, e.g. ``Objective.paper``. All other arguments are the Trainer's; its
        model is what ``supervise`` returned.
    """

    def __init__(self, *args: Any, objective: Callable[[nn.Module], Objective] = Objective, **kwargs: Any) -> None:
        settings = kwargs.get("args") or (args[1] if len(args) > 1 else None)
        if getattr(settings, "label_smoothing_factor", 0) or kwargs.get("compute_loss_func"):
            raise ObjectiveError(
                "the Trainer has label_smoothing_factor or compute_loss_func, and the objective is its loss; expected "
                "one of them; leave it out and give a loss of your own as objective=lambda net: Objective(net, loss)"
            )
        super().__init__(*args, **kwargs)
        model: Any = self.model
        net = supervised(model)
        self.objective: Objective = objective(net)
        # A supervised net takes any arguments: what the Trainer finds out from a forward, the model inside has.
        accepted = inspect.signature(net.trunk.forward).parameters
        self.label_names = self.args.label_names or [name for name in accepted if "label" in name] or ["labels"]
        self._signature_columns: Any = [*accepted, "label", "label_ids", *self.label_names]
        self.model_accepts_loss_kwargs = False  # else accumulated gradients would be summed, not averaged

    @property
    def progress(self) -> float:
        """How much of the training is done, 0 to 1, by the Trainer's own count of steps."""
        return min(1.0, float(self.state.global_step / max(1, self.state.max_steps)))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,  # noqa: ARG002 - the objective is a mean over the batch
    ) -> Any:
        """Return the objective in training and the model's own loss in evaluation, and the scores as ``logits``."""
        out = model(**{name: value for name, value in inputs.items() if name not in self.label_names})
        loss = self.objective(out, inputs[self.label_names[0]], progress=self.progress)
        value = loss.total if model.training else loss.output_loss
        return (value, {"logits": out.scores}) if return_outputs else value

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save a checkpoint; tied weights are copied, since safetensors refuses tensors that share memory."""
        model: Any = self.model
        given = model.state_dict() if state_dict is None else state_dict
        seen: set[int] = set()
        apart = {}
        for name, each in given.items():
            apart[name] = each.clone() if each.data_ptr() in seen else each
            seen.add(each.data_ptr())
        super()._save(output_dir, apart)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Any, Any]:
        """Return loss, scores and labels; without labels the scores alone."""
        if all(inputs.get(name) is not None for name in self.label_names):
            prediction: tuple[Tensor | None, Any, Any] = super().prediction_step(
                model, inputs, prediction_loss_only, ignore_keys
            )
            return prediction
        with torch.no_grad():
            return None, model(**self._prepare_inputs(inputs)).scores, None


class SupervisedTrainer(SupervisedTrainerMixin, Trainer):
    """Hugging Face's ``Trainer`` for a supervised net: ``SupervisedTrainer(model=net, args=...)``."""
