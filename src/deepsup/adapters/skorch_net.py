"""A supervised net -> a skorch classifier, with the objective as its loss."""

from collections.abc import Callable
from typing import Any

from skorch import NeuralNetClassifier
from skorch.utils import to_tensor
from torch import Tensor, nn

from deepsup.objective import Objective, supervised


class SupervisedNeuralNet(NeuralNetClassifier):  # type: ignore[misc] # skorch has no types
    """skorch's ``NeuralNetClassifier`` for a supervised net; ``net.module_.strip()`` gives the model back.

    module: what ``supervise`` returned, or a function that returns it.
    objective: makes the objective of the net, e.g. ``Objective.paper``.
    criterion: the loss in validation, and what makes probabilities of scores; all other arguments are skorch's.
    """

    def __init__(
        self,
        module: Any,
        *args: Any,
        objective: Callable[[nn.Module], Objective] = Objective,
        criterion: Any = nn.CrossEntropyLoss,
        **kwargs: Any,
    ) -> None:
        self.objective = objective
        super().__init__(module, *args, criterion=criterion, **kwargs)

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **settings: Any) -> Any:  # noqa: N803 - skorch's
        """Note where this training begins in the history, and how long it is."""
        self.first_epoch_, self.epochs_ = len(self.history), self.max_epochs if epochs is None else epochs
        return super().fit_loop(X, y, epochs, **settings)

    def run_single_epoch(self, iterator: Any, training: bool, prefix: str, step_fn: Any, **settings: Any) -> None:
        """Note how many batches an epoch has."""
        if training:
            self.batches_ = len(iterator)
        super().run_single_epoch(iterator, training, prefix, step_fn, **settings)

    @property
    def progress(self) -> float:
        """How much of the training is done, 0 to 1, by skorch's own history."""
        epoch, batch = len(self.history) - 1 - self.first_epoch_, len(self.history[-1]["batches"]) - 1
        return min(1.0, (epoch + batch / self.batches_) / self.epochs_)

    def infer(self, x: Any, **settings: Any) -> Any:
        """Return scores and companions in training, the scores alone in evaluation."""
        out = super().infer(x, **settings)
        return out if self.module_.training else out.scores

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Tensor:  # noqa: N803
        """Return the objective in training, and the criterion of the scores in validation."""
        if not training:
            loss: Tensor = super().get_loss(y_pred, y_true, X, training)
            return loss
        objective: Objective | None = getattr(self, "objective_", None)
        if objective is None or objective.net is not supervised(self.module_):  # a pickled net has another module
            objective = self.objective_ = self.objective(self.module_)
        return objective(y_pred, to_tensor(y_true, device=self.device), progress=self.progress).total
