"""How a study chooses: seeds, lost ones, and a grid that grows beyond its edges. Nothing is trained here."""

from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsup.errors import TrainingError
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.studies._grid import beyond, regrown
from deepsup.trainer.studies._pool import Job
from deepsup.trainer.studies._rate_choice import EXTENSIONS, Method, quarter, run_study

BASE = Config(data="mnist-mini", taps=("none",))


def at(*rates: float) -> dict[str, Config]:
    return {f"lr{lr:g}": BASE.replace(lr=lr) for lr in rates}


class Toy:
    """Returns an error by the learning rate and the seed, None for a divergence, and notes what was asked for."""

    def __init__(self, error: Callable[[float, int], float | None]) -> None:
        self.error, self.jobs = error, list[Job]()

    def __call__(self, jobs: Sequence[Job], ended: Callable[[Job, int], None]) -> list[dict[str, Any]]:
        return [self.result(job, count, ended) for count, job in enumerate(jobs, 1)]

    def result(self, job: Job, count: int, ended: Callable[[Job, int], None]) -> dict[str, Any]:
        self.jobs.append(job)
        ended(job, count)
        error = self.error(job.config.optimizer.lr, job.config.run.seed)
        if error is None:
            return {"failed": "the loss is inf", "validation_error": 101.0, "seconds": 0.5}
        return {"validation_error": error, "error": error, "companions": {}, "seconds": 1.0}

    @property
    def tried(self) -> list[float]:
        rates = [round(job.config.optimizer.lr, 6) for job in self.jobs if not job.config.run.test]
        return list(dict.fromkeys(rates))


def valley(best: float) -> Callable[[float, int], float]:
    """The error grows with the distance from the best rate."""
    return lambda lr, _seed: min(90.0, 5 + 10 * abs(log(lr / best)))


def test_a_best_rate_inside_the_grid_is_taken() -> None:
    toy = Toy(valley(0.03))
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert toy.tried == [0.01, 0.03, 0.1]
    assert (outcome.choice, outcome.extensions, outcome.edges, outcome.diverged) == ("lr0.03", 0, (), {})
    assert outcome.search == {name: [toy.error(lr, 0)] * 3 for name, lr in
                              (("lr0.01", 0.01), ("lr0.03", 0.03), ("lr0.1", 0.1))}  # fmt: skip
    assert (outcome.choosing_seconds, outcome.seconds) == (9.0, 3.0)


@pytest.mark.parametrize(
    ("best", "more", "choice"),
    [
        (0.1, [0.333], "lr0.1"),
        (0.3, [0.333, 1.11], "lr0.333"),
        (0.01, [0.00333], "lr0.01"),
        (0.0012, [0.00333, 0.00111, 0.00037], "lr0.00111"),
    ],
)
def test_the_grid_grows_by_its_own_factor_until_the_best_rate_is_inside(
    best: float, more: list[float], choice: str
) -> None:
    toy = Toy(valley(best))
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert toy.tried == [0.01, 0.03, 0.1, *more]
    assert (outcome.choice, outcome.extensions, outcome.edges) == (choice, len(more), ())
    assert {job.choice for job in outcome.jobs} == {choice}  # all seeds are trained with it
    assert list(outcome.candidates) == list(outcome.search)
    assert outcome.candidates == regrown(at(0.01, 0.03, 0.1), outcome.search, EXTENSIONS)


def test_a_divergence_above_the_best_rate_makes_it_an_inner_one() -> None:
    toy = Toy(lambda lr, _: None if lr > 0.1 else 50 - 100 * lr)
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert toy.tried == [0.01, 0.03, 0.1, 0.333]
    assert (outcome.choice, outcome.edges) == ("lr0.1", ())
    assert (outcome.search["lr0.333"], outcome.diverged) == ([90.0] * 3, {"lr0.333": 3})


