"""Names, sizes and options -> networks; mistakes -> one line that says what to do; a listing that is true."""

import dataclasses
import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import deepsup
from deepsup.errors import NetworkError
from deepsup.trainer.networks import Network, UnscaledDropout, create_network, describe, list_networks
from deepsup.trainer.networks._specs import SPECS

NAMES = list_networks()

PARAMETERS = {
    "cnn": 431_080,
    "dropconnect-cifar10": 2_250_314,
    "dropconnect-svhn": 3_629_994,
    "fast": 497_216,
    "maxout-cifar10": 16_247_830,
    "maxout-mnist": 471_994,
    "maxout-svhn": 10_461_050,
    "nin-cifar10": 966_986,
    "nin-cifar100": 984_356,
    "nin-mnist": 349_674,
    "nin-svhn": 1_986_026,
    "plain": 116_218,
    "stochastic-pooling-cifar10": 220_042,
    "stochastic-pooling-mnist": 212_362,
    "stochastic-pooling-svhn": 332_746,
    "tree-cifar100": 13_925_988,
    "unet-small": 120_331,
}


def hand_count(name: str) -> int:
    """The parameters from the published tables: each layer's inputs x outputs + biases, by hand."""

    def conv(k: int, *widths: int) -> int:
        return sum(k * k * a * b + b for a, b in pairwise(widths))

    def maxout(k: int, inputs: int, units: int, pieces: int, biases: int = 1) -> int:
        return units * pieces * (k * k * inputs + biases)

    def local(side: int, inputs: int, outputs: int) -> int:
        return side * side * (9 * inputs * outputs + outputs)

    def stage(inputs: int, width: int) -> int:  # two convolutions without biases, each with a norm
        return 9 * width * (inputs + width) + 4 * width

    extractor = conv(5, 3, 64, 64)
    return {
        "cnn": conv(5, 1, 20, 50) + conv(1, 800, 500, 10),
        "dropconnect-cifar10": extractor + local(6, 64, 64) + local(6, 64, 32) + conv(1, 1152, 128, 10),
        "dropconnect-svhn": extractor + local(7, 64, 64) + local(7, 64, 32) + conv(1, 1568, 512, 10),
        # six convolutions without biases, a shift for every channel of theirs, scores
        "fast": 9 * (24 * 32 + 32 * 32 + 32 * 128 + 3 * 128 * 128) + 2 * (32 + 128 + 128) + 1280,
        "maxout-cifar10": maxout(8, 3, 96, 2) + maxout(8, 96, 192, 2) + maxout(5, 192, 192, 2)
        + maxout(1, 192 * 25, 500, 5) + conv(1, 500, 10),
        "maxout-mnist": maxout(8, 1, 48, 2, 21**2) + maxout(8, 48, 48, 2, 9**2) + maxout(5, 48, 24, 4, 6**2)
        + conv(1, 24 * 9, 10),
        "maxout-svhn": maxout(5, 3, 64, 2) + maxout(5, 64, 128, 2) + maxout(5, 128, 128, 2)
        + maxout(1, 128 * 36, 400, 5) + conv(1, 400, 10),
        "nin-cifar10": conv(5, 3, 192) + conv(1, 192, 160, 96) + conv(5, 96, 192) + conv(1, 192, 192, 192)
        + conv(3, 192, 192) + conv(1, 192, 192, 10),
        "nin-cifar100": conv(5, 3, 192) + conv(1, 192, 160, 96) + conv(5, 96, 192) + conv(1, 192, 192, 192)
        + conv(3, 192, 192) + conv(1, 192, 192, 100),
        "nin-mnist": conv(5, 1, 96) + conv(1, 96, 64, 48) + conv(5, 48, 128) + conv(1, 128, 96, 48) + conv(5, 48, 128)
        + conv(1, 128, 96, 10),
        "nin-svhn": conv(5, 3, 128) + conv(1, 128, 96, 64) + conv(5, 64, 320) + conv(1, 320, 256, 128)
        + conv(5, 128, 384) + conv(1, 384, 256, 10),
        "plain": conv(3, 1, *[16] * 4, *[32] * 4, *[48] * 4) + conv(1, 48, 10),
        "stochastic-pooling-cifar10": conv(5, 3, 64, 64, 64) + conv(1, 1024, 10),
        "stochastic-pooling-mnist": conv(5, 1, 64, 64, 64) + conv(1, 576, 10),
        "stochastic-pooling-svhn": conv(5, 3, 64, 64, 128) + conv(1, 2048, 10),
        "tree-cifar100": conv(5, 3, 96, 128, 256) + conv(1, 4096, 2048, 2048, 100),
        "unet-small": stage(1, 16) + stage(16, 24) + stage(24, 32) + stage(32, 48) + stage(32 + 48, 32)
        + stage(24 + 32, 24) + stage(16 + 24, 16) + conv(1, 16, 11),
    }[name]  # fmt: skip


