"""Architectures of Hugging Face, from tiny configs: supervised, stepped and stripped bit for bit.

B batch, L tokens, K classes.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from deepsup import Companion, DeepsupError, Objective, supervise

WORDS = 50
SMALL = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
CODER = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 4, "encoder_attention_heads": 2, "encoder_ffn_dim": 32,
         "decoder_attention_heads": 2, "decoder_ffn_dim": 32}  # fmt: skip


def words(length: int = 7) -> Tensor:
    return torch.randint(4, WORDS, (2, length), generator=torch.Generator().manual_seed(0))


def made(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        built: nn.Module = getattr(hf, model)(getattr(hf, config)(**settings)).eval()
        return built

    return build


def word_model(model: str, **settings: Any) -> Callable[[], nn.Module]:
    config = {"CausalLM": "Config", "MaskedLM": "Config", "TokenClassification": "Config"}
    name, _, kind = model.partition("For")
    return made(model, name + config[kind], **({"vocab_size": WORDS} | SMALL | settings))


TEXT = {"input_ids": words()}
BOTH = {"input_ids": words(), "decoder_input_ids": words(5)}
RESNET: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
ROWS: dict[str, tuple[Callable[[], nn.Module], dict[str, Tensor], str]] = {
    "BERT": (word_model("BertForMaskedLM"), TEXT, "bert.encoder.layer.1 bert.encoder.layer.2"),
    "BERT, tags": (word_model("BertForTokenClassification", num_labels=5), TEXT,
                   "bert.encoder.layer.1 bert.encoder.layer.2"),
    "GPT-2": (made("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_embd=16, n_layer=4, n_head=2, **ENDS), TEXT,
              "transformer.h.1 transformer.h.2"),
    "Llama": (word_model("LlamaForCausalLM", num_key_value_heads=2), TEXT, "model.layers.1 model.layers.2"),
    "Gemma 2": (word_model("Gemma2ForCausalLM", num_key_value_heads=2, head_dim=8), TEXT,
                "model.layers.1 model.layers.2"),
    "Mixtral": (word_model("MixtralForCausalLM", num_key_value_heads=2, num_local_experts=3), TEXT,
                "model.layers.1 model.layers.2"),
    "Pythia": (word_model("GPTNeoXForCausalLM"), TEXT, "gpt_neox.layers.1 gpt_neox.layers.2"),
    "ModernBERT": (word_model("ModernBertForMaskedLM", cls_token_id=0, sep_token_id=0, **ENDS), TEXT,
                   "model.layers.1 model.layers.2"),
    "T5": (made("T5ForConditionalGeneration", "T5Config", vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=3,
                num_decoder_layers=4, num_heads=2), BOTH, "decoder.block.1 decoder.block.2"),
    "BART": (made("BartForConditionalGeneration", "BartConfig", vocab_size=WORDS, **CODER), BOTH,
             "model.decoder.layers.1 model.decoder.layers.2"),
    "Whisper": (made("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=WORDS, num_mel_bins=8,
                     max_source_positions=10, decoder_start_token_id=0, **CODER, **ENDS),
                {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": words(5)},
                "model.decoder.layers.1 model.decoder.layers.2"),
    "Mamba": (made("MambaForCausalLM", "MambaConfig", vocab_size=WORDS, hidden_size=16, num_hidden_layers=4,
                   state_size=4), TEXT, "backbone.layers.1 backbone.layers.2"),
    "ViT": (made("ViTForImageClassification", "ViTConfig", image_size=16, patch_size=4, num_labels=5, **SMALL),
            {"pixel_values": torch.randn(2, 3, 16, 16)}, "vit.layers.1 vit.layers.2"),
    "DETR": (made("DetrForObjectDetection", "DetrConfig", use_timm_backbone=False, use_pretrained_backbone=False,
                  backbone=None, backbone_config=hf.ResNetConfig(out_features=["stage2"], **RESNET), num_queries=6,
                  num_labels=4, **CODER),
             {"pixel_values": torch.randn(2, 3, 32, 32)}, "model.decoder.layers.1 model.decoder.layers.2"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", ["linear", "output"])
@pytest.mark.parametrize("name", ROWS)
def test_supervised_stepped_and_stripped(name: str, head: Any) -> None:
    build, inputs, taps = ROWS[name]
    model = build()
    plain = copy.deepcopy(model)
    expected = plain(**inputs).logits.detach()  # with gradients on, as below: T5 rounds differently without
    classes = expected.shape[-1]
    net = supervise(model, num_classes=classes, example=inputs, companion=Companion(head=head))
    assert net.taps == tuple(taps.split())
    assert ([*net.heads.parameters()] == []) == (head == "output")
    out = net(**inputs)
    assert torch.equal(out.scores, expected)
    labels = torch.randint(0, classes, out.scores.shape[:-1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    Objective(net, schedule="constant")(out, labels).total.backward()
    net.load_state_dict(net.state_dict())
    stripped = net.strip()
    assert torch.equal(stripped(**inputs).logits, expected)
    assert list(stripped.state_dict()) == list(plain.state_dict())
    assert not any(layer._forward_hooks for layer in stripped.modules())
    optimizer.step()
    assert not torch.equal(stripped(**inputs).logits, expected)


@pytest.mark.filterwarnings("ignore")
def test_albert_runs_one_block_several_times() -> None:
    model = word_model("AlbertForMaskedLM", embedding_size=8)()
    with pytest.raises(DeepsupError, match=r"at='albert\.encoder\.albert_layer_groups\.0' gives each of them a comp"):
        supervise(model, num_classes=WORDS, example=TEXT)
    net = supervise(model, "albert_layer_groups.0", num_classes=WORDS, example=TEXT, companion=Companion(head="output"))
    assert [name.rpartition("#")[2] for name in net.taps] == ["1", "2", "3", "4"]
    out = net(**TEXT)
    assert torch.equal(list(out.companions.values())[-1], out.scores)
    Objective(net, schedule="constant")(out, words()).total.backward()


@pytest.mark.filterwarnings("ignore")
def test_what_a_model_with_two_kinds_of_scores_is_told() -> None:
    model = made("BertForQuestionAnswering", "BertConfig", vocab_size=WORDS, **SMALL)()
    with pytest.raises(DeepsupError, match=r"returns a QuestionAnsweringModelOutput .*start_logits.*expected scores"):
        supervise(model, num_classes=2, example=TEXT)
    assert not any(layer._forward_hooks for layer in model.modules())


@pytest.mark.filterwarnings("ignore")
def test_activation_checkpoints_change_nothing() -> None:
    build, inputs, _ = ROWS["GPT-2"]
    losses, gradients = [], []
    for checkpoints in (False, True):
        model: Any = build().train()
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        if checkpoints:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        net = supervise(model, "h.*", num_classes=WORDS, example=inputs, companion=Companion(head="output"))
        loss = Objective(net, schedule="constant", shift=1)(net(**inputs), words())
        loss.total.backward()
        losses.append(loss.total)
        gradients.append([each.grad for each in net.parameters()])
    assert losses[0] == losses[1]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
