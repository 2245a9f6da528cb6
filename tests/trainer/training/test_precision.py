"""--amp: how a run settles its precision, what stays in float32, and that all else is as before in bfloat16."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from deepsup import Config, Objective, export, supervise, train
from deepsup.errors import ConfigError
from deepsup.trainer.studies import with_precision
from deepsup.trainer.training import Callback, Processes, Training, build_net
from deepsup.trainer.training import _precision as precision_room
from deepsup.trainer.training._precision import (
    Bfloat16,
    bfloat16_on,
    precision,
    settle_layers,
    settle_precision,
    times_as_fast,
)

FAST = {"network": "fast", "network_options": {"widths": [8, 8]}}
SMALL = Config(
    train_size=40, batch_size=20, epochs=2, lr=0.01, tensorboard=False, test=False, amp="on", taps=("network",), **FAST
)  # fmt: skip
ONE = Processes()


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(precision_room, "bfloat16_on", lambda _: Bfloat16(request.param, "it says so"))
    return request.param


def test_auto_is_settled_by_what_the_machine_can(fast: bool) -> None:
    assert settle_precision(Config(amp="auto"), ONE).run.amp == ("on" if fast else "off")
    assert [settle_precision(Config(amp=amp), ONE).run.amp for amp in ("on", "off")] == ["on", "off"]


def test_one_slow_process_makes_all_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_room, "bfloat16_on", lambda _: Bfloat16(True, ""))
    monkeypatch.setattr(Processes, "any", lambda *_: True)  # another process says that it is slow
    assert settle_precision(Config(amp="auto"), ONE).run.amp == "off"


@pytest.mark.parametrize(
    ("amx", "avx", "ratio", "expected"),
    [
        (True, True, 0.1, Bfloat16(True, "the processor has AMX and avx512_bf16")),
        (False, True, 0.1, Bfloat16(True, "the processor has avx512_bf16")),
        (False, False, 2.0, Bfloat16(True, "a matrix product runs 2 times as fast as in float32")),
        (False, False, 1.1, Bfloat16(False, "a matrix product runs 1.1 times as fast as in float32")),
    ],
)
def test_a_capability_decides_and_else_a_measurement(
    amx: bool, avx: bool, ratio: float, expected: Bfloat16, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx)
    monkeypatch.setattr(precision_room, "speed_of_product", lambda: ratio)
    bfloat16_on.cache_clear()
    try:
        assert bfloat16_on("cpu") == expected
    finally:
        bfloat16_on.cache_clear()


def test_a_run_keeps_the_precision_in_which_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fast = [True]
    monkeypatch.setattr(precision_room, "bfloat16_on", lambda _: Bfloat16(fast[0], "no bfloat16"))
    monkeypatch.setattr("deepsup.trainer.runs._train.bfloat16_on", lambda _: Bfloat16(fast[0], "no bfloat16"))
    config = SMALL.replace(amp="auto")
    run = train(config.replace(limit_steps=2), tmp_path / "run")
    assert (run.config.run.amp, run.environment["precision"]) == ("on", "bfloat16")
    fast[0] = False  # another machine
    again = train(config, tmp_path / "run", resume=True)
    assert (again.config.run.amp, again.result["steps"]) == ("on", 4)
    assert "trains in bfloat16, which is slow here: no bfloat16; --amp off trains a new run in float32" in caplog.text
    assert with_precision(config, tmp_path).run.amp == "on"  # so do the other runs of a study
    assert with_precision(config, tmp_path / "elsewhere").run.amp == "off"


class Types(Callback):
    """The types of what a training keeps, and of what its objective gets."""

    def __init__(self) -> None:
        self.kept: set[torch.dtype] = set()
        self.scores: set[torch.dtype] = set()

    def started(self, training: Training) -> None:
        training.net.register_forward_hook(
            lambda *given: (
                self.scores.update(each.dtype for each in (given[2].scores, *given[2].companions.values())) and None
            )
        )

    def step_ended(self, training: Training) -> None:
        states = [each for state in training.optimizer.state.values() for each in state.values()]
        average = [] if training.average is None else training.average.state_dict().values()
        gradients = [each.grad for each in training.net.parameters() if each.grad is not None]
        for each in (*training.net.state_dict().values(), *gradients, *states, *average, training.sums):
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                self.kept.add(each.dtype)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_weights_statistics_gradients_and_scores_stay_in_float32(optimizer: str, tmp_path: Path) -> None:
    config = SMALL.replace(optimizer=optimizer, ema=0.9, clip_norm=1.0)
    run = train(config, tmp_path / "run", callbacks=[types := Types()])
    assert types.kept == {torch.float32, torch.float64}  # sums are in double precision
    assert types.scores == {torch.float32}
    assert {each.dtype for each in load_file(run.model).values()} <= {torch.float32, torch.int64}


@pytest.mark.parametrize("name", ["nin-mnist", "unet-small", "cnn", "fast"])
def test_the_trunk_computes_in_bfloat16_and_its_last_layer_does_not(name: str) -> None:
    options: dict[str, dict[str, Any]] = {"nin-mnist": {"width": 0.2}, "fast": {"widths": [8, 8]}}
    config = Config(network=name, network_options=options.get(name, {}), amp="on", taps=("network",))
    side = 64 if name == "unet-small" else 28
    net, types = build_net(config, 10, (1, side, side)), dict[str, torch.dtype]()
    for key, layer in net.trunk.named_modules():
        layer.register_forward_hook(lambda _layer, _given, out, key=key: types.__setitem__(key, out.dtype))
    with precision(config, net):
        output = net(torch.randn(2, 1, side, side))
    last = next(key for key, layer in net.trunk.named_modules() if layer is net.output_layer)
    weighted = [key for key, layer in net.trunk.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert types[last] == output.scores.dtype == torch.float32
    assert {types[key] for key in weighted if key != last} == {torch.bfloat16}
    # nothing of it is left behind
    assert all(not layer._forward_pre_hooks for layer in (net.output_layer, *net.heads.modules()))
    assert net(torch.randn(2, 1, side, side)).scores.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")


def test_a_layer_that_is_named_and_gives_scores_does_not_switch_bfloat16_off_behind_it() -> None:
    config = Config(
        network="nin-mnist", network_options={"width": 0.2}, amp="on", taps=("network",),
        full_precision=("conv2", "mlp3b"),
    )  # fmt: skip
    net, on, types = build_net(config, 10, (1, 28, 28)), dict[str, bool](), dict[str, torch.dtype]()
    assert net.output_layer is net.trunk.get_submodule("mlp3b")
    for name, layer in net.trunk.named_children():
        layer.register_forward_pre_hook(lambda *_, name=name: on.__setitem__(name, torch.is_autocast_enabled("cpu")))
        layer.register_forward_hook(lambda _layer, _given, out, name=name: types.__setitem__(name, out.dtype))
    with precision(config, net):
        net(torch.randn(2, 1, 28, 28))
        assert torch.is_autocast_enabled("cpu")
    assert all(on.values())  # when each layer is called, before its own hooks
    convolutions = {name: each for name, each in types.items() if name.startswith(("conv", "mlp"))}
    assert {name for name, each in convolutions.items() if each == torch.float32} == {"conv2", "mlp3b"}


class Grouped(nn.Sequential):
    """Convolutions that may be slower in bfloat16 beside one that is not, and one that is never called."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 8, 3, dilation=2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
        )  # fmt: skip
        self.unused = nn.ModuleDict({"conv": nn.Conv2d(8, 8, 3, groups=8)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in list(self)[:7]:
            x = layer(x)
        return x


def grouped() -> Any:
    return supervise(Grouped(), at=["1"], num_classes=10, example=torch.zeros(2, 1, 28, 28))


@pytest.mark.parametrize("slower", [("2",), ("2", "3"), ()])
def test_layers_that_are_slower_in_bfloat16_stay_in_float32(
    slower: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, asked = grouped(), []

    def measured(layer: nn.Module, x: torch.Tensor) -> bool:
        name = next(name for name, each in net.trunk.named_modules() if each is layer)
        asked.append((name, tuple(x.shape)))
        return name in slower

    monkeypatch.setattr(precision_room, "slower_in_bfloat16", measured)
    before, state = {name: each.clone() for name, each in net.state_dict().items()}, torch.get_rng_state()
    config = settle_layers(Config(amp="on"), net, (1, 28, 28), ONE)
    assert asked == [("2", (8, 8, 26, 26)), ("3", (8, 8, 24, 24))]  # in doubt, and called
    assert config.run.full_precision == (slower or ("none",))
    assert all(torch.equal(each, before[name]) for name, each in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    types = dict[str, torch.dtype]()
    for name in ("0", "2", "3"):
        layer = net.trunk.get_submodule(name)
        layer.register_forward_hook(lambda _layer, _given, out, name=name: types.__setitem__(name, out.dtype))
    with precision(config, net):
        net(torch.randn(2, 1, 28, 28))
    assert types == {name: torch.float32 if name in slower else torch.bfloat16 for name in ("0", "2", "3")}
    assert settle_layers(config, net, (1, 28, 28), ONE) is config  # settled once
    assert settle_layers(Config(amp="off"), net, (1, 28, 28), ONE).run.full_precision == ()


def test_what_is_in_doubt() -> None:
    plain = (nn.Conv2d(4, 4, 3), nn.Linear(4, 4), nn.Conv1d(4, 4, 3), nn.BatchNorm2d(4))
    doubtful = (nn.Conv2d(4, 4, 3, groups=4), nn.Conv3d(4, 4, 3, dilation=2), nn.ConvTranspose2d(4, 4, 2, stride=2))
    assert [precision_room.in_doubt(layer) for layer in (*plain, *doubtful)] == [False] * 4 + [True] * 3


def test_a_layer_that_is_made_slower_is_measured_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20 if torch.is_autocast_enabled("cpu") else 1):
                out = super().forward(x)
            return out

    layer, x = Slow(8, 8, 3, groups=4), torch.randn(8, 8, 16, 16)
    assert precision_room.slower_in_bfloat16(layer, x)
    assert layer.weight.grad is None
    assert times_as_fast(lambda: torch.ones(300, 300) @ torch.ones(300, 300), lambda: None) > 2


def test_a_layer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="full_precision=group9; did you mean 'group"):
        train(SMALL.replace(full_precision=("group9",)), tmp_path / "run")


def test_the_losses_in_both_precisions_agree(tmp_path: Path) -> None:
    losses = {
        amp: [record["loss"] for record in train(SMALL.replace(amp=amp, epochs=4), tmp_path / amp).metrics]
        for amp in ("on", "off")
    }
    assert losses["on"] != losses["off"]
    assert losses["on"] == pytest.approx(losses["off"], rel=0.02)


def test_a_net_trained_in_bfloat16_is_stripped_and_exported_as_any_other(tmp_path: Path) -> None:
    run = train(SMALL.replace(ema=0.9), tmp_path / "run")
    net, x = run.load(), torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        expected = net(x).scores
        plain = net.strip()
        assert expected.dtype == torch.float32
        assert torch.equal(plain(x), expected)
    assert set(load_file(run.model)) >= {f"net.trunk.{name}" for name in plain.state_dict()}
    for to in ("safetensors", "pt2"):
        assert export(run, tmp_path / f"net.{to}", to=to)
    program = torch.export.load(tmp_path / "net.pt2").module()
    images = torch.arange(2 * 784, dtype=torch.uint8).reshape(2, 1, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(program(images), plain(run.preprocess(images)))


def test_the_gate_decides_in_float32() -> None:
    """Terms that bfloat16 cannot tell from gamma are told from it: the loss is computed from scores in float32."""
    net = supervise(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), at=["0"], num_classes=3, example=torch.zeros(1, 4))
    config = Config(amp="on")
    with precision(config, net):
        output = net(torch.randn(5, 4))
    labels = torch.arange(5) % 3
    loss = Objective(net)(output, labels, progress=0.0).companion_losses["0"].item()
    for gamma, active in ((loss * (1 - 1e-5), True), (loss * (1 + 1e-5), False)):
        objective = Objective(net, gamma=gamma)
        assert bool(objective(output, labels, progress=0.0).active["0"]) is active


@pytest.mark.slow
def test_two_processes_train_the_same_net_in_bfloat16(tmp_path: Path) -> None:
    """No BatchNorm, no dropout: after 8 steps the weights agree as far as the precision of gradients allows."""
    config = Config(
        train_size=120, batch_size=30, epochs=2, lr=0.003, tensorboard=False, test=False, amp="on", network="cnn",
        network_options={"drop": 0.0}, clip_norm=1.0, ema=0.5,
    )  # fmt: skip
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    one, other = train(config, tmp_path / "one"), train(config.replace(amp="off"), tmp_path / "single")
    words = ["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "two")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "deepsup"]
    done = subprocess.run([*launcher, "train", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ours, theirs, single = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one", "single"))
    begun = load_file(train(config.replace(lr=0.0), tmp_path / "begun").model)

    def moved(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        names = [name for name in begun if begun[name].is_floating_point()]
        return torch.cat([(weights[name] - begun[name]).flatten() for name in names])

    assert (one.config.run.amp, other.config.run.amp) == ("on", "off")
    apart = (moved(ours) - moved(theirs)).norm() / moved(theirs).norm()
    assert apart < 0.02
    assert apart < (moved(single) - moved(theirs)).norm() / moved(theirs).norm()  # nearer than float32 is
