"""The model's own last layers, from a layer's output to the scores: found in a traced forward pass, and run again.

A tail is a chain of layers of the model. Between two of them the model may do a little itself: take the first or the
last token, average, flatten or scale. Each such link is found by its values, and the whole chain must give the scores
of the traced batch to the bit; a model for which it does not has no tail.

B batch, L tokens, D features, K classes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError, nearest
from deepsup.supervision._scores import shares_memory
from deepsup.supervision._taps import describe, part_of
from deepsup.supervision._trace import Call, Trace, undisturbed


def only_token(x: Tensor) -> Tensor:
    """Return the only token of a sequence [B,1,D]; with several it is unknown which one the model takes."""
    if x.shape[1] != 1:
        raise SupervisionError(
            f"head='output' was built on sequences of one token and gets {list(x.shape)}, so which token the model "
            f"takes is unknown; expected one token; supervise the model on an example with several"
        )
    return x[:, 0]


LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "only token": only_token,
    "first token": lambda x: x[:, 0],
    "last token": lambda x: x[:, -1],
    "mean of the tokens": lambda x: x.mean(1),
    "mean of the map": lambda x: x.mean((-2, -1)),
    "flattened": lambda x: x.flatten(1),
    "relu": lambda x: x.relu(),
    "tanh": lambda x: x.tanh(),
    "gelu": nn.functional.gelu,
    "capped at 30": lambda x: torch.tanh(x / 30.0) * 30.0,  # Gemma's scores
}
OF_TOKENS = ("first token", "last token", "mean of the tokens")


class Link(NamedTuple):
    """What the model does between two of its layers: one of ``LINKS``, then a factor."""

    how: str = ""
    factor: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        linked = LINKS[self.how](x)
        return linked if self.factor == 1 else linked * self.factor

    def __str__(self) -> str:
        return " ".join(filter(None, [self.how, "" if self.factor == 1 else f"times {self.factor:g}"]))


class Tail(NamedTuple):
    """Layers of a model, by name, each with the link before it; and the link from the last one to the scores."""

    steps: tuple[tuple[Link, str], ...]
    end: Link = Link()

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in order."""
        return tuple(name for _, name in self.steps)

    def run(self, model: nn.Module, features: Tensor) -> Tensor:
        """Return the scores of features."""
        for link, name in self.steps:
            features = model.get_submodule(name)(link(features))
        return self.end(features)

    def __str__(self) -> str:
        parts = [part for link, name in self.steps for part in (str(link), name)] + [str(self.end)]
        return ", ".join(filter(None, parts))


def tail_by_name(names: Sequence[str], model: nn.Module) -> Tail:
    """Return the tail of layers that a user names."""
    layers = dict(model.named_modules())
    for name in names:
        if name not in layers or not name:
            raise SupervisionError(
                f"head names {name!r}, which is no layer of {type(model).__name__}; "
                f"{nearest(name, filter(None, layers))}"
            )
    return Tail(tuple((Link(), name) for name in names))


def find_tail(call: Call, select: Any, model: nn.Module, seen: Trace) -> tuple[Tail, Call]:
    """Return the tail behind the last layer of a tap's kind, and that layer's call.

    Raise an error if the model's way from there to its scores is not such a chain.
    """
    source = last_like(call, select, seen)
    start = part_of(source.name, source.output, select)
    target, links, makers, scaled = seen.scores, list[Link](), list[Call](), False
    while isinstance(target, Tensor):
        maker, link = made_by(target, source, start, seen, makers[-1] if makers else None)
        if link is None:
            break
        links.append(link)
        scaled |= link.factor != 1 or not (
            link.how or shares_memory(start if maker is source else maker.output, target)
        )
        if maker is source:
            names = [each.name for each in reversed(makers)]
            tail = Tail(tuple(zip(reversed(links[1:]), names, strict=True)), links[0])
            if names and reproduces(tail, model, start, seen.scores):
                if scaled:
                    check_factor(call.name, tail, model)
                check_padding(call.name, links, model)
                return tail, source
            break
        makers.append(maker)
        target = maker.given
    reached = f"leads back from the scores to {makers[-1].name!r} only" if makers else "no layer returns the scores"
    raise SupervisionError(
        f"head='output' at {call.name!r}: the way from {source.name!r} to the scores of {type(model).__name__} is no "
        f"chain of its layers ({reached}); expected one; name the last layers yourself, Companion(head=['norm', "
        f"'fc']), or use Companion(head='linear')"
    )