def test_the_names_of_the_contract_are_there() -> None:
    assert deepsup.list_networks() == sorted(PARAMETERS)
    assert isinstance(deepsup.create_network("cnn"), nn.Module)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_as_published(name: str) -> None:
    assert describe(name).parameters == PARAMETERS[name] == hand_count(name)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in {"nin-cifar100", "stochastic-pooling-mnist"}])
def test_docstrings_state_the_count(name: str) -> None:
    stated = SPECS[name].build.__doc__
    assert stated is not None
    assert f"{PARAMETERS[name]:,} parameters" in stated


def test_multiply_adds_of_nin_by_hand() -> None:
    """Output places x kernel area x inputs x outputs, layer by layer, of NIN on CIFAR-10."""
    by_hand = (
        32 * 32 * (25 * 3 * 192 + 192 * 160 + 160 * 96)
        + 16 * 16 * (25 * 96 * 192 + 192 * 192 + 192 * 192)
        + 8 * 8 * (9 * 192 * 192 + 192 * 192 + 192 * 10)
    )
    assert describe("nin-cifar10").multiply_adds == by_hand == 222_486_528


def test_multiply_adds_of_an_unshared_layer_are_those_of_the_shared_one() -> None:
    by_hand = 24 * 24 * 25 * 3 * 64 + 12 * 12 * 25 * 64 * 64 + 6 * 6 * 9 * (64 * 64 + 64 * 32) + 1152 * 128 + 128 * 10
    assert describe("dropconnect-cifar10").multiply_adds == by_hand


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_json_and_true(name: str) -> None:
    description = describe(name)
    assert json.loads(json.dumps(dataclasses.asdict(description)))["name"] == name
    network = create_network(name)
    layers = dict(network.named_modules())
    assert description.taps == network.taps
    assert all(tap in layers for tap in network.taps)
    assert description.parameters == sum(p.numel() for p in network.parameters())
    assert set(network.published) <= set(layers)
    assert description.minimum_image_size <= description.image_size
    # whoever tells weights from biases by their dimensions is right
    assert all(p.dim() == 1 for row, p in network.named_parameters() if row.endswith("bias"))
    assert not any(isinstance(layer, nn.ReLU) and layer.inplace for layer in layers.values())


def test_a_description_follows_sizes_and_options() -> None:
    wide = describe("fast", widths=(64, 64), num_classes=3, image_size=28, in_channels=1)
    assert wide.taps == ("group1", "group2")
    assert wide.options["widths"] == (64, 64)
    assert (wide.num_classes, wide.image_size, wide.in_channels) == (3, 28, 1)
    assert wide.parameters < describe("fast").parameters


def test_describing_allocates_no_weights_and_leaves_the_random_state() -> None:
    before = torch.random.get_rng_state()
    describe("maxout-cifar10")
    assert torch.equal(before, torch.random.get_rng_state())


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    sizes = (np.int64(5), torch.tensor(1), np.int32(28))
    network = create_network("fast", *sizes, widths=np.array([8, 4]), scale=np.float32(1))  # type: ignore[arg-type]
    assert (network.num_classes, network.in_channels, network.image_size) == (5, 1, 28)
    assert isinstance(network.num_classes, int)
    assert create_network("cnn", drop=np.float32(0.25)).drop1.p == 0.25


def test_same_seed_same_network() -> None:
    first, second = [], []
    for weights in (first, second):
        torch.manual_seed(3)
        weights += list(create_network("nin-mnist", init="caffe").parameters())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


