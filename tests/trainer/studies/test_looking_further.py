"""A study whose candidates do not learn looks further before it trains its seeds. Nothing is trained here."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deepsup.errors import TrainingError
from deepsup.paper.record_rows import learned, looked_further
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.studies._pool import Job
from deepsup.trainer.studies._study import Method, Outcome, run_study, times, widened

BASE = Config(data="mnist-mini", taps=("none",))


def at(*rates: float) -> dict[str, Config]:
    return {f"lr{lr:g}": BASE.replace(lr=lr) for lr in rates}


class Toy:
    """Returns an error by the learning rate, and notes what was asked for."""

    def __init__(self, error: Callable[[float], float]) -> None:
        self.error, self.jobs = error, list[Job]()

    def __call__(self, jobs: Sequence[Job], ended: Callable[[Job, int], None]) -> list[dict[str, Any]]:
        for count, job in enumerate(jobs, 1):
            self.jobs.append(job)
            ended(job, count)
        errors = [self.error(job.config.optimizer.lr) for job in jobs]
        return [{"validation_error": each, "error": each, "companions": {}, "seconds": 1.0} for each in errors]

    @property
    def tried(self) -> list[float]:
        return [round(job.config.optimizer.lr, 6) for job in self.jobs if not job.config.run.test]


def studied(toy: Toy, *methods: Method, watch: Callable[[str, int, int], None] = lambda *_: None) -> list[Outcome]:
    return run_study(methods, Path("study"), toy, watch, learned)


def test_methods_that_learn_are_chosen_as_before() -> None:
    toy = Toy(lambda lr: 50 - lr)
    (with_rule,) = studied(toy, Method("a", at(0.01, 0.1)))
    (without,) = run_study([Method("a", at(0.01, 0.1))], Path("study"), Toy(lambda lr: 50 - lr))
    assert with_rule == without
    assert toy.tried == [0.01, 0.1]
    assert (with_rule.choice, with_rule.rounds, looked_further(with_rule)) == ("lr0.1", 0, {})


@pytest.mark.parametrize(
    ("learns_at", "tried", "choice", "said"),
    [
        (0.3, [0.01, 0.1, 0.003333, 0.3], "lr0.1-triple", "looked further: a candidate learned"),
        (0.9, [0.01, 0.1, 0.003333, 0.3, 0.001111, 0.9], "lr0.1-triple-triple", "looked further: a candidate learned"),
        (0.001, [0.01, 0.1, 0.003333, 0.3, 0.001111, 0.9], "lr0.01-third-third", "looked further: a candidate learned"),
        (7.0, [0.01, 0.1, 0.003333, 0.3, 0.001111, 0.9], "lr0.01", "looked further: no candidate learned"),
    ],
)
def test_it_looks_at_lower_and_higher_rates_twice_at_most(
    learns_at: float, tried: list[float], choice: str, said: str
) -> None:
    toy = Toy(lambda lr: 20.0 if abs(lr / learns_at - 1) < 0.2 else 90.0)  # of ten classes: 90 is guessing
    (outcome,) = studied(toy, Method("a", at(0.01, 0.1)))
    assert toy.tried == tried
    assert outcome.choice == choice
    assert len(outcome.search) == len(tried)
    assert looked_further(outcome) == {"candidates": len(tried), "further": said}
    assert {job.choice for job in outcome.jobs} == {choice}  # all seeds are trained with it


def test_the_rule_is_the_same_for_all_and_only_those_at_chance_need_it() -> None:
    toy = Toy(lambda lr: 90.0 if lr < 0.2 else 10.0)
    learns, stuck, diverges = studied(
        toy, Method("learns", at(0.1, 0.5)), Method("stuck", at(0.01, 0.1)), Method("diverges", at(0.05, 0.1))
    )
    assert [each.rounds for each in (learns, stuck, diverges)] == [0, 1, 1]
    assert learns.search.keys() == {"lr0.1", "lr0.5"}
    assert stuck.search.keys() == {"lr0.01", "lr0.1", "lr0.01-third", "lr0.1-triple"}


def test_a_single_setting_is_no_search() -> None:
    toy = Toy(lambda _: 90.0)
    (outcome,) = studied(toy, Method("a", at(0.1)))
    assert (toy.tried, outcome.rounds, outcome.search) == ([], 0, {})


def test_more_candidates_have_every_alpha_and_the_rates_of_phases() -> None:
    choices = {f"{lr}-{alpha}": BASE.replace(lr=lr, alpha=(alpha,)) for lr in (0.1, 0.2) for alpha in (0.3, 1.0)}
    more = {name: each for name, each in widened(Method("a", choices)).choices.items() if name not in choices}
    found = {(round(each.optimizer.lr, 4), each.objective.alpha) for each in more.values()}
    assert found == {(lr, (alpha,)) for lr in (0.0333, 0.6) for alpha in (0.3, 1.0)}
    phased = times(BASE.replace(phases=(Phase(1, 0.1), Phase(2, 0.2))), 3)
    assert [phase.lr for phase in phased.run.phases] == pytest.approx([0.3, 0.6])


def test_the_count_of_runs_grows_with_the_search() -> None:
    seen: list[tuple[int, int]] = []
    studied(Toy(lambda _: 90.0), Method("a", at(0.01, 0.1)), watch=lambda _, done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, 10))  # 2 + 2 + 2 candidates, 3 seeds
    assert seen[0] == (1, 5)
    assert seen[-1] == (9, 9)


def test_nothing_that_trains_is_an_error() -> None:
    with pytest.raises(TrainingError, match="a diverges at every rate tried"):
        studied(Toy(lambda _: 101.0), Method("a", at(0.01, 0.1)))


def test_runs_start_from_one_run_per_seed_that_methods_share() -> None:
    toy, start = Toy(lambda _: 5.0), BASE.replace(epochs=3)
    first, second = studied(toy, *(Method(name, at(0.01, 0.1), seeds=2, start=start) for name in "ab"))
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
