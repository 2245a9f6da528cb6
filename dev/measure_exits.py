"""Train nets for early exits, measure them beside the plain net and a smaller one, write the table of docs/exits.md.

    python dev/measure_exits.py [--sets mnist cifar10] [--runs runs/exits] [--measure-only]

Nets that are trained already are taken as they are, and a training that was stopped goes on, so that a second call only
measures. The trainings take about half an hour of one core. The control is a plain net whose widths are multiplied by
the largest factor with which it is as fast as the net with exits, trained with the same multiply-adds.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepsup import EarlyExit, Run, calibrate, create_network, train
from deepsup.errors import DeepsupError, RunError
from deepsup.exits import ratio
from deepsup.exits._stage_times import classifiers, count_multiply_adds, seconds_per_sample
from deepsup.insight import error_percent
from deepsup.io import with_block, write_whole
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import find_recipe
from deepsup.trainer.runs import environment_now, load_model
from deepsup.trainer.runs._exits import by_exit, classify, parts_of, plain_scores, prepared

ROOT = Path(__file__).parent.parent
COMMAND = "python dev/measure_exits.py"
SIZES = (1, 32, 512)
ROUNDS = {1: 41, 32: 31, 512: 11}
SETS = {"mnist": (0.1, 2.0), "cifar10": (0.3, 1.5)}
"""Data set -> the points by which the error may rise, and the speed to reach."""
BEGIN, END = "<!-- exits: begin -->", "<!-- exits: end -->"


def trained(config: Config, folder: Path, measure_only: bool) -> Run:
    """Return a run, trained to the end."""
    run = Run(folder)
    if measure_only and not run.finished:
        raise RunError(f"{folder} is not trained yet; omit --measure-only")
    return run if run.finished else train(config, folder, resume=True)


def net_of(widths: list[int], model: Any) -> torch.nn.Module:
    """Return the network of a run with other widths, untrained, for its speed."""
    options = {**model.config.network.options, "widths": widths}
    net = create_network("fast", num_classes=len(model.classes), in_channels=model.shape[0],
                         image_size=model.shape[1], **options)  # fmt: skip
    return net.eval().to(memory_format=torch.channels_last)


def control_widths(early: EarlyExit, model: Any, images: torch.Tensor) -> list[int]:
    """Return the largest widths with which the plain net is as fast as the net with exits, in batches of 32."""
    widths = model.config.network.options["widths"]
    for factor in np.arange(0.95, 0.1, -0.05):
        smaller = [max(4, round(width * factor / 4) * 4) for width in widths]
        calls = {"early": classifiers(early)["early"], "control": net_of(smaller, model)}
        seconds = seconds_per_sample(calls, (images,), 32, 15)
        if ratio(seconds["early"], seconds["control"]).median >= 1:
            return smaller
    raise RunError("no smaller net is as fast as the net with exits")


def control_config(config: Config, widths: list[int], model: Any) -> Config:
    """Return the plain net's training: as many multiply-adds as that of the net with exits, in whole epochs."""
    image = torch.zeros(1, *model.shape)
    full, small = (count_multiply_adds(net, image)[0] for net in (model.net.trunk, net_of(widths, model)))
    epochs = max(1, round(config.run.epochs * full / small))
    options = {**config.network.options, "widths": widths}
    return config.replace(taps=("none",), distill=0.0, network_options=options, epochs=epochs)


def measure_set(name: str, folder: Path, measure_only: bool) -> dict[str, Any]:
    """Return the record of one data set."""
    increase, goal = SETS[name]
    config = find_recipe(f"exits-{name}").replace(gradient_every=0, tensorboard=False)
    run = trained(config, folder / name, measure_only)
    model = load_model(run)
    validation, test, _ = parts_of(run, model)
    choose = prepared(model, validation)
    early = calibrate(
        model.net, (choose, torch.from_numpy(validation.labels)), max_error_increase=increase, batch_size=SIZES
    )
    images, labels = prepared(model, test), torch.from_numpy(test.labels)
    control = measure_control(config, early, model, choose, folder / f"{name}-control", measure_only)
    answers = classify(early, images)
    errors = {
        "plain": error_percent(plain_scores(early, images), labels),
        "exits": error_percent(answers.scores, labels),
    }
    calls: dict[str, Any] = dict(zip(("plain", "exits"), classifiers(early).values(), strict=True))
    if control is not None:
        with torch.inference_mode():
            scores = torch.cat([control.net.trunk(part) for part in images.split(500)])
        errors["control"] = error_percent(scores, labels)
        calls["control"] = lambda *x: control.net.trunk(*x).argmax(1)
    speeds = {str(size): speed_at(calls, images, size) for size in SIZES}
    return {
        "recipe": f"exits-{name}", "max_error_increase": increase, "goal": goal, "errors": errors, "speed": speeds,
        "widths": config.network.options["widths"], "seconds": run.result["seconds"], "epochs": run.result["epochs"],
        "control": None if control is None else {"widths": control.config.network.options["widths"],
                                                 "epochs": control.config.run.epochs},
        "thresholds": early.thresholds, "exits": by_exit(answers, labels),
        "multiply_adds": early.calibration["multiply_adds"], "validation_images": len(validation),
        "test_images": len(test),
    }  # fmt: skip


