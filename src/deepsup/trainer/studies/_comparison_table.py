"""The runs of a comparison -> its table: errors by method and seed, the ratios between methods, and notes on them."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NotRequired, TypedDict

from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder
from deepsup.trainer.statistics import RatioTest, chance_error, error_ratio, has_learned, least_error
from deepsup.trainer.studies._pool import Job, failure

NORM = "BatchNorm"
"""The net of the first method, without companions and with BatchNorm after its convolutions."""
PAIRS = (
    ("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"), (NORM, "CNN-Softmax"),
    (NORM, "CNN-SVM"),
)  # fmt: skip
"""Methods whose errors are set in relation where both are there, each time to the second of them."""


class MethodErrors(TypedDict):
    """A method in ``comparison.json``; lists have one value per seed."""

    errors: list[float]
    """On the test set, percent; a training that diverged counts as guessing."""
    mean: float
    deviation: float | None
    learned: list[bool]
    diverged: list[bool]
    lr: NotRequired[float | None]
    """It and what follows are not there for a comparison of models in Python, which has no run folders."""
    runs: NotRequired[list[str]]
    companions: NotRequired[dict[str, float]]
    """Tap -> the mean test error of its companion."""


class ComparisonTable(TypedDict):
    """What ``comparison.json`` says."""

    methods: dict[str, MethodErrors]
    ratios: dict[str, RatioTest]
    """"DSN-Softmax / CNN-Softmax" -> the ratio of their errors."""
    seeds: list[int]
    chance: float
    """The error of guessing."""
    notes: list[str]
    planned_seeds: NotRequired[int]
    seconds: NotRequired[float]
    config: NotRequired[dict[str, Any]]


def result_of(job: Job) -> dict[str, Any] | None:
    """Return the result of a run, ``failed`` in it where it diverged; None where it has not ended."""
    run = RunFolder(job.folder)
    if run.diverged is not None:
        return failure(run)
    return {**run.result} if run.finished else None


def summarised(config: Config, jobs: Mapping[str, Sequence[Job]], classes: int) -> ComparisonTable | None:
    """Return the table of the seeds that all methods have finished; None if there is none.

    jobs: by method, the runs of the same seeds in the same order.
    """
    groups = [
        (group, results)
        for group in zip(*jobs.values(), strict=True)
        if all(results := [result_of(job) or {} for job in group])
    ]
    if not groups:
        return None
    by_method = {
        method: [(group[place], results[place]) for group, results in groups] for place, method in enumerate(jobs)
    }
    errors = {method: [each.get("error") for _, each in runs] for method, runs in by_method.items()}
    table = compared(errors, [group[0].config.run.seed for group, _ in groups], classes, tested(by_method.values()))
    for method, runs in by_method.items():
        ended = [each for _, each in runs if "error" in each]
        taps = ended[0]["companions"] if ended else ()
        record = table["methods"][method]
        record["lr"] = runs[0][0].config.optimizer.lr
        record["runs"] = [job.folder.name for job, _ in runs]
        record["companions"] = {tap: mean(each["companions"][tap] for each in ended) for tap in taps}
    seconds = sum(each.get("seconds", 0.0) for runs in by_method.values() for _, each in runs)
    planned = len(next(iter(jobs.values())))
    return {**table, "planned_seeds": planned, "seconds": round(seconds, 1), "config": config.to_dict()}


def compared(
    errors: Mapping[str, Sequence[float | None]], seeds: Sequence[int], classes: int, test_images: int
) -> ComparisonTable:
    """Return the part of the table that the errors alone give.

    errors: by method, one per seed; None where the training diverged, which counts as guessing. An error of 0 counts as
        half an image in a ratio.
    """
    chance, least = chance_error(classes), least_error(test_images)
    counted = {method: [chance if error is None else error for error in each] for method, each in errors.items()}
    methods: dict[str, MethodErrors] = {
        method: {
            "errors": each,
            "mean": mean(each),
            "deviation": stdev(each) if len(each) > 1 else None,
            "learned": [has_learned(error, classes) for error in each],
            "diverged": [error is None for error in errors[method]],
        }
        for method, each in counted.items()
    }
    ratios = {
        f"{ours} / {theirs}": error_ratio(counted[ours], counted[theirs], least)
        for ours, theirs in PAIRS
        if ours in counted and theirs in counted
    }
    notes = notes_on(methods, seeds, chance)
    return {"methods": methods, "ratios": ratios, "seeds": list(seeds), "chance": chance, "notes": notes}


def tested(by_method: Any) -> int:
    """Return the number of test images, 0 where no run has ended well."""
    return next((each["test_images"] for runs in by_method for _, each in runs if "test_images" in each), 0)


def notes_on(methods: Mapping[str, MethodErrors], seeds: Sequence[int], chance: float) -> list[str]:
    """Return a line per method for the seeds with which it diverged, and one for those with which it did not learn."""
    guessing, lines = f"{chance:.3g} % error", []
    for method, each in methods.items():
        stuck = [not learned and not lost for learned, lost in zip(each["learned"], each["diverged"], strict=True)]
        for hits, what in (
            (each["diverged"], f"diverged, counted as guessing ({guessing}); lower the rate"),
            (stuck, f"did not learn (guessing has {guessing}); train longer or raise the rate"),
        ):
            numbers = [str(seed) for seed, hit in zip(seeds, hits, strict=True) if hit]
            if numbers:
                lines.append(f"{method}, seed{'s' if numbers[1:] else ''} {', '.join(numbers)}: {what}")
    return lines


def ratio_text(ratio: Mapping[str, Any]) -> str:
    """Return a ratio of errors as text.

    >>> ratio_text({"ratio": 0.617, "interval": [0.51, 0.746], "lower": 6, "pairs": 6, "p": 0.03125})
    '0.62 times the error, 95 % interval 0.51 to 0.75, lower in 6 of 6 seeds (sign test p = 0.031)'
    """
    text = f"{ratio['ratio']:.2f} times the error"
    if ratio["interval"] is None:
        return f"{text}; one seed says nothing about chance"
    low, high = ratio["interval"]
    return (
        f"{text}, 95 % interval {low:.2f} to {high:.2f}, lower in {ratio['lower']} of {ratio['pairs']} seeds (sign "
        f"test p = {ratio['p']:.2g})"
    )
