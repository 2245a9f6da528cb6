"""``at="auto"``: which layers it takes, on nets whose right answer is known."""

from dataclasses import replace

import pytest
import torch
from auto_nets import Recurrent, Transformer
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images, mlp
from torch import Tensor, nn

from deepsup import DeepsupError, supervise


def auto(model: nn.Module, example: Tensor) -> tuple[str, ...]:
    return supervise(model, at="auto", num_classes=CLASSES, example=example).taps


def test_the_last_layer_of_each_resolution_but_the_outputs() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(),  # 16 x 16
        nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),  # 8 x 8
        nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),  # 4 x 4, the output's
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES),
    )  # fmt: skip
    assert auto(model, torch.zeros(1, 2, 16, 16)) == ("1", "4")
    assert auto(model, torch.zeros(1, 2, 20, 12)) == ("1", "4")
    assert auto(model, torch.zeros(1, 2, 23, 17)) == ("1", "4")


def test_functional_activations_and_a_global_pool() -> None:
    assert auto(ConvNet(), images(1)) == ("conv1",)


class Step(nn.Module):
    """A strided residual block: inside it, layers at the old resolution that are no place for a tap."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 2 * channels, 1)
        self.reduce = nn.Conv2d(2 * channels, channels, 3, stride=2, padding=1)
        self.short = nn.Conv2d(channels, channels, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.short(x) + self.reduce(self.expand(x))


def test_a_block_that_halves_hides_its_insides() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), Step(4), Step(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES)
    )
    assert auto(model, torch.zeros(1, 2, 16, 16)) == ("0", "1")


class Backbone(nn.Module):
    """Everything inside one module that ends in a vector: it hides nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.down1, self.down2, self.down3 = Step(4), Step(4), Step(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down3(self.down2(self.down1(self.stem(x)))).mean((2, 3))


def test_a_backbone_inside_a_wrapper() -> None:
    model = nn.Sequential(Backbone(), nn.Linear(4, CLASSES))
    assert auto(model, torch.zeros(1, 2, 16, 16)) == ("0.stem", "0.down1", "0.down2")


class ChannelsLast(nn.Module):
    """Stages whose maps lie as [B,H,W,C], as Swin's do."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1, self.stage2, self.fc = nn.Linear(2, 7), nn.Linear(7, 9), nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.stage1(x.permute(0, 2, 3, 1))
        scores: Tensor = self.fc(self.stage2(z[:, ::2, ::2]).mean((1, 2)))
        return scores


def test_maps_with_their_channels_last() -> None:
    assert auto(ChannelsLast(), torch.zeros(1, 2, 16, 16)) == ("stage1",)


def test_one_resolution_only() -> None:
    assert auto(TokenNet(), torch.zeros(1, 7, 8)) == ("layers.0", "layers.1")
    assert auto(mlp(), torch.zeros(1, 6)) == ("1",)  # the second hidden layer comes right before the output
    same = nn.Sequential(*(nn.Conv2d(2, 2, 3, padding=1) for _ in range(9)), nn.Flatten(), nn.Linear(128, CLASSES))
    assert auto(same, images(1)) == ("2", "5")


def test_layers_called_twice_are_passed_over() -> None:
    class Shared(ConvNet):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            z = self.pool1(self.relu(self.conv1(x)))
            scores: Tensor = self.fc(self.pool2(self.relu(self.conv2(z))).flatten(1))
            return scores

    assert auto(Shared(), images(1)) == ("conv1",)


def test_nothing_to_tap() -> None:
    with pytest.raises(DeepsupError, match="at='auto' finds no hidden layer in Linear"):
        auto(nn.Linear(6, CLASSES), torch.zeros(1, 6))


def test_an_lstm_is_tapped_at_its_output_sequence_and_trained() -> None:
    words = torch.randint(0, 50, (2, 9))
    net = supervise(Recurrent(modules=2), num_classes=CLASSES, example=words, companion=LEARNED)
    assert net.head("rnns.0").companion == replace(LEARNED, select=0)
    net(words).companions["rnns.0"].sum().backward()
    assert net.trunk.get_parameter("rnns.0.weight_ih_l0").grad.any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Transformer(3, batch_first=False), r"'encoder.layers.0' returns Tensor \[9, 2, 16\], the batch not first"),
        (Recurrent(batch_first=False), r"'rnns.0' returns a tuple \(Tensor \[9, 2, 16\], .*the batch not first"),
    ],
)
def test_a_sequence_before_the_batch_is_refused(model: nn.Module, why: str) -> None:
    with pytest.raises(DeepsupError, match=f"{why}; expected blocks .*: embedding, .* can be tapped"):
        auto(model, torch.randint(0, 50, (2, 9)))
    assert not any(layer._forward_hooks for layer in model.modules())


def test_a_last_map_of_one_pixel_is_the_outputs() -> None:
    model = nn.Sequential(Step(2), Step(2), Step(2), nn.Flatten(), nn.Linear(2, CLASSES))
    assert auto(model, torch.zeros(1, 2, 8, 8)) == ("0", "1")  # 4 x 4, 2 x 2, then 1 x 1


def stack(depth: int, width: int = 8, functional: bool = False) -> nn.Module:
    """Plain convolutions in two stages of ``depth`` layers each, with or without ReLU as modules."""

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(2 if not i else width, width, 3, 1, 1) for i in range(2 * depth))
            self.fc = nn.Linear(width, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            for index, conv in enumerate(self.convs):
                x = conv(x).relu()
                x = nn.functional.max_pool2d(x, 2) if index == depth - 1 else x
            return self.fc(x.mean((2, 3)))

    if functional:
        return Stack()
    layers: list[nn.Module] = []
    for index in range(2 * depth):
        layers += [nn.Conv2d(2 if not index else width, width, 3, padding=1), nn.ReLU(inplace=index % 2 == 0)]
        layers += [nn.MaxPool2d(2)] if index == depth - 1 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def test_no_more_than_three_layers_of_a_plain_net_without_a_companion() -> None:
    """By hand: stages of 3 are left alone, of 4 are cut after 2, of 7 after 2 and 5; ReLU i is layer 2 i + 1."""
    x = torch.zeros(1, 2, 16, 16)
    assert auto(stack(3), x) == ("5",)
    assert auto(stack(4), x) == ("3", "7", "12")
    assert auto(stack(7), x) == ("3", "9", "13", "18", "24")
    torch.manual_seed(0)
    assert auto(stack(4, functional=True), torch.randn(1, 2, 16, 16)) == ("convs.1", "convs.3", "convs.5")


def test_norm_layers_and_skip_connections_need_no_more_companions() -> None:
    layers = [layer for _ in range(8) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())]
    net = nn.Sequential(
        nn.Conv2d(2, 4, 1), *layers, nn.MaxPool2d(2), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(256, CLASSES)
    )
    assert auto(net, torch.zeros(1, 2, 16, 16)) == ("24",)

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(2 if not i else 4, 4, 3, padding=1) for i in range(9))
            self.fc = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            x = self.convs[0](x)
            for conv in self.convs[1:8]:
                x = x + conv(x.relu())
            return self.fc(self.convs[8](nn.functional.max_pool2d(x, 2)).mean((2, 3)))

    torch.manual_seed(0)
    assert auto(Skips(), torch.randn(1, 2, 16, 16)) == ("convs.7",)


def test_a_deep_mlp_without_norm_layers_has_a_companion_after_three_layers() -> None:
    def perceptron(depth: int, *norm: nn.Module) -> nn.Module:
        hidden = [layer for _ in range(depth - 1) for layer in (nn.Linear(8, 8), *norm, nn.ReLU())]
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *hidden, nn.Linear(8, CLASSES))

    x = torch.zeros(1, 4)
    assert auto(perceptron(9), x) == ("5", "11")  # thirds, as before
    assert auto(perceptron(12), x) == ("5", "11", "17")
    assert len(auto(perceptron(12, nn.LayerNorm(8)), x)) == 2


def test_a_residual_branch_is_no_tap() -> None:
    """The model's forward adds the blocks; what comes before the first one is on the stream."""

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(2, 4, 3, padding=1)
            self.blocks = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)) for _ in range(4))
            self.fc = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for index, block in enumerate(self.blocks):
                x = x + 0.3 * block(x)
                x = nn.functional.max_pool2d(x, 2) if index == 1 else x
            return self.fc(x.relu().mean((2, 3)))

    torch.manual_seed(0)
    assert auto(Stream(), torch.randn(1, 2, 16, 16)) == ("stem",)