def measure_control(config: Config, early: EarlyExit, model: Any, images: torch.Tensor, folder: Path,
                    measure_only: bool) -> Any:  # fmt: skip
    """Return the control, trained now if need be; None if it is missing and nothing is to be trained."""
    run = Run(folder)
    if run.exists:
        return None if measure_only and not run.finished else load_model(trained(run.config, folder, measure_only))
    if measure_only:
        return None
    smaller = control_config(config, control_widths(early, model, images), model)
    return load_model(trained(smaller, folder, measure_only))


def speed_at(calls: dict[str, Any], images: torch.Tensor, size: int) -> dict[str, Any]:
    """Return images per second of each classifier, and its speed over the plain net's with quartiles."""
    seconds = seconds_per_sample(calls, (images,), size, ROUNDS[size])
    return {
        name: {"images_per_second": 1 / float(np.median(each)), "over_plain": ratio(seconds["plain"], each)._asdict()}
        for name, each in seconds.items()
    }


def markdown(record: dict[str, Any]) -> str:
    """Return the table of the page and where it was measured."""
    lines = ["| data | net | test error % | batch 1 | batch 32 | batch 512 |", "|---|---|---|---|---|---|"]
    words = {"plain": "plain net", "exits": "**with early exits**", "control": "smaller plain net"}
    notes = []
    for name, each in record["sets"].items():
        for kind, error in each["errors"].items():
            speeds = []
            for size in each["speed"].values():
                times = size[kind]["over_plain"]["median"]
                speeds.append(
                    f"{size[kind]['images_per_second']:,.0f}" + ("" if kind == "plain" else f" ({times:.2f}x)")
                )
            widths = "-".join(map(str, (each["control"] if kind == "control" else each)["widths"]))
            lines.append(f"| {name} | {words[kind]}, {widths} | {error:.2f} | {' | '.join(speeds)} |")
        notes.append(verdict(name, each))
    environment = record["environment"]
    notes.append(
        f"Images per second, and in brackets the speed over the plain net: the median of rounds in which all nets take "
        f"turns on the same test images. `{COMMAND}`, {record['date']}, {record['threads']} thread, torch "
        f"{environment['torch']}, {environment['cores']} cores. One seed per net."
    )
    return "\n".join([*lines, "", *(f"{note}\n" for note in notes)]).rstrip()


def verdict(name: str, each: dict[str, Any]) -> str:
    """Return a paragraph: whether the goal is reached, and whether exits beat the smaller net."""
    errors, speeds = each["errors"], each["speed"]
    times = {size: speed["exits"]["over_plain"]["median"] for size, speed in speeds.items()}
    rise = errors["exits"] - errors["plain"]
    shares = ", ".join(f"{exit_['share']:.0f} % at {tap}" for tap, exit_ in each["exits"].items())
    reached = min(times.values()) >= each["goal"] and rise <= each["max_error_increase"] + 1e-9
    text = (
        f"{name}: {min(times.values()):.2f} to {max(times.values()):.2f} times the images per second at {rise:+.2f} "
        f"points of error; the goal, {each['goal']:g} times at no more than +{each['max_error_increase']:g} points, is "
        f"{'reached' if reached else 'not reached'}. Images leave: {shares}."
    )
    if each["control"] is None:
        return f"{text} The smaller net was not trained."
    gap, spread = (
        errors["exits"] - errors["control"],
        deviation(errors["exits"], errors["control"], each["test_images"]),
    )
    better = "have a lower error than" if gap < 0 else "do not beat"
    sure = "more than chance" if abs(gap) > 2 * spread else f"within two standard errors, {2 * spread:.2f} points"
    fast = ", ".join(f"{speed['control']['over_plain']['median']:.2f}" for speed in speeds.values())
    return (
        f"{text} Exits {better} the smaller plain net, which was trained for {each['control']['epochs']} epochs "
        f"instead of {each['epochs']}: {errors['exits']:.2f} % and {errors['control']:.2f} %, a difference {sure}; the "
        f"smaller net is {fast} times as fast as the plain net."
    )


def deviation(one: float, other: float, images: int) -> float:
    """Return the standard error of the difference of two errors in percent, as if on different images."""
    return float(np.sqrt((one * (100 - one) + other * (100 - other)) / images))


def write_page(page: Path, record: dict[str, Any]) -> None:
    """Write the table to its place in the page."""
    text = with_block(page.read_text(encoding="utf-8"), BEGIN, END, f"\n\n{markdown(record)}\n\n")
    write_whole(page, text.encode())


def main() -> None:
    """Measure, write the record and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "exits")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "exits.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "exits.md")
    parser.add_argument("--measure-only", action="store_true", help="train nothing")
    parser.add_argument("--table-only", action="store_true", help="write the page from the record, measure nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record = json.loads(given.out.read_text()) if given.out.is_file() else {"sets": {}}
    if not given.table_only:
        for name in given.sets:
            record["sets"][name] = measure_set(name, given.runs, given.measure_only)
        record |= {"command": COMMAND, "date": time.strftime("%Y-%m-%d"), "threads": 1}
        record["environment"] = environment_now()
        write_whole(given.out, (json.dumps(record, indent=1) + "\n").encode())
    write_page(given.page, record)


if __name__ == "__main__":
    try:
        main()
    except DeepsupError as error:
        raise SystemExit(f"measure_exits: {error}") from None
