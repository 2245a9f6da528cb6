"""A net that is dropped without strip() leaves the model as it was; the package is imported without the compiler."""

import copy
import gc
import subprocess
import sys

import torch
from torch import nn

from deepsup import supervise


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def hooks(trunk: nn.Module) -> int:
    return sum(len(layer._forward_hooks) for layer in trunk.modules())


def test_a_dropped_net_leaves_no_hooks() -> None:
    trunk, images = model(), torch.zeros(5, 4)
    expected = trunk(images)
    for _ in range(50):
        net = supervise(trunk, at=["0", "1"], num_classes=3, example=images)
        net(images).scores.sum().backward()
        del net
    gc.collect()
    assert hooks(trunk) == 0
    assert torch.equal(trunk(images), expected)


def test_dropping_one_net_leaves_the_others() -> None:
    trunk, images = model(), torch.zeros(5, 4)
    first = supervise(trunk, at=["0"], num_classes=3, example=images)
    second = supervise(trunk, at=["1"], num_classes=3, example=images)
    shallow = copy.copy(second)
    del first, shallow
    gc.collect()
    twin = copy.deepcopy(second)
    assert hooks(trunk) == 1
    assert second(images).companions.keys() == {"1"}
    del second
    gc.collect()
    assert hooks(trunk) == 0
    assert twin(images).companions.keys() == {"1"}
    assert hooks(twin.strip()) == 0


def test_a_dropped_net_gives_encoders_their_fast_path_back() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    trunk = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(24, 3))
    encoder = trunk[0]
    assert isinstance(encoder, nn.TransformerEncoder)
    assert encoder.use_nested_tensor
    net = supervise(trunk, at=["0.layers.0"], num_classes=3, example=torch.zeros(2, 3, 8))
    assert not encoder.use_nested_tensor
    del net
    gc.collect()
    assert encoder.use_nested_tensor


def test_importing_supervise_does_not_import_the_compiler() -> None:
    """It took 1.1 seconds and 860 modules above torch."""
    script = (
        "import sys, torch; before = set(sys.modules); from deepsup import supervise\n"
        "more = set(sys.modules) - before; print(len(more)); assert 'torch._dynamo' not in more"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