def test_the_bound_on_extensions_is_said_when_it_is_hit() -> None:
    toy = Toy(lambda lr, _: 10 / (1 + lr))
    (outcome,) = run_study([Method("a", at(0.01, 0.1))], Path("study"), toy)
    assert toy.tried == [0.01, 0.1, 1, 10, 100, 1000]
    assert (outcome.choice, outcome.extensions) == ("lr1000", EXTENSIONS)
    assert outcome.edges == ("lr 1000 is the highest of 6",)


def test_a_lost_seed_counts_as_guessing_in_the_choice_and_among_the_results() -> None:
    toy = Toy(lambda lr, seed: (None if seed == 1 else 4.0) if lr == 0.1 else 9.0 if lr == 0.03 else 30.0)
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert outcome.search["lr0.1"] == [4.0, 90.0, 4.0]  # of ten classes
    assert (outcome.choice, outcome.diverged) == ("lr0.03", {"lr0.1": 1})
    (outcome,) = run_study([Method("a", at(0.1))], Path("study"), toy)
    assert (outcome.errors, outcome.seconds) == ([4.0, 90.0, 4.0], 2.5)


def test_a_method_that_learns_at_no_rate_looks_to_both_sides() -> None:
    toy = Toy(lambda lr, _: 20.0 if abs(lr / 0.333 - 1) < 0.2 else 89.0)
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert toy.tried == [0.01, 0.03, 0.1, 0.00333, 0.333, 1.11]
    assert outcome.choice == "lr0.333"


def test_nothing_is_tried_above_a_rate_at_which_all_seeds_diverge() -> None:
    toy = Toy(lambda lr, _: None if lr > 0.0003 else 10.0)
    (outcome,) = run_study([Method("a", at(0.01, 0.03, 0.1))], Path("study"), toy)
    assert max(toy.tried) == 0.1
    assert outcome.choice == "lr0.000123"
    with pytest.raises(TrainingError, match="a diverges at every rate tried"):
        run_study([Method("a", at(0.01, 0.1))], Path("study"), Toy(lambda *_: None))


def test_only_the_methods_that_need_it_go_on() -> None:
    rates = {"inside": 0.03, "high": 0.1}

    def error(job: Job) -> float:
        return valley(rates[job.method])(job.config.optimizer.lr, 0)

    toy = Toy(lambda *_: 5.0)
    toy.result = lambda job, *_: {"validation_error": error(job), "error": 1.0}  # type: ignore[method-assign]
    inside, high = run_study([Method(name, at(0.01, 0.03, 0.1)) for name in rates], Path("study"), toy)
    assert (inside.extensions, high.extensions) == (0, 1)
    assert len(inside.search) + 1 == len(high.search) == 4


def test_a_single_setting_is_no_search_and_a_single_rate_no_grid() -> None:
    toy = Toy(lambda *_: 5.0)
    (outcome,) = run_study([Method("a", at(0.1))], Path("study"), toy)
    assert (toy.tried, outcome.extensions, outcome.search, outcome.edges) == ([], 0, {}, ())
    alphas = {f"alpha{alpha:g}": BASE.replace(alpha=(alpha,)) for alpha in (0.1, 0.3, 1.0)}
    (outcome,) = run_study([Method("a", alphas)], Path("study"), toy)
    assert (outcome.choice, outcome.extensions, outcome.edges) == ("alpha0.1", 0, ("alpha 0.1 is the lowest of 3",))


def test_further_candidates_have_every_alpha() -> None:
    grid = {f"lr{lr:g}-alpha{alpha:g}": BASE.replace(lr=lr, alpha=(alpha,))
            for lr in (0.1, 0.2) for alpha in (0.3, 1.0)}  # fmt: skip
    assert {name: (each.optimizer.lr, each.objective.alpha) for name, each in
            beyond(grid, "lr0.2-alpha1", "highest").items()} == {
        "lr0.4-alpha0.3": (0.4, (0.3,)), "lr0.4-alpha1": (0.4, (1.0,)),
    }  # fmt: skip
    assert not beyond(grid, "lr0.2-alpha1", "lowest")


