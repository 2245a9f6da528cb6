"""A config -> how long a run of it will take, from a few of its steps; and what of a comparison fits into a time."""

import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepsup.errors import DivergedError
from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder, RunTraining
from deepsup.trainer.studies._comparison_table import result_of
from deepsup.trainer.studies._engine import Workers
from deepsup.trainer.studies._pool import Job, quiet, whole
from deepsup.trainer.training import Clock, Processes

STEPS, SECONDS, IMAGES = 12, 3.0, 500
"""At most so many steps, or as many as so many seconds have; the images of one evaluation."""
PASSES, PROBED = 2, 5000
"""An inspection takes about as long as so many evaluations per layer of at most so many training images and the test
images: half of it is the fit of a linear probe."""
logger = logging.getLogger("deepsup")


@dataclass(frozen=True)
class Cost:
    """What a run consists of, in seconds."""

    start: float
    """From nothing to the first step: data, network."""
    step: float
    image: float
    """To evaluate one image."""
    steps: int
    """Per epoch."""
    test_images: int
    validation_images: int
    inspection: float = 0.0
    """To inspect a net that was trained."""

    def of(self, config: Config) -> float:
        """Return the seconds that a run takes with so many epochs and evaluations as the config has."""
        epochs, run = config.total_epochs, config.run
        steps = min(epochs * self.steps, run.limit_steps or epochs * self.steps)
        tested = 1 + (epochs // run.test_every if run.test_every else 0)
        validated = 1 + (epochs // run.validate_every if run.validate_every else 0)
        images = tested * self.test_images + validated * self.validation_images
        return self.start + steps * self.step + images * self.image


def measure_cost(job: Job, threads: int, _own: bool = False) -> Cost:
    """Take a few steps of a run and evaluate a few images; nothing of it is kept."""
    clock = Clock(STEPS, SECONDS)
    with quiet(threads), tempfile.TemporaryDirectory() as folder:
        clock.times.append(time.perf_counter())
        trainer = RunTraining(job.config.replace(limit_steps=None), RunFolder(Path(folder)), Processes())
        start = time.perf_counter() - clock.times.pop()
        training, data = trainer.training, trainer.data
        began = time.perf_counter()
        try:
            training.train([clock])
        except DivergedError:  # the run itself will say so
            clock.times.append(time.perf_counter())
        first, *rest = clock.times
        step = (clock.times[-1] - first) / len(rest) if rest else first - began
        some = data.test.take(np.arange(min(len(data.test), IMAGES)))
        began = time.perf_counter()
        trainer.measuring.measure(training, some)
        image = (time.perf_counter() - began) / len(some)
    validation = 0 if data.validation is None else len(data.validation)
    layers = 0 if data.test.dense else len(training.net.taps)
    passes = 1 + PASSES * layers
    inspection = passes * image * (min(len(data.train), PROBED) + len(data.test)) if layers else 0.0
    return Cost(start, step, image, len(training.batches), len(data.test), validation, inspection)


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """Return how long runs take that are begun in this order, so many at a time.

    >>> makespan([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    ends = [0.0] * jobs
    for each in seconds:
        free = ends.index(min(ends))
        ends[free] += each
    return max(ends)


class Forecast:
    """How long runs will take: a few steps of every method are measured, those of several at a time together.

    inspected: so many nets are inspected after them, one at a time.
    """

    def __init__(self, workers: Workers, jobs: Sequence[Job], inspected: int = 0) -> None:
        self.inspected = inspected
        self.jobs = workers.engine.jobs or 1
        firsts = {job.method: whole(job) for job in reversed(jobs) if result_of(job) is None}
        self.costs: dict[str, Cost] = {job.method: cost for job, cost in workers.stream(measure_cost, firsts.values())}

    def seconds(self, jobs: Sequence[Job]) -> float:
        """Return how long the runs take that have not ended yet."""
        runs = [self.costs[job.method].of(job.config) for job in jobs if result_of(job) is None]
        inspection = max((cost.inspection for cost in self.costs.values()), default=0.0)
        return makespan(runs, self.jobs) + (self.inspected * inspection if runs else 0.0)

    def say(self, jobs: Sequence[Job]) -> None:
        """Say how long it will take, unless nothing is left."""
        missing = sum(result_of(job) is None for job in jobs)
        if missing:
            text = "%s for %d run%s; Ctrl-C keeps what is done"
            logger.info(text, in_words(self.seconds(jobs)), missing, "" if missing == 1 else "s")


def fit(
    seconds: Callable[[int, int], float], seeds: int, epochs: int, fewest: int, limit: float
) -> tuple[int, int] | None:
    """Return how many seeds and epochs fit into so many seconds: fewer seeds at first, then fewer epochs.

    seconds: what so many seeds of so many epochs take.
    fewest: the fewest epochs. There are at least two seeds, or one where one was asked for.
    """
    least = min(2, seeds)
    tried = [(each, epochs) for each in range(seeds, least - 1, -1)]
    tried += [(least, each) for each in range(epochs - 1, fewest - 1, -1)]
    return next((each for each in tried if seconds(*each) <= limit), None)


def in_words(seconds: float) -> str:
    """Return a duration as people say it.

    >>> in_words(40), in_words(61), in_words(200), in_words(9000)
    ('about 40 seconds', 'about 1 minute', 'about 3 minutes', 'about 2.5 hours')
    """
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} seconds"
    if seconds < 90 * 60:
        minutes = round(seconds / 60)
        return f"about {minutes} minute{'' if minutes == 1 else 's'}"
    return f"about {seconds / 3600:.1f} hours"
