"""Any model and data -> the table of ``deepsup compare``: the model without and with companions, over several seeds.

B batch, L tokens, K classes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deepsup.errors import DataError, TrainingError, extras_named
from deepsup.objective import Objective
from deepsup.supervision import Companion, DeeplySupervised, as_call, supervise, trace
from deepsup.trainer.config import Config
from deepsup.trainer.studies._comparison_table import compared
from deepsup.trainer.training import not_finite

MakeOptimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


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
    objective: Callable[[nn.Module], Objective] = Objective,
) -> dict[str, Any]:
    """Train a model of your own without and with companions, with every seed, and return how their errors compare.

    make_model: returns a new model; called once per training, after seeding. It scores samples, [B,K], positions,
        [B,K,H,W], or tokens, [B,L,K]; the errors are those of its samples, positions or tokens.
    train_data, test_data: (inputs, labels), tensors or arrays; or batches of them, such as a DataLoader, with a length.
        A batch may also be a mapping of the model's arguments, and of ``labels``, as for models of Hugging Face.
    batch_size: samples per step; a DataLoader has its own.
    lr: learning rate of SGD with momentum 0.9, which falls to 0 in a line, as every optimizer's does here.
    optimizer: returns another optimizer for some parameters, e.g. ``lambda parameters: AdamW(parameters, lr=1e-3)``.
    at, companion: which layers get a companion, and what it is made of, as in ``supervise``.
    objective: makes the objective of a net, e.g. ``lambda net: Objective(net, shift=1)`` for a causal language model.

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
    if optimizer is not None and not callable(optimizer):
        raise TrainingError(
            f"optimizer is a {type(optimizer).__name__}; expected a function that makes one: "
            f"lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"
        )
    make: MakeOptimizer = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9))
    tested = batches_of("test_data", test_data, 500, shuffle=False)
    errors: dict[str, list[float | None]] = {"CNN-Softmax": [], "DSN-Softmax": []}
    model: Any = None
    count = 0
    with torch.random.fork_rng():
        for seed in range(seeds):
            for method, taps in (("CNN-Softmax", []), ("DSN-Softmax", at)):
                torch.manual_seed(seed)
                before, model = model, make_model()
                check_made(model, before)
                trained = batches_of("train_data", train_data, batch_size, shuffle=True)
                example, labels = (first_two(each) for each in parts_of(next(iter(tested)), model))
                classes = classes_of(model, example, labels)
                net = supervise(model, at=taps, num_classes=classes, example=example, companion=companion)
                objective_of_net = objective(net)
                torch.manual_seed(seed)  # the companions have drawn their weights: the same batches and dropout again
                fitted = fit_net(net, objective_of_net, trained, epochs, make)
                if fitted:
                    wrong, count = wrong_of(net, objective_of_net, tested)
                errors[method].append(100 * wrong / count if fitted else None)
    return {**compared(errors, list(range(seeds)), classes, count)}


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
    whole = isinstance(data, Tensor | np.ndarray | Mapping | str)
    if whole or not (hasattr(data, "__len__") and hasattr(data, "__iter__")) or not len(data):
        raise DataError(
            f"{name} is {type(data).__name__}; expected (inputs, labels) as tensors or arrays, or batches of them with "
            f"a length, such as a DataLoader"
        )
    return data


def parts_of(batch: Any, model: nn.Module) -> tuple[Any, Tensor]:
    """Return inputs and labels of a batch, where the model is."""
    if isinstance(batch, Mapping):
        names = [name for name in ("labels", "label") if name in batch]
        inputs = {name: each for name, each in batch.items() if name not in names}
        pair = [inputs, batch[names[0]]] if names else []
    else:
        pair = list(batch) if isinstance(batch, list | tuple) else []
    if len(pair) != 2 or not isinstance(pair[1], Tensor):
        kind = f"keys {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise DataError(
            f"a batch has {kind}; expected (inputs, labels), or a mapping of the model's arguments and 'labels'"
        )
    device = device_of_model(model)
    return each_tensor(pair[0], lambda x: x.to(device)), pair[1].to(device)


def each_tensor(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return inputs with each tensor changed."""
    if isinstance(inputs, Mapping):
        return {name: each_tensor(each, change) for name, each in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(each_tensor(each, change) for each in inputs)
    return change(inputs) if isinstance(inputs, Tensor) else inputs


def first_two(inputs: Any) -> Any:
    """Return the first two samples of a batch."""
    return each_tensor(inputs, lambda x: x[:2])


def classes_of(model: nn.Module, example: Any, labels: Tensor) -> int:
    """Return the number of classes that a model scores; of tokens or positions, by the shape of their labels."""
    shape = trace(model, *as_call(example), None).scores.shape
    tokens = len(shape) == 3 and labels.shape == shape[:2]
    places = labels.shape[1:].numel() == shape[2:].numel()
    classes = shape[-1] if tokens else shape[1] if len(shape) > 1 and places else 0
    if classes < 2:
        raise TrainingError(
            f"the model returns {list(shape)} for labels {list(labels.shape)}; expected scores of two classes or more: "
            f"[B,K] for labels [B], [B,K,H,W] for [B,H,W], or of tokens [B,L,K] for [B,L]"
        )
    return classes


def device_of_model(model: nn.Module) -> torch.device:
    """Return where a model is."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def fit_net(
    net: DeeplySupervised, objective: Objective, batches: Any, epochs: int, make_optimizer: MakeOptimizer
) -> bool:
    """Train with a learning rate that falls to 0; return False where the training diverges."""
    optimizer = make_optimizer(net.parameters())
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    net.train()
    step = 0
    for _ in range(epochs):
        for batch in batches:
            inputs, labels = parts_of(batch, net)
            args, kwargs = as_call(inputs)
            out = net(*args, **kwargs)
            if not_finite(out) is not None:
                return False
            loss = objective(out, labels, progress=min(1.0, step / steps))
            if not loss.total.isfinite():
                return False
            optimizer.zero_grad()
            torch.autograd.backward(loss.total)
            optimizer.step()
            schedule.step()
            step += 1
    return all(bool(parameter.isfinite().all()) for parameter in net.parameters())


@torch.no_grad()
def wrong_of(net: DeeplySupervised, objective: Objective, batches: Any) -> tuple[int, int]:
    """Return how many samples, positions or tokens the output has wrong, and how many have a label."""
    ignored = -100 if objective.ignore_index is None else objective.ignore_index
    wrong, count = 0, 0
    net.eval()
    for batch in batches:
        inputs, labels = parts_of(batch, net)
        args, kwargs = as_call(inputs)
        predictions = net(*args, **kwargs).scores.argmax(-1 if net.tokens else 1)
        if net.tokens:  # of a causal model, the token after the last one is unknown
            predictions, labels = predictions[:, : predictions.shape[1] - objective.shift], labels[:, objective.shift :]
        labels = labels.reshape(predictions.shape)
        wrong += int(((predictions != labels) & (labels != ignored)).sum())
        count += int((labels != ignored).sum())
    if not count:
        raise DataError(f"test_data has no label but {ignored}, which is left out; expected at least one other")
    return wrong, count