def test_only_the_rates_that_differ_grow() -> None:
    phased = BASE.replace(phases=(Phase(1, 0.1), Phase(2, 0.2)))
    grid = {str(lr): phased.replace(phases=(Phase(1, 0.1), Phase(2, lr))) for lr in (0.2, 0.1)}
    (name,) = more = beyond(grid, "0.1", "lowest")
    assert (name, [phase.lr for phase in more[name].run.phases]) == ("0.1-lr0.05", [0.1, 0.05])
    (name,) = again = beyond(grid | more, name, "lowest")
    assert (name, again[name].run.phases[1].lr) == ("0.1-lr0.025", 0.025)
    assert not beyond({str(lr): BASE.replace(lr=lr) for lr in (0.0, 0.1)}, "0.0", "lowest")  # nothing is below 0


@given(st.floats(1e-4, 10), st.floats(1.5, 10), st.integers(2, 5))
def test_each_step_beyond_an_edge_is_the_factor_of_the_grid(first: float, factor: float, count: int) -> None:
    rates = [first * factor**place for place in range(count)]
    grid = {f"{place}": BASE.replace(lr=lr) for place, lr in enumerate(rates)}
    (low,) = beyond(grid, "0", "lowest").values()
    (high,) = beyond(grid, str(count - 1), "highest").values()
    assert low.optimizer.lr == pytest.approx(first / factor, rel=0.006)  # three digits
    assert high.optimizer.lr == pytest.approx(rates[-1] * factor, rel=0.006)


def test_the_count_of_runs_grows_with_the_search() -> None:
    seen: list[tuple[int, int]] = []
    run_study([Method("a", at(0.01, 0.03, 0.1), searches=1)], Path("study"), Toy(valley(0.1)),
              lambda _, done, total: seen.append((done, total)))  # fmt: skip
    assert [done for done, _ in seen] == list(range(1, 8))  # 3 + 1 candidates, 3 seeds
    assert (seen[0], seen[-1]) == ((1, 6), (7, 7))


def test_a_quarter_of_the_epochs_is_annealed_within_them() -> None:
    config = quarter(BASE.replace(epochs=60, anneal="step", anneal_at=(0, 30, 45)))
    assert (config.run.epochs, config.optimizer.anneal_at) == (15, (0, 7, 11))
    assert quarter(BASE.replace(epochs=2, anneal="step", anneal_at=(1,))).optimizer.anneal_at == (1,)  # never reached
    phases = (Phase(3, 0.1), Phase(20, 0.2, anneal_at=(8, 16)))
    assert quarter(BASE.replace(phases=phases)).run.phases == (Phase(1, 0.1), Phase(5, 0.2, anneal_at=(2, 4)))
    assert [quarter(BASE.replace(train_size=size)).data.train_size for size in (None, 500)] == [None, 500]
    assert [quarter(BASE.replace(train_size=size), 600).data.train_size for size in (None, 500, 800)] == [600, 500, 600]


def test_runs_start_from_one_run_per_seed_that_methods_share() -> None:
    toy, start = Toy(lambda *_: 5.0), BASE.replace(epochs=3)
    first, second = run_study(
        [Method(name, at(0.01, 0.1), seeds=2, searches=1, start=start) for name in "ab"],
        Path("study"),
        toy,
        extensions=0,
    )
    begun = [job for job in toy.jobs if job.method == "pre-training"]
    assert toy.jobs[:2] == begun  # before all others, and once for both methods
    assert [job.config for job in begun] == [start, start.replace(seed=1)]
    assert len({job.folder for job in begun}) == 2
    for job in toy.jobs[2:]:
        assert job.config.network.start_from == str(begun[job.config.run.seed].folder)
    assert [job for job, _ in first.starts] == [job for job, _ in second.starts] == begun


def test_a_start_that_diverges_is_an_error() -> None:
    def run_all(jobs: Sequence[Job], _ended: Callable[[Job, int], None]) -> list[dict[str, Any]]:
        return [{"failed": "the loss is inf", "validation_error": 101.0} for _ in jobs]

    with pytest.raises(TrainingError, match="pre-training, cnn, seed 0, from which others start: the loss is inf"):
        run_study([Method("a", at(0.1), start=BASE)], Path("study"), run_all)
