"""Attach companions to a model: names -> taps, one forward pass -> sizes. And: which layers can be tapped.

B batch, K classes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from deepsup.errors import SupervisionError, nearest
from deepsup.supervision._attach import SIZING, DeeplySupervised
from deepsup.supervision._auto import choose_companions, features_of, is_feature, main_blocks
from deepsup.supervision._companions import Companion
from deepsup.supervision._inspection import check_model
from deepsup.supervision._names import named_companions
from deepsup.supervision._scores import SCORE_LAYOUTS, ScoreLayout
from deepsup.supervision._sizing import every_call, note_inputs
from deepsup.supervision._trace import Trace, trace

At = str | int | nn.Module | Callable[[str, nn.Module], bool] | Iterable[Any] | Mapping[Any, Companion]


def supervise(
    model: nn.Module,
    at: At = "auto",
    *,
    num_classes: int,
    example: Any = None,
    companion: Companion = Companion(),  # noqa: B008 - frozen
    fuse: bool = False,
    layout: ScoreLayout = "auto",
) -> DeeplySupervised:
    """Attach a companion, a small classifier, to hidden layers of any model.

    model: any ``nn.Module`` that returns scores [B,K], or dense scores [B,K,L], [B,K,H,W] or [B,K,D,H,W], or those of
        tokens [B,L,K]; it only gets forward hooks (and an ``nn.TransformerEncoder`` stops using nested tensors), which
        ``strip`` undoes.
    at: names from ``model.named_modules()``, their ends, wildcards (``"layer*"``), ``"re:..."``, modules, or numbers
        that count the main blocks; or ``"auto"``, the last layer of each spatial resolution except the output's (of a
        dense model, the stages of its decoder); or a mapping from any of these to companions. A layer that runs
        several times gets a companion per call: ``block#1``, ``block#2``, ...; ``lstm#5`` is the fifth time step.
    num_classes: K.
    example: a batch (a tensor, or a tuple or mapping of arguments) to find the input sizes of the companions.
        Without it they are found in the first forward pass; ``"auto"`` needs it.
    companion: how features become scores, for all taps; a mapping ``at`` overrides it.
    fuse: for a dense model, add an output ``fuse`` to the companions: the scores of the model and of all companions,
        upsampled and combined by a learned 1x1 convolution, as HED does.
    layout: ``"channels_last"`` for scores of tokens [B,L,K], ``"channels_first"`` for [B,K,L]; ``"auto"`` tells them by
        their shape, or by the layer that made them.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> net = supervise(model, at=["1"], num_classes=3, example=torch.zeros(1, 4))
    >>> net(torch.zeros(5, 4)).companions["1"].shape
    torch.Size([5, 3])
    """
    if isinstance(model, DeeplySupervised):
        raise SupervisionError("model is supervised already; expected a plain model; call its strip() first")
    check_model(model, num_classes)
    if layout not in SCORE_LAYOUTS:
        raise SupervisionError(f"layout={layout!r}; {nearest(str(layout), SCORE_LAYOUTS)}")
    auto = isinstance(at, str) and at == "auto"
    if auto and example is None:
        raise SupervisionError(
            "at='auto' without example=; expected a batch to run the model on once; give example=images[:1] or "
            "name the layers"
        )
    with SIZING, torch.inference_mode(False):
        seen: list[Trace] = []

        def run_once() -> Trace:
            if not seen:
                seen.append(trace(model, *as_call(example), num_classes, layout))
            return seen[0]

        if auto:
            companions = choose_companions(model, run_once(), companion)
        else:
            blocks = None if example is None else lambda: [call.name for call in main_blocks(model, run_once())]
            companions = named_companions(model, at, companion, blocks)
        companions = every_call(companions, model, None if example is None else run_once())
        net = DeeplySupervised(model, companions, int(num_classes), fuse)
        net.layout = layout
        if example is not None:
            try:
                net.size_from(run_once())
            except BaseException:
                net.strip()
                raise
            note_inputs(net, *as_call(example))
    return net


def tappable(model: nn.Module, example: Any) -> dict[str, tuple[int, ...]]:
    """Return the layers of a model that can be tapped, in the order in which they run: name -> shape of the output.

    A layer that runs several times is listed once per call, ``block#1``, ``block#2``, ...; where a layer returns a
    tuple, the shape is that of its first part, which ``Companion(select=0)`` takes.

    >>> tappable(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(2, 4))
    {'0': (2, 8), '1': (2, 8)}
    """
    check_model(model, 1)
    with SIZING, torch.inference_mode(False):
        seen = trace(model, *as_call(example), None)
        hidden = [call for call in seen.hidden_calls if is_feature(call, seen)]
        total = Counter(call.layer for call in seen.hidden_calls)
        count: Counter[nn.Module] = Counter()
        shapes: dict[str, tuple[int, ...]] = {}
        for call in hidden:
            count[call.layer] += 1
            name = f"{call.name}#{count[call.layer]}" if total[call.layer] > 1 else call.name
            features = features_of(call)
            assert features is not None
            shapes[name] = tuple(features.shape)
    return shapes


def as_call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: a tensor is one argument, a tuple several, a mapping keyword arguments."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if isinstance(example, tuple | list) else ((example,), {})
