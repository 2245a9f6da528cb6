"""A companion's pooling, scaling, hidden layers and initialisation, each against its definition."""

import copy
import math
import pickle
import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images, labels, linear
from torch import Tensor, nn

from deepsup import Companion, DeeplySupervised, DeepsupError, Objective, supervise
from deepsup.supervision._companions import Head, pool


def test_pooling_of_maps() -> None:
    x = torch.randn(2, 3, 8, 6)
    torch.testing.assert_close(
        pool(x, "avg", "channels_first", None), torch.stack([x[:, c].mean((1, 2)) for c in range(3)], 1)
    )
    torch.testing.assert_close(
        pool(x, "max", "channels_first", None), torch.stack([x[:, c].amax((1, 2)) for c in range(3)], 1)
    )
    quarters = torch.stack([x[:, :, 4 * i : 4 * i + 4, 3 * j : 3 * j + 3].mean((2, 3)) for i in (0, 1) for j in (0, 1)])
    torch.testing.assert_close(pool(x, 2, "channels_first", (2, 2)).flatten(2), quarters.permute(1, 2, 0))
    assert pool(x, "none", "channels_first", None) is x


def test_pooling_of_tokens_volumes_and_vectors() -> None:
    tokens, volume, vectors = torch.randn(2, 6, 5), torch.randn(2, 3, 4, 4, 4), torch.randn(2, 5)
    torch.testing.assert_close(pool(tokens, "avg", "channels_last", None), tokens.mean(1))
    torch.testing.assert_close(pool(tokens, "max", "channels_last", None), tokens.amax(1))
    torch.testing.assert_close(pool(tokens, 2, "channels_last", (2,))[:, :, 0], tokens[:, :3].mean(1))
    assert pool(volume, 2, "channels_first", (2, 2, 2)).shape == (2, 3, 2, 2, 2)
    torch.testing.assert_close(pool(volume, "avg", "channels_first", None), volume.flatten(2).mean(2))
    assert pool(vectors, "avg", None, None) is vectors


@pytest.mark.parametrize("side", [3, 15, 64])
def test_the_gradient_of_an_average_has_the_memory_order_of_the_map(side: int) -> None:
    """Maps of every size: a gradient in another order made a step of ``fast`` a sixth longer."""
    maps = torch.randn(2, 8, side, side).to(memory_format=torch.channels_last).requires_grad_()
    weights = torch.randn(2, 8)
    (pool(maps, "avg", "channels_first", None) * weights).sum().backward()
    assert maps.grad is not None
    assert maps.grad.stride() == maps.stride()
    expected = (weights / side**2)[:, :, None, None].expand_as(maps)
    torch.testing.assert_close(maps.grad, expected, rtol=1e-6, atol=0)
    seen = []
    maps.register_hook(lambda gradient: seen.append(gradient.stride()))
    (pool(maps, "avg", "channels_first", None) * weights).sum().backward()
    assert seen == [maps.stride()]  # as it arrives, before it is added to another one


@pytest.mark.parametrize(("how", "width"), [("none", 4 * 64), ("avg", 4), ("max", 4), (2, 16)])
def test_companions_in_a_net(how: Any, width: int) -> None:
    net = supervise(
        ConvNet(), at={"conv1": linear(how, hidden=(9, 6)), "conv2": Companion.paper()}, num_classes=CLASSES
    )
    x = images()
    out = net(x)
    head = net.head("conv1")
    assert head.first.in_features == width
    assert net.head("conv2").first.in_features == 5 * 16
    z: Tensor = pool(net.trunk.get_submodule("conv1")(x), how, "channels_first", (2, 2)).flatten(1)
    for name in ("hidden.0.0", "hidden.1.0"):
        layer = head.get_submodule(name)
        z = (z @ layer.weight.T + layer.bias).relu()
    torch.testing.assert_close(out.companions["conv1"], z @ head.classifier.weight.T + head.classifier.bias)


