"""nn.TransformerEncoder with a padding mask: its fast path makes nested tensors, which layers with hooks refuse."""

import copy

import pytest
import torch
from nets import CLASSES, labels
from torch import Tensor, nn

from deepsup import Companion, Objective, supervise

# torch's own, of the plain model's fast path
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")


class Text(nn.Module):
    """Words, an encoder that knows which of them are padding, the mean of the others."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(8) if norm else None)
        self.fc = nn.Linear(8, CLASSES)
        self.tokens = torch.empty(0)

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:
        self.tokens = self.encoder(self.embed(words), src_key_padding_mask=padding)
        kept = (~padding)[..., None]
        scores: Tensor = self.fc((self.tokens * kept).sum(1) / kept.sum(1))
        return scores


def batch() -> tuple[Tensor, Tensor]:
    padding = torch.arange(7) >= torch.tensor([7, 5, 3, 1])[:, None]
    return torch.randint(20, (4, 7)), padding


@pytest.mark.parametrize(
    "taps", [["encoder.layers.0", "encoder.layers.1"], ["encoder.layers.1.linear1"], ["embed"], ["encoder"]]
)
@pytest.mark.parametrize("sized", ["by an example", "on the first forward"])
@pytest.mark.parametrize("norm", [False, True])
def test_scores_are_those_of_the_plain_model(taps: list[str], sized: str, norm: bool) -> None:
    model, example = Text(norm).eval(), batch()
    plain = copy.deepcopy(model)
    assert model.encoder.use_nested_tensor
    net = supervise(
        model, at=taps, num_classes=CLASSES, companion=Companion(pool="avg"),
        example=example if sized == "by an example" else None,
    )  # fmt: skip
    words, padding = batch()
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            expected, out = plain(words, padding), net(words, padding)
        torch.testing.assert_close(out.scores, expected)
        torch.testing.assert_close(model.tokens[~padding], plain.tokens[~padding])
        assert list(out.companions) == taps
    model.tokens = torch.empty(0)
    twin = copy.deepcopy(net)
    for stripped in (net.strip(), twin.strip()):
        assert stripped.encoder.use_nested_tensor  # the fast path is back
        assert torch.equal(stripped.eval()(words, padding), plain(words, padding))


def test_an_encoder_without_taps_keeps_its_fast_path() -> None:
    model = Text().eval()
    supervise(model, at=["embed"], num_classes=CLASSES, example=batch())
    assert model.encoder.use_nested_tensor


def test_an_encoder_whose_nested_tensors_were_off_stays_so() -> None:
    model = Text().eval()
    model.encoder.use_nested_tensor = False
    net = supervise(model, at=["encoder.layers.0"], num_classes=CLASSES, example=batch())
    assert not net.strip().encoder.use_nested_tensor


def test_what_is_refused_leaves_the_fast_path() -> None:
    model = Text()
    with pytest.raises(ValueError, match="returns the output itself"):
        supervise(model, at=["encoder.layers.0", "fc"], num_classes=CLASSES, example=batch())
    assert model.encoder.use_nested_tensor
    assert not any(module._forward_hooks for module in model.modules())


def test_auto_taps_and_a_training_step() -> None:
    net = supervise(Text(), num_classes=CLASSES, example=batch(), companion=Companion(pool="avg"))
    assert net.taps == ("encoder.layers.0", "encoder.layers.1")
    Objective(net, "softmax", schedule="constant")(net(*batch()), labels()).total.backward()
    assert all(p.grad is not None for p in net.parameters())
