"""Models that nobody here wrote, unmodified: ``at="auto"`` trains one step and strips to the bit."""

import copy

import pytest
import timm
import torch
import torchvision
from nets import LEARNED, objective_of
from torch import nn

from deepsup import supervise

CLASSES = 10
# name -> the input size (64 pixels where the model allows it) and the layers that "auto" must find
TORCHVISION: dict[str, tuple[int, tuple[str, ...]]] = {
    "resnet18": (64, ("relu", "layer1", "layer2", "layer3")),
    "vgg11_bn": (64, ("features.2", "features.6", "features.13", "features.20", "features.27", "features")),
    "densenet121": (64, ("features.relu0", "features.denseblock1", "features.denseblock2", "features.denseblock3")),
    "mobilenet_v3_small": (64, ("features.0", "features.1", "features.3", "features.8")),
    "convnext_tiny": (64, ("features.1", "features.3", "features.5")),
    "efficientnet_b0": (64, ("features.1", "features.2", "features.3", "features.5")),
    "regnet_y_400mf": (64, ("stem", "trunk_output.block1", "trunk_output.block2", "trunk_output.block3")),
    "googlenet": (64, ("conv1", "conv3", "inception3b", "inception4e")),
    "squeezenet1_1": (64, ("features.1", "features.4", "features.7")),
    "shufflenet_v2_x0_5": (64, ("conv1", "maxpool", "stage2", "stage3")),
    "swin_t": (64, ("features.1", "features.3", "features.5")),
}
TIMM: dict[str, tuple[int, tuple[str, ...]]] = {
    "resnet10t": (64, ("act1", "layer1", "layer2", "layer3")),
    "mobilenetv3_small_050": (64, ("bn1", "blocks.0", "blocks.1", "blocks.3")),
    "convnext_atto": (64, ("stages.0", "stages.1", "stages.2")),
    "efficientnet_lite0": (64, ("blocks.0", "blocks.1", "blocks.2", "blocks.4")),
    "regnetx_002": (64, ("stem", "s1", "s2", "s3")),
    "vit_tiny_patch16_224": (224, ("blocks.3", "blocks.7")),
    "mixer_s32_224": (224, ("blocks.2", "blocks.5")),
    "repvgg_a0": (64, ("stem", "stages.0", "stages.1", "stages.2")),
    "pvt_v2_b0": (64, ("stages.0", "stages.1", "stages.2")),
}


def build(source: str, name: str) -> nn.Module:
    if source == "timm":
        model: nn.Module = timm.create_model(name, num_classes=CLASSES)
        return model
    more = {"init_weights": True} if name == "googlenet" else {}
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **more)


@pytest.mark.parametrize(
    ("source", "name"), [("torchvision", name) for name in TORCHVISION] + [("timm", name) for name in TIMM]
)
def test_one_step_and_back(source: str, name: str) -> None:
    size, taps = (TORCHVISION if source == "torchvision" else TIMM)[name]
    model = build(source, name)
    cls, keys = type(model), list(model.state_dict())
    x, y = torch.randn(2, 3, size, size), torch.tensor([3, 7])
    net = supervise(model, at="auto", num_classes=CLASSES, example=x, companion=LEARNED)
    assert net.taps == taps
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    before = {p: p.detach().clone() for name in taps for p in net.head(name).classifier.parameters()}
    first = next(p for p in model.parameters() if p.ndim > 1)
    weight = first.detach().clone()
    loss = objective_of(net, alpha=0.3)(net(x), y)
    loss.total.backward()
    optimizer.step()
    assert loss.total.isfinite()
    assert all(loss.active.values())
    assert not torch.equal(first, weight)
    assert all(not torch.equal(p, old) for p, old in before.items())

    net.eval()
    with torch.no_grad():
        supervised = net(x).scores
        twin = copy.deepcopy(net).strip()
        plain = net.strip()
        assert plain is model
        assert type(plain) is cls
        assert list(plain.state_dict()) == keys
        assert torch.equal(plain(x), supervised)
        assert torch.equal(twin(x), supervised)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in [*plain.modules(), *twin.modules()])
