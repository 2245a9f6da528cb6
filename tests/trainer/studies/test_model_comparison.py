"""``deepsup.compare`` on models and data of one's own."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import deepsup
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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"make_model": deepsup.Config()}, "deepsup.trainer.studies.compare_methods takes a Config"),
        ({"seeds": 0}, "seeds=0"),
        ({"train_data": iter([])}, "train_data is list_iterator; expected"),
        ({"test_data": (torch.zeros(3, 6), torch.zeros(2).long())}, "test_data has 3 inputs and 2 labels"),
        ({"make_model": lambda: nn.Linear(6, 1)}, r"the model returns \[2, 1\]; expected scores"),
        ({"make_model": make_model()}, "make_model is a Sequential; expected a function that makes a new model"),
        ({"make_model": lambda: None}, "make_model returns a NoneType; expected a new torch.nn.Module"),
        ({"make_model": partial(one_model, make_model())}, "make_model returns the same Sequential again"),
    ],
)
def test_what_cannot_be_compared(given: dict, words: str) -> None:
    whole = {"make_model": make_model, "train_data": blobs(30), "test_data": blobs(30), **SMALL, **given}
    with pytest.raises((DataError, TrainingError, DeepsupError), match=words):
        deepsup.compare(**whole)
