"""``deepsup.compare`` on models and data of one's own."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import deepsup
from deepsup import Objective
from deepsup.errors import DataError, DeepsupError, TrainingError


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def one_model(model: nn.Module) -> nn.Module:
    """Make nothing new."""
    return model


def blobs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes that are easy to separate."""
    labels = torch.arange(count) % 3
    return torch.randn(count, 6) / 3 + torch.eye(3).repeat(1, 2)[labels], labels


SMALL = {"seeds": 2, "epochs": 5, "batch_size": 16, "at": ["1", "3"]}


def test_tensors_arrays_and_loaders_give_the_same_kind_of_table() -> None:
    train, test = blobs(90), blobs(60)
    state = torch.get_rng_state()
    table = deepsup.compare(make_model, train, test, **SMALL)
    assert torch.equal(torch.get_rng_state(), state)
    assert list(table["methods"]) == ["CNN-Softmax", "DSN-Softmax"]
    assert all(max(each["errors"]) < 30 for each in table["methods"].values())
    ratio = table["ratios"]["DSN-Softmax / CNN-Softmax"]
    assert (ratio["pairs"], table["seeds"], table["chance"]) == (2, [0, 1], pytest.approx(200 / 3))
    arrays = deepsup.compare(make_model, [np.float64(train[0]), np.int32(train[1])], test, **SMALL)
    assert arrays == table
    loader = DataLoader(TensorDataset(*train), batch_size=16, shuffle=True)
    loaded = deepsup.compare(make_model, loader, DataLoader(TensorDataset(*test), batch_size=7), **SMALL)
    assert all(max(each["errors"]) < 30 for each in loaded["methods"].values())


def test_both_nets_see_the_same_batches_from_the_same_weights() -> None:
    """Without any companion they are one net."""
    table = deepsup.compare(make_model, blobs(60), blobs(60), **SMALL | {"at": [], "epochs": 2})
    plain, same = table["methods"].values()
    assert plain == same


def test_a_divergence_counts_as_guessing() -> None:
    table = deepsup.compare(make_model, blobs(60), blobs(30), lr=1e9, **SMALL)
    assert table["methods"]["CNN-Softmax"]["errors"] == [pytest.approx(200 / 3)] * 2
    assert "diverged" in table["notes"][0]


class Words(nn.Module):
    """Scores each token of [B,L], or the whole text, and returns them as models of Hugging Face do."""

    def __init__(self, tokens: bool) -> None:
        super().__init__()
        self.embed, self.a, self.b = nn.Embedding(7, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.fc = nn.Linear(8, 7)
        self.tokens = tokens

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.b(self.a(self.embed(ids)).relu()).relu()
        return {"logits": self.fc(x if self.tokens else x.mean(1))}


@pytest.mark.parametrize("shift", [0, 1])
def test_errors_of_tokens_are_counted_one_by_one(shift: int) -> None:
    ids = torch.randint(0, 7, (6, 5), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[2:4, 3:] = -100
    batches = [{"ids": x, "labels": y} for x, y in zip(ids.split(4), labels.split(4), strict=True)]
    settings = {"seeds": 1, "epochs": 1, "lr": 0.0, "at": ["a"]}
    table = deepsup.compare(
        lambda: Words(True), batches, batches, objective=lambda net: Objective(net, shift=shift), **settings
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        scores = Words(True)(ids)["logits"]
    pairs = [(scores[n, t].argmax(), labels[n, t + shift]) for n in range(6) for t in range(5 - shift)]
    wrong = [bool(found != label) for found, label in pairs if label != -100]
    for each in table["methods"].values():
        assert each["errors"] == [pytest.approx(100 * sum(wrong) / len(wrong))]
    assert table["chance"] == pytest.approx(600 / 7)


def test_texts_and_maps_of_labels() -> None:
    ids, settings = torch.randint(0, 7, (12, 5)), {"seeds": 1, "epochs": 1}
    whole = deepsup.compare(lambda: Words(False), (ids, ids[:, 0]), (ids, ids[:, 0]), at=["embed"], **settings)
    assert whole["chance"] == pytest.approx(600 / 7)
    maps = (torch.randn(8, 2, 4, 4), torch.randint(0, 3, (8, 4, 4)))
    table = deepsup.compare(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 3, 1)), maps, maps, at="0", **settings
    )
    assert all(0 < each["errors"][0] < 100 for each in table["methods"].values())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"make_model": deepsup.Config()}, "deepsup.trainer.studies.compare_methods takes a Config"),
        ({"seeds": 0}, "seeds=0"),
        ({"train_data": iter([])}, "train_data is list_iterator; expected"),
        ({"test_data": (torch.zeros(3, 6), torch.zeros(2).long())}, "test_data has 3 inputs and 2 labels"),
        ({"make_model": lambda: nn.Linear(6, 1)}, r"the model returns \[2, 1\] for labels \[2\]; expected scores"),
        ({"make_model": lambda: nn.Linear(5, 3)}, r"Linear fails on the example \(Tensor \[2, 6\]\): mat1 and mat2"),
        ({"train_data": torch.zeros(3, 6)}, r"train_data is Tensor; expected \(inputs, labels\)"),
        ({"test_data": [{"x": torch.zeros(3, 6)}]}, r"a batch has keys x; expected \(inputs, labels\), or a mapping"),
        ({"test_data": [torch.zeros(3, 6)]}, r"a batch has a Tensor; expected \(inputs, labels\)"),
        ({"test_data": (torch.zeros(3, 6), torch.full((3,), -100))}, "test_data has no label but -100"),
        ({"optimizer": "adamw"}, "optimizer is a str; expected a function that makes one"),
        ({"make_model": make_model()}, "make_model is a Sequential; expected a function that makes a new model"),
        ({"make_model": lambda: None}, "make_model returns a NoneType; expected a new torch.nn.Module"),
        ({"make_model": partial(one_model, make_model())}, "make_model returns the same Sequential again"),
    ],
)
def test_what_cannot_be_compared(given: dict, words: str) -> None:
    whole = {"make_model": make_model, "train_data": blobs(30), "test_data": blobs(30), **SMALL, **given}
    with pytest.raises((DataError, TrainingError, DeepsupError), match=words):
        deepsup.compare(**whole)