class TestNinOptions:
    def test_the_final_relu_is_nins_and_not_dsns(self) -> None:
        images = torch.rand(4, 1, 28, 28)
        dsn, nin = create_network("nin-mnist"), create_network("nin-mnist", final_relu=True)
        nin.load_state_dict(dsn.state_dict())
        dsn.eval(), nin.eval()
        assert not hasattr(dsn, "relu_mlp3b")
        raw: list[torch.Tensor] = []
        dsn.get_submodule("mlp3b").register_forward_hook(lambda _module, _args, output: raw.append(output))
        torch.testing.assert_close(dsn(images), raw[0].mean((2, 3)))
        torch.testing.assert_close(nin(images), raw[0].relu().mean((2, 3)))

    def test_caffes_dropout_is_not_inverted(self) -> None:
        network = create_network("nin-mnist", dropout="caffe", drop=0.25)
        layers = [layer for layer in network.modules() if isinstance(layer, UnscaledDropout)]
        assert [(layer.p, layer.eval_scale) for layer in layers] == [(0.25, 0.75)] * 2
        plain = [layer for layer in create_network("nin-mnist").modules() if isinstance(layer, nn.Dropout)]
        assert [layer.p for layer in plain] == [0.5, 0.5]

    def test_caffes_start(self) -> None:
        network = create_network("nin-cifar10", init="caffe")
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                # 1,920 draws at least: 6 standard errors of a deviation are 6 / sqrt(2 * 1920), a tenth
                assert layer.weight.std().item() == pytest.approx(0.05, rel=0.1)
                assert layer.bias is not None
                assert not layer.bias.any()

    def test_published_rates(self) -> None:
        published = create_network("nin-cifar10").published
        assert (published["conv1"].rate, published["conv1"].bias_rate) == (1.0, 2.0)
        assert (published["mlp3b"].rate, published["mlp3b"].bias_rate) == (0.1, 0.2)


