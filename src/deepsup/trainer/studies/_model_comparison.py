"""Any model and data -> the table of ``deepsup compare``: the model without and with companions, over several seeds.

B batch, N samples, K classes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deepsup.errors import DataError, TrainingError, extras_named
from deepsup.objective import Objective
from deepsup.supervision import Companion, DeeplySupervised, supervise
from deepsup.trainer.config import Config
from deepsup.trainer.studies._comparison_table import compared
from deepsup.trainer.training import not_finite

MakeOptimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
Batches = Iterable[tuple[Tensor, Tensor]]


def compare(
    make_model: Callable[[], nn.Module],
    train_data: Any,
    test_data: Any,
    *,
    seeds: int = 3,
    epochs: int = 20,
    batch_size: int = 32,
    lr: float = 0.03,
    optimizer: MakeOptimizer | None = None,
    at: Any = "auto",
    companion: Companion = Companion(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Train a model of your own without and with companions, with every seed, and return how their errors compare.

    make_model: returns a new classifier, [B, ...] -> [B,K]; called once per training, after seeding.
    train_data, test_data: (inputs, labels), tensors or arrays; or batches of them, such as a DataLoader, with a length.
    batch_size: samples per step; a DataLoader has its own.
    lr: learning rate of SGD with momentum 0.9, which falls to 0 in a line, as every optimizer's does here.
    optimizer: returns another optimizer for some parameters, e.g. ``lambda parameters: AdamW(parameters, lr=1e-3)``.
    at, companion: which layers get a companion, and what it is made of, as in ``supervise``.

    The answer has ``methods`` (CNN-Softmax is the model alone, DSN-Softmax has companions): ``errors`` in percent, one
    per seed, ``mean``, ``deviation``; ``ratios``: the ratio of the errors with its 95 % interval; and ``notes``. A
    training that diverges counts as guessing.
    """
    with extras_named("deepsup.compare"):
        import scipy.stats  # noqa: F401 - the intervals need it: say so before anything is trained
    if isinstance(make_model, Config):
        raise TrainingError(
            "compare got a Config; expected a model factory; deepsup.trainer.studies.compare_methods takes a Config"
        )
    if isinstance(make_model, nn.Module):
        raise TrainingError(
            f"make_model is a {type(make_model).__name__}; expected a function that makes a new model each time: "
            f"lambda: {type(make_model).__name__}(...)"
        )
    if min(seeds, epochs, batch_size) < 1:
        raise TrainingError(f"seeds={seeds}, epochs={epochs}, batch_size={batch_size}; expected at least 1 of each")
    make: MakeOptimizer = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9))
    tested = batches_of("test_data", test_data, 500, shuffle=False)
    errors: dict[str, list[float | None]] = {"CNN-Softmax": [], "DSN-Softmax": []}
    model: Any = None
    with torch.random.fork_rng():
        for seed in range(seeds):
            for method, taps in (("CNN-Softmax", []), ("DSN-Softmax", at)):
                torch.manual_seed(seed)
                before, model = model, make_model()
                check_made(model, before)
                trained = batches_of("train_data", train_data, batch_size, shuffle=True)
                example = next(iter(tested))[0][:2].to(device_of_model(model))
                classes = scores_of(model, example).shape[1]
                net = supervise(model, at=taps, num_classes=classes, example=example, companion=companion)
                torch.manual_seed(seed)  # the companions have drawn their weights: the same batches and dropout again
                errors[method].append(error_of(net, tested) if fit_net(net, trained, epochs, make) else None)
    return compared(errors, list(range(seeds)), classes, sum(len(y) for _, y in tested))


def check_made(model: Any, before: Any) -> None:
    """Raise an error unless the factory made a model, and another one than before."""
    if not isinstance(model, nn.Module):
        raise TrainingError(f"make_model returns a {type(model).__name__}; expected a new torch.nn.Module each time")
    if model is before:
        raise TrainingError(
            f"make_model returns the same {type(model).__name__} again, which is trained already; expected a new model "
            f"each time; build it inside the function"
        )


class Shuffled:
    """The batches of inputs and labels, in a new order every time where asked for."""

    def __init__(self, x: Tensor, y: Tensor, size: int, shuffle: bool) -> None:
        self.x, self.y, self.size, self.shuffle = x, y, size, shuffle

    def __len__(self) -> int:
        return -(-len(self.x) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.x)) if self.shuffle else torch.arange(len(self.x))
        for batch in torch.split(order, self.size):
            yield self.x[batch], self.y[batch]


def batches_of(name: str, data: Any, size: int, shuffle: bool) -> Any:
    """Return batches that can be iterated again and again, of a pair or of what has batches already."""
    if isinstance(data, Sequence) and len(data) == 2 and all(isinstance(each, Tensor | np.ndarray) for each in data):
        x, y = (torch.as_tensor(each) for each in data)
        if len(x) != len(y) or not len(x):
            raise DataError(f"{name} has {len(x)} inputs and {len(y)} labels; expected as many of both, at least one")
        return Shuffled(x.float() if x.dtype == torch.float64 else x, y.long(), size, shuffle)
    if not (hasattr(data, "__len__") and hasattr(data, "__iter__")) or not len(data):
        raise DataError(
            f"{name} is {type(data).__name__}; expected (inputs, labels) as tensors or arrays, or batches of them with "
            f"a length, such as a DataLoader"
        )
    return data


def scores_of(model: nn.Module, example: Tensor) -> Tensor:
    """Return the scores [B,K] of a model as it is given."""
    training = model.training
    with torch.no_grad():
        scores = model.eval()(example)
    model.train(training)
    if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] < 2:
        shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise TrainingError(f"the model returns {shape}; expected scores [B,K] of at least two classes")
    return scores


def device_of_model(model: nn.Module) -> torch.device:
    """Return where a model is."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def fit_net(net: DeeplySupervised, batches: Any, epochs: int, make_optimizer: MakeOptimizer) -> bool:
    """Train with a learning rate that falls to 0; return False where the training diverges."""
    objective, optimizer, device = Objective(net), make_optimizer(net.parameters()), device_of_model(net)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    net.train()
    step = 0
    for _ in range(epochs):
        for x, y in batches:
            out = net(x.to(device))
            if not_finite(out) is not None:
                return False
            loss = objective(out, y.to(device), progress=min(1.0, step / steps))
            if not loss.total.isfinite():
                return False
            optimizer.zero_grad()
            torch.autograd.backward(loss.total)
            optimizer.step()
            schedule.step()
            step += 1
    return all(bool(parameter.isfinite().all()) for parameter in net.parameters())


@torch.no_grad()
def error_of(net: DeeplySupervised, batches: Batches) -> float:
    """Return the test error of the output in percent."""
    device, wrong, count = device_of_model(net), 0, 0
    net.eval()
    for x, y in batches:
        wrong += int((net(x.to(device)).scores.argmax(1) != y.to(device)).sum())
        count += len(y)
    return 100 * wrong / count