def averaged(sample: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Adaptive average pooling by its definition: a map [C, ...] -> [C, *grid], cell by cell."""
    cells = []
    for cell in product(*map(range, grid)):
        part = sample
        for axis, (index, parts) in enumerate(zip(cell, grid, strict=True), 1):
            size = sample.shape[axis]
            part = part.narrow(axis, start := index * size // parts, math.ceil((index + 1) * size / parts) - start)
        cells.append(part.flatten(1).mean(1))
    return torch.stack(cells, 1).reshape(len(sample), *grid)


def by_hand(head: Head, features: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The scores of a companion with a size to pool to, sample by sample; features are channels first."""
    rows = [averaged(sample, grid).flatten() for sample in features]
    if head.companion.length is not None:
        rows = [head.companion.length * row / row.square().sum().sqrt() for row in rows]
    return torch.stack(rows) @ head.classifier.weight.T + head.classifier.bias


@pytest.mark.parametrize("companion", [LEARNED, linear(4), linear(3)], ids=["default", "unscaled", "3"])
@pytest.mark.parametrize("size", [(28, 28), (20, 20), (6, 6), (9, 13)], ids=str)
def test_maps_of_every_size_are_pooled_to_one_grid(companion: Companion, size: tuple[int, int]) -> None:
    taps, side = ("conv1", "pool1", "conv2"), companion.pool
    model = ConvNet().double().eval()
    example = torch.zeros(1, 2, 28, 28, dtype=torch.float64)
    net = supervise(model, at=taps, num_classes=CLASSES, companion=companion, example=example)
    x = torch.randn(3, 2, *size, dtype=torch.float64)
    first = model.conv1(x)
    halved = model.pool1(first.relu())
    out = net(x)
    for name, features in zip(taps, (first, halved, model.conv2(halved)), strict=True):
        head = net.head(name)
        assert head.grid == (side, side)
        torch.testing.assert_close(out.companions[name], by_hand(head, features, (side, side)))


@pytest.mark.parametrize("tokens", [28, 20, 6, 3])
def test_sequences_of_every_length_are_pooled_to_one_grid(tokens: int) -> None:
    model = TokenNet().double().eval()
    example = torch.zeros(1, 28, 8, dtype=torch.float64)
    net = supervise(model, at=["layers.0"], num_classes=CLASSES, companion=LEARNED, example=example)
    x = torch.randn(3, tokens, 8, dtype=torch.float64)
    head, features = net.head("layers.0"), model.layers[0](x)
    assert (head.grid, head.first.in_features) == ((4,), 4 * 8)
    torch.testing.assert_close(net(x).companions["layers.0"], by_hand(head, features.transpose(1, 2), (4,)))


def test_a_map_is_never_blown_up() -> None:
    """Not the map that the companion is sized on: its extents bound the grid, for larger maps too."""
    model = nn.Sequential(nn.Conv2d(2, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, CLASSES))
    net = supervise(model, at=["0"], num_classes=CLASSES, companion=LEARNED, example=torch.zeros(1, 2, 3, 7))
    head = net.head("0")
    assert (head.grid, head.first.in_features) == ((3, 4), 5 * 3 * 4)
    for size in ((3, 7), (10, 9)):
        x = torch.randn(2, 2, *size)
        torch.testing.assert_close(net(x).companions["0"], by_hand(head, model[0](x), (3, 4)))


def unseen(net: DeeplySupervised) -> DeeplySupervised:
    """A new net with the weights of this one, which has met no images."""
    twin = supervise(ConvNet().eval(), at=net.taps, num_classes=CLASSES, companion=LEARNED)
    twin.load_state_dict(net.state_dict())
    return twin


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net)), unseen], ids=["copy", "pickle", "state"]
)
def test_the_grid_goes_with_copies(twin_of: Any) -> None:
    net = supervise(ConvNet().eval(), at=["conv1", "conv2"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    twin = twin_of(net)
    for side in (8, 20, 6):
        x = torch.randn(3, 2, side, side)
        assert all(map(torch.equal, twin(x).companions.values(), net(x).companions.values()))


SHAPES = {"maps": (6, 4, 3), "tokens": (7, 5), "vectors": (9,)}


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last in memory"])
@pytest.mark.parametrize("kind", SHAPES)
def test_features_are_scaled_to_one_length(kind: str, last: bool) -> None:
    """Value of length x / |x| and half of its gradient along x: length / |x| (g - (g x) x / (2 |x|^2)), per sample."""
    x = torch.randn(4, *SHAPES[kind], dtype=torch.float64)
    x = torch.stack([scale * sample for scale, sample in zip((1e-3, 1.0, 50.0, 1e4), x, strict=True)])
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    head = Head("tap", linear(length=3.5), CLASSES).double()
    head.size(x)
    weight, bias = head.classifier.weight.detach(), head.classifier.bias.detach()
    scores = head(x.requires_grad_())
    weighed = torch.randn_like(scores)
    (gradient,) = torch.autograd.grad((scores * weighed).sum(), [x])
    for sample, row, given, found in zip(x.detach(), scores, weighed, gradient, strict=True):
        flat, g = sample.flatten(), given @ weight
        norm = math.sqrt(sum(value**2 for value in flat.tolist()))
        torch.testing.assert_close(row, weight @ (3.5 / norm * flat) + bias)
        torch.testing.assert_close(found.flatten(), 3.5 / norm * (g - (g @ flat) * flat / (2 * norm**2)))


SCALED = Companion(pool=4, length=8.0)


@pytest.mark.parametrize("companion", [SCALED, linear(length=8.0)], ids=["on a grid", "flat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_scaled_sample_of_zeros_scores_the_bias_and_has_no_gradient(companion: Companion, dtype: torch.dtype) -> None:
    x = torch.randn(4, 6, 5, 5, dtype=dtype)
    x[2] = 0
    head = Head("tap", companion, CLASSES).to(dtype)
    head.size(x)
    scores = head(x.requires_grad_())
    scores.float().sum().backward()
    assert scores.isfinite().all()
    assert torch.equal(scores[2], head.classifier.bias)
    assert all(p.grad.isfinite().all() for p in (x, *head.parameters()))
    assert not x.grad[2].any()
    torch.testing.assert_close(scores[[0, 1, 3]], head(x[[0, 1, 3]]))  # the others do not notice


@pytest.mark.parametrize("scale", [1e-5, 1.0, 3e4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_neither_overflows_nor_vanishes(dtype: torch.dtype, scale: float) -> None:
    """In float16 the squares of large features and the factors of small ones are above the largest number, 65504."""
    x = (scale * torch.rand(4, 6, 5, 5)).to(dtype)
    head = Head("tap", SCALED, CLASSES).to(dtype)
    head.size(x)
    expected = by_hand(copy.deepcopy(head).double(), x.double(), (4, 4))
    torch.testing.assert_close(head(x).double(), expected, rtol=0.05, atol=0.05)


def test_scaled_features_under_autocast() -> None:
    net = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    x = images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = net(x).companions["conv1"]
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(scores.float(), net(x).companions["conv1"], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("example", [images(1), None], ids=["by an example", "on the first forward"])
@pytest.mark.parametrize("hidden", [(), (9, 6)], ids=["linear", "hidden layers"])
def test_a_companion_starts_at_0(example: Tensor | None, hidden: tuple[int, ...]) -> None:
    companion = Companion(hidden=hidden, init="zero")
    net = supervise(ConvNet(), at=["conv1", "conv2"], num_classes=CLASSES, companion=companion, example=example)
    out = net(images())
    for name, scores in out.companions.items():
        assert not scores.any()
        head = net.head(name)
        assert not any(p.any() for p in head.classifier.parameters())
        assert all(p.any() for p in head.hidden.parameters())
        assert len(list(head.hidden.parameters())) == 2 * len(hidden)


@pytest.mark.parametrize(("init", "expected"), [("torch", [True, True]), ("zero", [False, True])])
def test_default_companions_teach_the_model_from_the_first_step_on(init: Any, expected: list[bool]) -> None:
    """A classifier at 0 has no gradient for the model before it has learned something itself."""
    companion = Companion(init=init)
    net = supervise(
        ConvNet().eval(), at=["conv1", "conv2"], num_classes=CLASSES, companion=companion, example=images(1)
    )
    objective, x, y = Objective(net), images(), labels()
    optimizer = torch.optim.SGD(net.heads.parameters(), lr=0.1)
    reached = []
    for _ in range(2):
        net.zero_grad()
        sum(objective(net(x), y, progress=0.0).companions.values()).backward()
        reached.append(all(net.trunk.get_submodule(name).weight.grad.any() for name in net.taps))
        assert all(p.grad.any() for name in net.taps for p in net.head(name).classifier.parameters())
        optimizer.step()
    assert reached == expected


def test_weights_that_were_loaded_before_the_first_forward_are_not_put_to_0() -> None:
    net = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    companion = replace(LEARNED, init="zero")
    twin = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=companion)
    twin.load_state_dict(net.state_dict())
    x = images()
    assert torch.equal(twin(x).companions["conv1"], net(x).companions["conv1"])


def test_flat_companions_say_that_the_size_changed() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, companion=Companion.paper(), example=images(1))
    with pytest.raises(
        DeepsupError, match=r"layer 'conv1' gives 480 values per image .* was built for 256; .*pool='avg'"
    ):
        net(torch.randn(3, 2, 12, 10))


def test_tokens_pooled_in_a_net() -> None:
    net = supervise(TokenNet(), at=["layers.0"], num_classes=CLASSES, companion=Companion(pool="avg"))
    assert net(torch.randn(2, 7, 8)).companions["layers.0"].shape == (2, CLASSES)
    assert net.head("layers.0").first.in_features == 8


@pytest.mark.parametrize("example", [images(1), None])
def test_caffe_initialisation(example: Tensor | None) -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, companion=Companion.caffe(), example=example)
    net(images())
    layer = net.head("conv1").classifier
    bound = math.sqrt(3 / (CLASSES * 256))
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert abs(layer.weight.std().item() / (bound / math.sqrt(3)) - 1) < 0.1
    assert layer.bias.abs().max() == 0


BAD_LENGTHS = (0, -8.0, math.nan, math.inf, True, "8", (8,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": "mean"}, "pool='mean' is not a way to pool; expected 'auto', 'none', 'avg', 'max' or a size"),
        ({"pool": 0}, "pool=0"),
        ({"pool": True}, "pool=True"),
        ({"hidden": (0,)}, r"hidden=\(0,\); expected widths of at least 1"),
        ({"hidden": 64}, "hidden=64; expected a tuple of widths"),
        ({"hidden": ("a",)}, "expected widths"),
        ({"layout": "last"}, r"layout='last'; expected one of: auto, channels_first, channels_last"),
        ({"layout": "channel_last"}, "did you mean 'channels_last'"),
        ({"init": "cafe"}, "init='cafe'; did you mean 'caffe'"),
        ({"init": 0}, "init=0; expected one of: torch, caffe, zero"),
        *(({"length": bad}, re.escape(f"length={bad!r}; expected a number above 0, or None")) for bad in BAD_LENGTHS),
    ],
)
def test_bad_companions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepsupError, match=message):
        Companion(**settings)
