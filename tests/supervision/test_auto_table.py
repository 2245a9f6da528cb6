"""``at="auto"`` on a table of architectures: the taps that somebody who knows each architecture would choose."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import segmentation_models_pytorch as smp
import timm
import torch
import torchvision
import transformers as hf
from auto_nets import (
    WIDTH,
    WORDS,
    CellLoop,
    MeanWords,
    NamedPerceptron,
    NamedRecurrent,
    OneBlock,
    Points,
    Recurrent,
    ResNet1d,
    SameBlock,
    SignalRecurrent,
    TextConvolutions,
    TextReader,
    Transformer,
    TwoBlocks,
    causal,
    one_hidden_convolution,
    perceptron,
    plain_signals,
    residual_perceptron,
    unpadded,
)
from dense_nets import UNet
from monai.networks import nets as monai
from nets import CLASSES
from torch import Tensor, nn
from torchvision.models import segmentation

from deepsup import supervise
from deepsup.errors import SupervisionError

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:monai",
    "ignore::FutureWarning:monai",
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",  # by DeBERTa
)


@dataclass(frozen=True)
class Row:
    """A model, a batch of two, and its taps; none if "auto" must refuse the model with the names it could tap."""

    build: Callable[[], nn.Module]
    example: Any
    taps: str = ""
    tappable: str = ""


def pixels(side: int = 64, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, side, side)


def words(length: int = 9) -> Tensor:
    return torch.randint(2, WORDS, (2, length))


def vision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **settings)


def from_timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=CLASSES, **settings)


def from_hf(name: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(hf, name)(getattr(hf, config)(num_labels=CLASSES, **settings))


def text(name: str, layers: int = 3, **settings: Any) -> Callable[[], nn.Module]:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2}
    more = {"intermediate_size": 32, "max_position_embeddings": 64, "pad_token_id": 1}
    return from_hf(f"{name}ForSequenceClassification", f"{name}Config", **(sizes | more | settings))


def distilbert(layers: int) -> Callable[[], nn.Module]:
    sizes = {"vocab_size": WORDS, "dim": 16, "n_layers": layers, "n_heads": 2, "hidden_dim": 32}
    return from_hf("DistilBertForSequenceClassification", "DistilBertConfig", **sizes)


def speech(name: str) -> Callable[[], nn.Module]:
    convs = {"conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3)}
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    more = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16}
    return from_hf(f"{name}ForSequenceClassification", f"{name}Config", **convs, **sizes, **more)


class T5Classifier(nn.Module):
    """The encoder of T5, whose blocks return tuples, and a linear layer on the mean token."""

    def __init__(self) -> None:
        super().__init__()
        config = hf.T5Config(vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2)
        self.t5, self.fc = hf.T5EncoderModel(config), nn.Linear(16, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.t5(words).last_hidden_state.mean(1))
        return scores


def segmenter(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(smp, name)("resnet18", encoder_weights=None, classes=CLASSES, **settings)


def medical(name: str, dims: int = 2, **settings: Any) -> Callable[[], nn.Module]:
    shape = {"spatial_dims": dims, "in_channels": 1, "out_channels": CLASSES}
    return lambda: getattr(monai, name)(**shape, **settings)


PATCHES = {"image_size": 32, "patch_size": 8, "num_layers": 4, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
SMALL_VIT = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}

RECURRENT = {
    "LSTM": Row(Recurrent, words(), "rnns.0"),
    "LSTM of two layers": Row(lambda: Recurrent(num_layers=2), words(), "rnns.0"),
    "LSTM both ways": Row(lambda: Recurrent(bidirectional=True), words(), "rnns.0"),
    "GRU": Row(lambda: Recurrent(nn.GRU), words(), "rnns.0"),
    "RNN": Row(lambda: Recurrent(nn.RNN), words(), "rnns.0"),
    "two LSTMs": Row(lambda: Recurrent(modules=2), words(), "rnns.0"),
    "three GRUs": Row(lambda: Recurrent(nn.GRU, modules=3), words(), "rnns.0 rnns.1"),
    "two LSTMs by name": Row(NamedRecurrent, words(), "lstm1"),
    "convolution and LSTM": Row(SignalRecurrent, torch.randn(2, 2, 20), "lstm"),
    "CRNN, small LSTM": Row(lambda: TextReader(16), torch.randn(2, 1, 16, 32), "conv1 conv2"),
    "CRNN, large LSTM": Row(lambda: TextReader(256), torch.randn(2, 1, 16, 32), "lstm"),
    "sequence-first LSTM": Row(lambda: Recurrent(batch_first=False), words(), tappable="embedding"),
    "sequence as long as the batch": Row(lambda: Recurrent(batch_first=False), words(1), tappable="embedding"),
    "cell in a loop": Row(CellLoop, words(), tappable="words"),
}
SEQUENCES = {
    "transformer, 1 layer": Row(lambda: Transformer(1), words(), "encoder.layers.0"),
    "transformer, 2 layers": Row(lambda: Transformer(2), words(), "encoder.layers.0"),
    "transformer, 6 layers": Row(lambda: Transformer(6), words(), "encoder.layers.1 encoder.layers.3"),
    "sequence-first transformer": Row(lambda: Transformer(3, False), words(), tappable="embedding, norm"),
    "sequence-first words": Row(lambda: Transformer(3, False, False), words().T.contiguous(), tappable="norm"),
    "transformer of one own block": Row(OneBlock, words(), "block"),
    "transformer of sequentials": Row(TwoBlocks, torch.randn(2, 7, 6), "body.0"),
    "universal transformer": Row(SameBlock, torch.randn(2, 7, 6), tappable="enter"),
    "TextCNN": Row(TextConvolutions, words(), tappable="embedding, convs.0, convs.1, convs.2"),
    "VGG-1d": Row(plain_signals, torch.randn(2, 2, 32), "5 12"),
    "ResNet-1d": Row(ResNet1d, torch.randn(2, 2, 32), "layer1 layer2 layer3"),
    "TCN": Row(causal, torch.randn(2, 2, 32), "1.1 1.3"),
    "PointNet": Row(Points, torch.randn(2, 3, 40), "shared.2 shared.5"),
}
VECTORS = {
    "MLP, 1 hidden": Row(lambda: perceptron(1, nn.ReLU), torch.randn(2, WIDTH), "1"),
    "MLP, 2 hidden": Row(lambda: perceptron(2, nn.ReLU), torch.randn(2, WIDTH), "1"),
    "MLP, 3 hidden": Row(lambda: perceptron(3, nn.Tanh), torch.randn(2, WIDTH), "1 3"),
    "MLP with norms and dropout": Row(
        lambda: perceptron(6, lambda: nn.BatchNorm1d(WIDTH), nn.ReLU, nn.Dropout), torch.randn(2, WIDTH), "6 14"
    ),
    "MLP by name": Row(NamedPerceptron, torch.randn(2, WIDTH), "fc1 fc2"),
    "residual MLP": Row(residual_perceptron, torch.randn(2, 8), "2 4"),
    "mean of words": Row(lambda: MeanWords(1), words(), "fc.1"),
    "fastText": Row(lambda: MeanWords(0), words(), tappable="words"),
}
TORCHVISION = {
    "alexnet": Row(vision("alexnet"), pixels(224), "features.1 features.4 features.11"),
    "vgg11": Row(vision("vgg11"), pixels(224), "features.1 features.4 features.9 features.14 features.19"),
    "resnet18": Row(vision("resnet18"), pixels(), "relu layer1 layer2 layer3"),
    "resnext50": Row(vision("resnext50_32x4d"), pixels(), "relu layer1 layer2 layer3"),
    "densenet121": Row(
        vision("densenet121"), pixels(), "features.relu0 features.denseblock1 features.denseblock2 features.denseblock3"
    ),
    "mobilenet_v2": Row(vision("mobilenet_v2"), pixels(), "features.1 features.3 features.6 features.13"),
    "mobilenet_v3_large": Row(vision("mobilenet_v3_large"), pixels(), "features.1 features.3 features.6 features.12"),
    "mnasnet": Row(vision("mnasnet0_5"), pixels(), "layers.7 layers.8 layers.9 layers.11"),
    "efficientnet_v2_s": Row(vision("efficientnet_v2_s"), pixels(), "features.1 features.2 features.3 features.5"),
    "regnet_x": Row(
        vision("regnet_x_400mf"), pixels(), "stem trunk_output.block1 trunk_output.block2 trunk_output.block3"
    ),
    "googlenet": Row(
        vision("googlenet", init_weights=False, aux_logits=False), pixels(), "conv1 conv3 inception3b inception4e"
    ),
    "inception_v3": Row(
        vision("inception_v3", init_weights=False, aux_logits=False),
        pixels(128),
        "Conv2d_2b_3x3 Conv2d_4a_3x3 Mixed_5d Mixed_6e",
    ),
    "squeezenet1_0": Row(vision("squeezenet1_0"), pixels(), "features.1 features.5 features.10"),
    "shufflenet": Row(vision("shufflenet_v2_x0_5"), pixels(), "conv1 maxpool stage2 stage3"),
    "swin_v2_t": Row(vision("swin_v2_t"), pixels(), "features.1 features.3 features.5"),
    "vit": Row(
        lambda: torchvision.models.VisionTransformer(**PATCHES, num_classes=CLASSES),
        pixels(32),
        "encoder.layers.encoder_layer_1 encoder.layers.encoder_layer_2",
    ),
    "maxvit": Row(
        lambda: torchvision.models.MaxVit((64, 64), 24, 4, [24, 40, 48], [1, 1, 1], 8, 0.0, num_classes=CLASSES),
        pixels(),
        "stem blocks.0 blocks.1",
    ),
    "r3d_18": Row(
        lambda: torchvision.models.video.r3d_18(num_classes=CLASSES),
        torch.randn(2, 3, 8, 32, 32),
        "layer1 layer2 layer3",
    ),
    "convolutions without padding": Row(unpadded, pixels(36), "3 8"),
    "one convolution": Row(one_hidden_convolution, pixels(32), "1"),
}
STAGES = "stages.0 stages.1 stages.2"
TIMM = {
    "resnet10t": Row(from_timm("resnet10t"), pixels(), "act1 layer1 layer2 layer3"),
    "convnext": Row(from_timm("convnext_atto"), pixels(), STAGES),
    "poolformer": Row(from_timm("poolformer_s12"), pixels(), STAGES),
    "pvt_v2": Row(from_timm("pvt_v2_b0"), pixels(), STAGES),
    "edgenext": Row(from_timm("edgenext_xx_small"), pixels(), STAGES),
    "efficientformer": Row(from_timm("efficientformer_l1"), pixels(224), STAGES),
    "fastvit": Row(from_timm("fastvit_t8"), pixels(), f"stem.0 {STAGES}"),
    "mobilevit": Row(from_timm("mobilevit_xxs"), pixels(), f"{STAGES} stages.3"),
    "ghostnet": Row(from_timm("ghostnet_050"), pixels(), "blocks.0 blocks.2 blocks.4 blocks.6"),
    "vit": Row(from_timm("vit_tiny_patch16_224", img_size=64), pixels(), "blocks.3 blocks.7"),
    "deit": Row(from_timm("deit_tiny_patch16_224", img_size=64, depth=6), pixels(), "blocks.1 blocks.3"),
    "deit, 2 blocks": Row(from_timm("deit_tiny_patch16_224", img_size=64, depth=2), pixels(), "blocks.0"),
    "beit": Row(
        from_timm("beit_base_patch16_224", img_size=64, embed_dim=32, num_heads=2, depth=6),
        pixels(),
        "blocks.1 blocks.3",
    ),
    "eva02": Row(from_timm("eva02_tiny_patch14_224", img_size=56, depth=6), pixels(56), "blocks.1 blocks.3"),
    "cait": Row(from_timm("cait_xxs24_224", img_size=64, depth=6), pixels(), "blocks.1 blocks.3"),
    "mixer": Row(from_timm("mixer_s32_224", img_size=64), pixels(), "blocks.2 blocks.5"),
    "resmlp": Row(from_timm("resmlp_12_224", img_size=64), pixels(), "blocks.3 blocks.7"),
    "gmlp": Row(from_timm("gmlp_ti16_224", img_size=64), pixels(), "blocks.9 blocks.19"),
    "convmixer": Row(lambda: timm.models.ConvMixer(32, 6, num_classes=CLASSES), pixels(), "blocks.1 blocks.3"),
    "xcit": Row(from_timm("xcit_nano_12_p16_224"), pixels(), "blocks.3 blocks.7"),
    "levit": Row(from_timm("levit_128s", img_size=128), pixels(128), "stages.0 stages.1"),
    "twins": Row(
        from_timm("twins_pcpvt_small", img_size=64, embed_dims=(16, 32, 64, 64), num_heads=(1, 2, 2, 2)),
        pixels(),
        "blocks.0.2 blocks.1.3 blocks.2.5",
    ),
    "hiera": Row(from_timm("hiera_tiny_224", embed_dim=16, num_heads=1), pixels(224), "blocks.0 blocks.2 blocks.9"),
    "swin": Row(
        from_timm("swin_tiny_patch4_window7_224", img_size=128, window_size=4, embed_dim=24),
        pixels(128),
        "layers.0 layers.1 layers.2",
    ),
}
TRANSFORMERS = {
    "bert": Row(text("Bert"), words(), "bert.encoder.layer.0 bert.encoder.layer.1"),
    "bert, 1 layer": Row(text("Bert", 1), words(), "bert.encoder.layer.0"),
    "bert, 2 layers": Row(text("Bert", 2), words(), "bert.encoder.layer.0"),
    "bert, 12 layers": Row(text("Bert", 12), words(), "bert.encoder.layer.3 bert.encoder.layer.7"),
    "roberta": Row(text("Roberta"), words(), "roberta.encoder.layer.0 roberta.encoder.layer.1"),
    "electra": Row(
        text("Electra", embedding_size=16), words(), "electra.encoder.layer.0 electra.encoder.layer.1"
    ),
    "deberta": Row(text("DebertaV2"), words(), "deberta.encoder.layer.0 deberta.encoder.layer.1"),
    "mpnet": Row(text("MPNet"), words(), "mpnet.encoder.layer.0 mpnet.encoder.layer.1"),
    "fnet": Row(text("FNet"), words(), "fnet.encoder.layer.0 fnet.encoder.layer.1"),
    "modernbert": Row(text("ModernBert"), words(), "model.layers.0 model.layers.1"),
    "llama": Row(text("Llama", num_key_value_heads=2), words(), "model.layers.0 model.layers.1"),
    "distilbert, 2 layers": Row(distilbert(2), words(), "distilbert.transformer.layer.0"),
    "distilbert, 3 layers": Row(
        distilbert(3), words(), "distilbert.transformer.layer.0 distilbert.transformer.layer.1"
    ),
    "distilbert, 6 layers": Row(
        distilbert(6), words(), "distilbert.transformer.layer.1 distilbert.transformer.layer.3"
    ),
    "albert": Row(text("Albert", embedding_size=8), words(), tappable="albert.embeddings"),
    "xlnet": Row(
        from_hf(
            "XLNetForSequenceClassification", "XLNetConfig",
            vocab_size=WORDS, d_model=16, n_layer=3, n_head=2, d_inner=32,
        ),
        words(),
        tappable="sequence_summary",
    ),
    "gpt2": Row(
        from_hf(
            "GPT2ForSequenceClassification", "GPT2Config",
            vocab_size=WORDS, n_embd=16, n_layer=3, n_head=2, pad_token_id=1,
        ),
        words(),
        "transformer.h.0 transformer.h.1",
    ),
    "t5 encoder": Row(T5Classifier, words(), "t5.encoder.block.0 t5.encoder.block.1"),
    "wav2vec2": Row(speech("Wav2Vec2"), torch.randn(2, 800), "wav2vec2.encoder.layers.0 wav2vec2.encoder.layers.1"),
    "hubert": Row(speech("Hubert"), torch.randn(2, 800), "hubert.encoder.layers.0 hubert.encoder.layers.1"),
    "vit of transformers": Row(
        from_hf("ViTForImageClassification", "ViTConfig", image_size=32, patch_size=8, **SMALL_VIT),
        pixels(32),
        "vit.layers.0 vit.layers.1",
    ),
    "swin of transformers": Row(
        from_hf(
            "SwinForImageClassification", "SwinConfig", image_size=64, embed_dim=8, depths=[1, 1, 1, 1],
            num_heads=[1, 1, 2, 2], window_size=2,
        ),
        pixels(),
        "swin.encoder.layers.0 swin.encoder.layers.1",
    ),
    "resnet of transformers": Row(
        from_hf(
            "ResNetForImageClassification", "ResNetConfig",
            embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1] * 4,
        ),
        pixels(),
        "resnet.encoder.stages.0 resnet.encoder.stages.1 resnet.encoder.stages.2",
    ),
}  # fmt: skip
DENSE = {
    "U-Net": Row(UNet, pixels(32, 1), "up3 up2"),
    "U-Net on signals": Row(lambda: UNet(1), torch.randn(2, 1, 32), "up3 up2"),
    "U-Net of smp": Row(segmenter("Unet"), pixels(), " ".join(f"decoder.blocks.{i}" for i in range(4))),
    "Linknet of smp": Row(segmenter("Linknet"), pixels(), " ".join(f"decoder.blocks.{i}" for i in range(4))),
    "fcn": Row(
        lambda: segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=CLASSES),
        pixels(),
        "backbone.relu backbone.layer1",
    ),
    "U-Net of monai": Row(
        medical("UNet", channels=(4, 8, 16, 32), strides=(2, 2, 2)), pixels(32, 1), "model.1.submodule.1 model.1"
    ),
    "DynUNet of monai": Row(
        medical(
            "DynUNet", kernel_size=[3] * 4, strides=[1, 2, 2, 2], upsample_kernel_size=[2] * 3, filters=[4, 8, 16, 32]
        ),
        pixels(32, 1),
        "upsamples.0 upsamples.1",
    ),
    "BasicUNet of monai": Row(
        medical("BasicUNet", features=(4, 4, 8, 8, 16, 4)), pixels(32, 1), "upcat_4 upcat_3 upcat_2"
    ),
    "SegResNet of monai": Row(medical("SegResNet"), pixels(32, 1), "up_layers.0 up_layers.1"),
    "VNet of monai": Row(medical("VNet"), pixels(32, 1), "up_tr256 up_tr128 up_tr64"),
    "DenseNet of monai on volumes": Row(
        medical("DenseNet121", 3, init_features=8, growth_rate=4, block_config=(2, 2, 2, 2)),
        torch.randn(2, 1, 32, 32, 32),
        "features.relu0 features.denseblock1 features.denseblock2 features.denseblock3",
    ),
}
TABLE = RECURRENT | SEQUENCES | VECTORS
TABLE |= {f"torchvision: {name}": row for name, row in TORCHVISION.items()}
TABLE |= {f"timm: {name}": row for name, row in TIMM.items()}
TABLE |= {f"transformers: {name}": row for name, row in TRANSFORMERS.items()}
TABLE |= {f"dense: {name}": row for name, row in DENSE.items()}
TAPPED = [name for name, row in TABLE.items() if row.taps]


@pytest.mark.parametrize("name", TAPPED)
def test_the_taps_of_an_architecture_and_their_scores(name: str) -> None:
    row = TABLE[name]
    model = row.build().eval()
    net = supervise(model, num_classes=CLASSES, example=row.example[:1])
    assert " ".join(net.taps) == row.taps
    with torch.no_grad():
        out = net(row.example)
    assert out.scores.shape[:2] == (2, CLASSES)
    for scores in out.companions.values():
        assert scores.shape[:2] == (2, CLASSES)
        assert scores.ndim == out.scores.ndim


@pytest.mark.parametrize("name", [name for name in TABLE if name not in TAPPED])
def test_an_architecture_without_sensible_taps(name: str) -> None:
    row = TABLE[name]
    with pytest.raises(SupervisionError, match=r"finds no hidden layer .* can be tapped$") as caught:
        supervise(row.build(), num_classes=CLASSES, example=row.example)
    assert f"at=[...]: {row.tappable}" in str(caught.value)
