"""The do-no-harm bench: its arithmetic by hand, its trainings in miniature, and going on after a stop."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from deepsup.paper.bench import harm
from deepsup.paper.bench.harm import Budget, Cell
from deepsup.paper.bench.models import LENGTH, MODELS, VOCABULARY
from deepsup.trainer.report._harm_figure import alt_text, draw_harm

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


def test_the_bar_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harm, "GROUPS", {"some": "abcd", "more": "e", "none of them": "z"})
    plain = {"a": [10.0, 14.0], "b": [20.0, 20.0], "c": [90.0, 90.0], "d": [39.9, 39.9], "e": [80.0, 60.0]}
    ours = {"a": [5.0, 7.0], "b": [23.0, 23.2], "c": [100.0, 100.0], "d": [39.9, 39.9], "e": [10.0, 20.0]}
    record = harm.summary(errors(plain, ours), TINY)
    rows = {row["model"]: row for row in record["rows"]}
    assert [rows[name]["trains"] for name in "abcde"] == [True, True, False, True, False]
    assert rows["a"]["harmless"] is True
    assert rows["b"]["harmless"] is False  # 23.1 against 1.1 * 20 + 1 = 23
    assert rows["c"]["harmless"] is None  # a plain model that has not learned says nothing
    assert [rows[name]["woken"] for name in "abcde"] == [None, None, False, None, True]
    assert rows["b"]["ratio"] == pytest.approx(math.sqrt(1.15 * 1.16))
    assert rows["a"]["plain_deviation"] == pytest.approx(math.sqrt(8))
    some = record["groups"]["some"]
    assert (some["rows"], some["trained"], some["pairs"], some["better"]) == (4, 3, 6, 2)
    assert some["harmed"] == ["b, SGD 0.1"]
    logs = [math.log(0.5), (math.log(1.15) + math.log(1.16)) / 2, 0.0]
    middle, spread = sum(logs) / 3, 4.302652729911275 / math.sqrt(3)  # t of 2 degrees of freedom, from a table
    deviation = math.sqrt(sum((each - middle) ** 2 for each in logs) / 2)
    assert some["geometric_mean"] == pytest.approx(math.exp(middle))
    assert some["interval"] == pytest.approx([math.exp(middle + sign * spread * deviation) for sign in (-1, 1)])
    more = record["groups"]["more"]
    assert (more["geometric_mean"], more["interval"], more["woken"]) == (None, None, ["e, SGD 0.1"])
    assert "none of them" not in record["groups"]


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


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_goes_on_with_what_is_missing(processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not processes:
        monkeypatch.setattr(harm, "ProcessPoolExecutor", lambda jobs, **_: ThreadPoolExecutor(jobs))
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


def test_the_figure_says_in_words_what_it_shows(tmp_path: Path) -> None:
    """Two models that train, at ratios 0.5 and 1.2, and one that does not."""
    errors = {
        Cell(model, "SGD 0.1", 0, on): error
        for model, plain, ours in (("CNN", 10.0, 5.0), ("MLP", 10.0, 12.0), ("ViT", 90.0, 9.0))
        for on, error in ((False, plain), (True, ours))
    }
    record = harm.summary(errors, TINY)
    picture = draw_harm(record, tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "of the 2 in which the plain model trains, 1 are below 1" in alt_text(record["rows"])
    assert "smallest ratio is 0.50, the largest 1.20" in alt_text(record["rows"])
    drawn = picture.with_suffix(".svg").read_text()
    assert all(model in drawn for model in ("CNN", "MLP", "ViT"))