def test_taps_see_raw_values() -> None:
    """A hook on conv1 holds what the convolution gave, negatives included, also after the whole forward pass."""
    network = create_network("nin-mnist").eval()
    held: dict[str, torch.Tensor] = {}
    for tap in network.taps:
        network.get_submodule(tap).register_forward_hook(
            lambda _module, _args, output, tap=tap: held.update({tap: output})
        )
    images = torch.rand(2, 1, 28, 28)
    network(images)
    assert torch.equal(held["conv1"], network.get_submodule("conv1")(images))
    assert all((held[tap] < 0).any() for tap in network.taps)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_called_exactly_once(name: str) -> None:
    network = create_network(name, image_size=16)
    calls: Counter[str] = Counter()
    for row, layer in network.named_modules():
        layer.register_forward_hook(lambda _module, _args, _output, row=row: calls.update([row]))
    network(torch.rand(2, network.in_channels, 16, 16))
    assert calls == {row: 1 for row, _ in network.named_modules()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nin-cifar",), "no network is called 'nin-cifar'; did you mean 'nin-cifar10'"),
        (("maxout-minst",), "no network is called 'maxout-minst'; did you mean 'maxout-mnist'"),
        (("resnet",), "no network is called 'resnet'; expected one of: cnn, dropconnect-cifar10"),
        (("NIN_MNIST",), "no network is called 'NIN_MNIST'; did you mean 'nin-mnist'"),
        ((["cnn"],), "no network is called ['cnn']; did you mean 'cnn'?"),
        ((None,), "no network is called None; expected one of: cnn"),
        (("cnn", 0), "num_classes is 0; expected a whole number of at least 1"),
        (("cnn", -3), "num_classes is -3"),
        (("cnn", 2.0), "num_classes is 2.0"),
        (("cnn", "ten"), "num_classes is 'ten'"),
        (("cnn", 10, 0), "in_channels is 0; expected a whole number of at least 1"),
        (("cnn", 10, True), "in_channels is True"),
        (("cnn", 10, 1, (28, 28)), "image_size (one side of a square image) is (28, 28)"),
        (("cnn", 10, 1, 12), "image_size 12 is too small for cnn: its convolutions and poolings need at least 13"),
        (("nin-cifar10", 10, 3, 3), "image_size 3 is too small for nin-cifar10: its convolutions"),
        (("fast", 10, 3, 8), "image_size 8 is too small for fast"),
    ],
)  # fmt: skip
def test_bad_sizes_end_in_one_clear_line(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(NetworkError, match=re.escape(message)) as caught:
        create_network(*arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nin-mnist", {"final_rel": True}, "nin-mnist has no option 'final_rel'; did you mean 'final_relu'?"),
        ("nin-mnist", {"final_relu": "yes"}, "final_relu is 'yes'; expected True (NIN) or False (DSN)"),
        ("nin-mnist", {"dropout": "cafe"}, "dropout is 'cafe'; did you mean 'caffe'?"),
        ("nin-mnist", {"init": "xavier"}, "init is 'xavier'; expected one of: torch, caffe, he"),
        ("nin-mnist", {"norm": "layer"}, "norm is 'layer'; expected one of: none, batch"),
        ("nin-mnist", {"drop": 1.5}, "drop is 1.5; expected a finite number between 0 and 1"),
        ("cnn", {"drop": -0.5}, "drop is -0.5; expected a finite number between 0 and 1"),
        ("cnn", {"num_class": 10}, "cnn has no option 'num_class'; did you mean 'num_classes'?"),
        ("dropconnect-svhn", {"keep": 2}, "keep of DropConnectLinear is 2; expected a finite number between 0 and 1"),
        ("dropconnect-svhn", {"samples": 0}, "samples of DropConnectLinear is 0"),
        ("fast", {"widths": ()}, "widths is (); expected the channels of each group"),
        ("fast", {"widths": 64}, "widths is 64; expected the channels of each group"),
        ("fast", {"widths": (32, 0)}, "a width of widths is 0"),
        ("fast", {"widths": (8,) * 9}, "is too small for fast: its convolutions and poolings need at least 513;"),
        ("fast", {"scale": -1}, "scale is -1; expected a finite number of at least 0"),
        ("maxout-mnist", {"drop": 0.5}, "maxout-mnist has no option 'drop'"),
    ],
)  # fmt: skip
def test_bad_options_end_in_one_clear_line(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(NetworkError, match=re.escape(message)):
        create_network(name, **options)  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match=re.escape(message)):
        describe(name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_images_that_do_not_fit_are_refused_in_words(name: str) -> None:
    network = create_network(name)
    c, s = network.in_channels, network.image_size
    with pytest.raises(NetworkError, match=f"got images with {c + 1} channels; it was built for {c}: create_network"):
        network(torch.rand(2, c + 1, s, s))
    with pytest.raises(NetworkError, match=rf"got a tensor of shape \({c}, {s}, {s}\); expected a batch of images"):
        network(torch.rand(c, s, s))
    with pytest.raises(NetworkError, match=r"got images of torch.uint8; expected a tensor of floats"):
        network(torch.zeros(2, c, s, s, dtype=torch.uint8))
    with pytest.raises(NetworkError, match="got images of list; expected a tensor of floats"):
        network([0.0])
    too_small = network.minimum_image_size - 1
    with pytest.raises(NetworkError, match=f"{name} got images of {too_small}x{too_small}"):
        network(torch.rand(2, c, too_small, too_small))
    if network.any_size:
        positions = (s + 3, s + 5) if name == "unet-small" else ()
        assert network.eval()(torch.rand(2, c, s + 3, s + 5)).shape == (2, network.num_classes, *positions)
    else:
        with pytest.raises(NetworkError, match=f"got images of {s}x{s + 1}; it was built for {s}x{s}"):
            network(torch.rand(2, c, s, s + 1))


def test_a_network_can_be_extended_without_running_what_was_added() -> None:
    network = create_network("cnn").eval()
    images = torch.rand(2, 1, 28, 28)
    before = network(images)
    network.add_module("companion", nn.Linear(3, 3))
    assert torch.equal(network(images), before)
    assert isinstance(network, Network)
    assert "cnn: 1x28x28 -> 10 classes" in repr(network)


@pytest.mark.parametrize("name", ["nin-mnist", "nin-cifar10", "nin-svhn"])
def test_nin_with_batch_norm_has_one_after_every_convolution_but_the_last(name: str) -> None:
    layers = list(create_network(name, norm="batch", width=0.1).children())
    convolutions = [place for place, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    after = [layers[place + 1] for place in convolutions]
    assert [isinstance(layer, nn.BatchNorm2d) for layer in after] == [True] * 8 + [False]
    assert [layers[place].out_channels for place in convolutions[:8]] == [norm.num_features for norm in after[:8]]