def last_like(call: Call, select: Any, seen: Trace) -> Call:
    """Return the last hidden call of a layer of the same type, or in the same list, that returns the same kind."""
    parent = seen.layers.get(call.name.rpartition(".")[0])
    listed = set(parent.children()) if isinstance(parent, nn.ModuleList) else set()
    shape = getattr(part_of(call.name, call.output, select), "ndim", 0)
    like = [
        each
        for each in seen.hidden_calls
        if (type(each.layer) is type(call.layer) or each.layer in listed) and dims_of(each, select) == shape
    ]
    return like[-1] if like else call


def dims_of(call: Call, select: Any) -> int:
    """Return the number of dimensions of what a call gives; 0 for no tensor."""
    try:
        part = part_of(call.name, call.output, select)
    except SupervisionError:
        return 0
    return part.ndim if isinstance(part, Tensor) else 0


def check_padding(tap: str, links: Sequence[Link], model: nn.Module) -> None:
    """Raise an error for a Hugging Face model that takes the last token that is no padding, known by its number."""
    padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    if padding is not None and any(link.how == "last token" for link in links):
        raise SupervisionError(
            f"head='output' at {tap!r}: {type(model).__name__} takes the last token that is not "
            f"pad_token_id={padding}, another one per sample; expected a fixed token; use Companion(head='linear')"
        )


def check_factor(tap: str, tail: Tail, model: nn.Module) -> None:
    """Raise an error if the model's own forward may scale by a parameter of one number, which training changes."""
    for name, parameter in model.named_parameters():
        owner = name.rpartition(".")[0]
        if parameter.numel() == 1 and all(layer.startswith(f"{owner}." if owner else "") for layer in tail.layers):
            raise SupervisionError(
                f"head='output' at {tap!r}: {type(model).__name__} scales what its last layers give, perhaps by its "
                f"parameter {name!r}, which training changes; expected a chain of layers; make a layer of the scaling, "
                f"or use Companion(head='linear')"
            )


def made_by(target: Tensor, source: Call, start: Any, seen: Trace, after: Call | None) -> tuple[Call, Link | None]:
    """Return the latest call, back to the source, from whose output a link leads to a tensor; and the link.

    after: the call that got the tensor, if one did; what made it had ended before.
    """
    place = seen.calls.index(source)
    for call in reversed(seen.calls[place + 1 :]):
        if after is not None and call.begun > after.start:
            continue
        if call.start < source.start or not isinstance(call.output, Tensor):  # a layer around the source is no step
            continue
        link = link_between(call.output, target)
        if link is not None:
            return call, link
    return source, link_between(start, target)


def link_between(output: Any, target: Tensor) -> Link | None:
    """Return what makes a tensor of a layer's output, if anything known does."""
    if not isinstance(output, Tensor) or not output.is_floating_point() or len(output) != len(target):
        return None
    for how in LINKS:
        try:
            linked = LINKS[how](output)
        except (IndexError, RuntimeError, SupervisionError):
            continue
        if linked.shape != target.shape:
            continue
        if torch.equal(linked, target):
            if how in OF_TOKENS and sum(torch.equal(LINKS[each](output), target) for each in OF_TOKENS) > 1:
                raise SupervisionError(
                    f"head='output': all tokens of {list(output.shape)} are alike on the example, so which of them the "
                    f"model takes is unknown; expected tokens that differ; give another example="
                )
            return Link(how)
        for factor in () if how else factors(linked, target):
            if torch.equal(linked * factor, target):
                return Link(how, factor)
    return None


def factors(a: Tensor, b: Tensor) -> Iterator[float]:
    """Yield the numbers by which a model may scale a into b: powers of the width, and the ratio itself."""
    if a.numel() == 0 or not a.abs().max() > 0:
        return
    place = a.abs().argmax()
    ratio = float(b.flatten()[place]) / float(a.flatten()[place])
    width = a.shape[-1]
    yield from (each for each in (width**-0.5, width**0.5, ratio) if abs(each - ratio) <= 1e-3 * abs(ratio))


def reproduces(tail: Tail, model: nn.Module, start: Tensor, scores: Tensor) -> bool:
    """Whether a tail gives the traced scores, to the bit."""
    try:
        with undisturbed(model):
            return torch.equal(tail.run(model, start), scores)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        return False


def fitting(tail: Tail, source: str, tap: str, model: nn.Module, features: Tensor, scores: Tensor) -> None:
    """Raise an error if the model's last layers cannot take the output of a tap."""
    try:
        with undisturbed(model):
            given = tail.run(model, features)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        given = None
    if not isinstance(given, Tensor) or given.shape != scores.shape:
        follow = f", which follow {source!r}," if source else ""
        taken = "cannot take it" if given is None else f"make {describe(given)} of it"
        raise SupervisionError(
            f"layer {tap!r} returns {list(features.shape)}, and the model's own last layers ({tail}){follow} {taken}; "
            f"expected scores {list(scores.shape)}; tap a layer of the width that they take, or use "
            f"Companion(head='linear')"
        )
