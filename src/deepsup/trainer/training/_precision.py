"""A config and a machine -> the precision of a run, float32 or bfloat16, and the layers that stay in float32.

bfloat16 has the range of float32 and 8 bits of precision. Weights, losses, the gate, the statistics of norm layers, the
optimizer's state, and the layers that give scores (unless the net is compiled) are float32 in either.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepsup.errors import ConfigError, SupervisionError, nearest
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.training._build import device_of
from deepsup.trainer.training._distributed import Processes

BATCH = 8
"""Images on which a layer is measured."""
CLEARLY = 1.2
"""How many times as fast something must be to count as faster: timings vary."""


class Bfloat16(NamedTuple):
    """Whether a device is faster in bfloat16 than in float32, and what tells."""

    fast: bool
    why: str


def settle_precision(config: Config, processes: Processes) -> Config:
    """Return the config with ``amp`` on or off: under auto on where all processes' devices are fast in bfloat16."""
    if config.run.amp != "auto":
        return config
    slow = processes.any(not bfloat16_on(device_of(config).type).fast)
    return config.replace(amp="off" if slow else "on")


@cache
def bfloat16_on(device: str) -> Bfloat16:
    """Return whether a type of device is fast in bfloat16: by what it says it can, or by a measured product."""
    if device == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
        return Bfloat16(able, f"the GPU {'computes' if able else 'does not compute'} in bfloat16")
    able_to = {"AMX": torch.cpu._is_amx_tile_supported, "avx512_bf16": torch.cpu._is_avx512_bf16_supported}
    names = [name for name, supported in able_to.items() if supported()]
    if names:
        return Bfloat16(True, f"the processor has {' and '.join(names)}")
    ratio = speed_of_product()
    return Bfloat16(ratio > CLEARLY, f"a matrix product runs {ratio:.2g} times as fast as in float32")


def speed_of_product() -> float:
    """Return how many times as fast a matrix product is in bfloat16 as in float32."""
    single = torch.ones(256, 256)
    half = single.bfloat16()
    return times_as_fast(lambda: single @ single, lambda: half @ half)


def times_as_fast(slow: Callable[[], object], fast: Callable[[], object], rounds: int = 5) -> float:
    """Return the ratio of the shortest times of two functions, called in turn; the first calls do not count."""
    best = [float("inf")] * 2
    for count in range(rounds + 1):
        for place, call in enumerate((slow, fast)):
            began = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - began) if count else best[place]
    return best[0] / best[1]


def precision_of(config: Config) -> str:
    assert config.run.amp != "auto", "it is settled when the run begins"
    return "bfloat16" if config.run.amp == "on" else "float32"


def settle_layers(config: Config, net: DeeplySupervised, shape: Sequence[int], processes: Processes) -> Config:
    """Return the config with the layers that stay in float32 named, those that are slower in bfloat16 in any process.

    In doubt are convolutions in groups, with dilation, or transposed: on some processors they have no kernel for
    bfloat16, and the first two run 4 to 16 times slower (torch issue 183815). They are measured on images [C,H,W] of
    the size of the training images.
    """
    if config.run.amp != "on" or config.run.full_precision:
        return config
    doubtful = {name: layer for name, layer in net.trunk.named_modules() if in_doubt(layer)}
    if not doubtful or config.run.compile:
        return config
    inputs = inputs_of(net.trunk, doubtful, shape)
    slower = torch.tensor([float(slower_in_bfloat16(doubtful[name], x)) for name, x in inputs.items()])
    layers = [name for name, flag in zip(inputs, processes.sum(slower).tolist(), strict=True) if flag]
    return config.replace(full_precision=layers or ("none",))


def in_doubt(layer: nn.Module) -> bool:
    """Whether a layer may be slower in bfloat16 although the processor is fast in it."""
    if isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return True
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return False
    return layer.groups > 1 or set(layer.dilation) != {1}


@torch.no_grad()
def inputs_of(trunk: nn.Module, layers: Mapping[str, nn.Module], shape: Sequence[int]) -> dict[str, Tensor]:
    """Return what each layer gets when the trunk sees a batch of images [C,H,W]; those that it does not call get none.

    Nothing else changes: neither random numbers nor the statistics of norm layers.
    """
    seen: dict[str, Tensor] = {}

    def note(name: str, given: Sequence[Tensor]) -> None:
        seen.setdefault(name, given[0].detach())

    handles = [
        layer.register_forward_pre_hook(lambda _, given, name=name: note(name, given)) for name, layer in layers.items()
    ]
    device, training = next(trunk.parameters()).device, trunk.training
    try:
        with torch.random.fork_rng():
            trunk.eval()(torch.ones(BATCH, *shape, device=device).contiguous(memory_format=torch.channels_last))
    finally:
        trunk.train(training)
        for handle in handles:
            handle.remove()
    return seen


def slower_in_bfloat16(layer: nn.Module, x: Tensor) -> bool:
    """Whether a forward and a backward pass of a layer take longer in bfloat16; its own gradients stay as they are."""
    layer = copy.deepcopy(layer)

    def step(dtype: torch.dtype) -> None:
        given = x.to(dtype).requires_grad_()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            layer(given).sum().backward()

    return times_as_fast(lambda: step(torch.float32), lambda: step(torch.bfloat16)) < 1 / CLEARLY


@contextmanager
def precision(config: Config, net: DeeplySupervised) -> Iterator[None]:
    """Compute in the config's precision within this block: the net's forward pass, nothing else, belongs in it."""
    device = next(net.parameters()).device.type
    if precision_of(config) == "float32":
        yield
        return
    layers = [layer_named(net.trunk, name) for name in config.run.full_precision if name != "none"]
    layers += [] if config.run.compile else classifiers(net)  # hooks that come and go make it compile at every step
    with torch.autocast(device, torch.bfloat16), ExitStack() as hooks:
        for place, layer in enumerate(layers):
            if all(layer is not each for each in layers[:place]):  # twice would leave autocast off behind it
                hooks.enter_context(in_float32(layer, device))
        yield


def classifiers(net: DeeplySupervised) -> list[nn.Module]:
    """Return the layers that give scores, as far as they are known: the trunk's last one and the companions'."""
    layers: list[Any] = []
    with suppress(SupervisionError):
        layers.append(net.output_layer)
    layers += [net.classifier(name) for name in net.taps]
    return [layer for layer in layers if isinstance(layer, nn.Module)]


def layer_named(trunk: nn.Module, name: str) -> nn.Module:
    layers: dict[str, nn.Module] = dict(trunk.named_modules())
    if name not in layers:
        raise ConfigError(f"full_precision={name}; {nearest(name, [each for each in layers if each])}")
    return layers[name]


@contextmanager
def in_float32(layer: nn.Module, device: str) -> Iterator[None]:
    """Compute one layer in float32 within this block, though autocast is on."""
    off = torch.autocast(device, enabled=False)

    def before(_layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        off.__enter__()  # type: ignore[no-untyped-call] # torch leaves it untyped
        return tuple(each.float() if isinstance(each, Tensor) else each for each in given)

    def after(*_: Any) -> None:
        off.__exit__(None, None, None)

    handles = layer.register_forward_pre_hook(before), layer.register_forward_hook(after, always_call=True)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
