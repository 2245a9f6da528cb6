"""The do-no-harm bench: its arithmetic by hand, its trainings in miniature, and going on after a stop."""

import json
import math
from pathlib import Path

import pytest
import torch

from deepsup.bench import harm
from deepsup.bench.harm import Budget, Cell
from deepsup.bench.models import LENGTH, MODELS, VOCABULARY

# torch's own, of the fast path of nn.TransformerEncoder
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
TINY = Budget(samples=40, epochs=1, batch=20, test=30)


def errors(plain: dict[str, list[float]], supervised: dict[str, list[float]]) -> dict[Cell, float]:
    return {
        Cell(model, "SGD 0.1", seed, on): error
        for on, table in ((False, plain), (True, supervised))
        for model, values in table.items()
        for seed, error in enumerate(values)
    }


def test_the_bar_by_hand() -> None:
    plain = {"a": [10.0, 14.0], "b": [20.0, 20.0], "c": [90.0, 90.0], "d": [39.9, 39.9]}
    ours = {"a": [6.0, 6.0], "b": [24.0, 24.2], "c": [100.0, 100.0], "d": [39.9, 39.9]}
    record = harm.summary(errors(plain, ours), TINY)
    rows = {row["model"]: row for row in record["rows"]}
    assert [rows[name]["trains"] for name in "abcd"] == [True, True, False, True]
    assert rows["a"]["harmless"] is True
    assert rows["b"]["harmless"] is False  # 24.1 against 1.15 * 20 + 1 = 24
    assert rows["c"]["harmless"] is None  # a plain model that has not learned says nothing
    assert record["harmed"] == ["b, SGD 0.1"]
    assert record["cells"] == 3
    assert record["geometric_mean"] == pytest.approx((0.5 * 1.205 * 1.0) ** (1 / 3))
    assert rows["a"]["plain_deviation"] == pytest.approx(math.sqrt(8))


@pytest.mark.parametrize("model", MODELS)
def test_every_kind_trains_with_companions_at_the_defaults(model: str) -> None:
    for supervised in (False, True):
        error, seconds = harm.error_of(Cell(model, "AdamW 0.001", 0, supervised), TINY)
        assert 0 <= error < 100
        assert seconds >= 0


def test_a_divergence_is_an_error_of_100() -> None:
    harm.OPTIMIZERS["SGD 1e9"] = lambda parameters: torch.optim.SGD(parameters, lr=1e9)
    try:
        for supervised in (False, True):
            assert harm.error_of(Cell("LeNet", "SGD 1e9", 0, supervised), TINY)[0] == 100.0
    finally:
        del harm.OPTIMIZERS["SGD 1e9"]


def test_texts_are_drawn_by_seed_and_padded() -> None:
    words, labels, test_words, test_labels = harm.text(TINY, 0)
    assert (len(words), len(labels), len(test_words), len(test_labels)) == (40, 40, 30, 30)
    assert words.max() < VOCABULARY
    lengths = (words > 0).sum(1)
    assert lengths.min() >= 12
    assert all(not row[length:].any() for row, length in zip(words, lengths, strict=True))
    assert words.shape == (40, LENGTH)
    assert torch.equal(words, harm.text(TINY, 0)[0])
    assert not torch.equal(words, harm.text(TINY, 1)[0])


def test_it_goes_on_with_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "harm.jsonl"
    cells = [Cell("MLP", "SGD 0.01", seed, on) for seed in (0, 1) for on in (False, True)]
    first = harm.measure_harm(TINY, cells[:2], out)
    held = out.read_text()
    told: list[tuple[str, int, int]] = []
    whole = harm.measure_harm(TINY, cells, out, watch=lambda *each: told.append(each))
    assert out.read_text().startswith(held)
    assert len(told) == 2
    assert told[-1][1:] == (4, 4)
    assert whole["rows"][0]["plain"][0] == first["rows"][0]["plain"][0]
    again = harm.measure_harm(TINY, cells, out, watch=lambda *each: told.append(each))
    assert again["rows"] == whole["rows"]
    assert len(told) == 2  # nothing was trained twice
    other = dict(harm.known(out, Budget(samples=41)))
    assert other == {}  # another budget is another measurement
    assert json.loads(out.read_text().splitlines()[0])["model"] == "MLP"
