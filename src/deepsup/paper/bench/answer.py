"""Read and write the result of the bench: a JSON file and a Markdown table. Needs no torch."""

import json
from pathlib import Path
from typing import Any

from deepsup.errors import RunError
from deepsup.io import with_block, write_whole

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"

# key -> description of the row
ROWS = {
    "loop_over_tutorial": "our loop over the tutorial's, `fast`, images/s (higher is better)",
    "loop_over_tutorial_with_workers": "... with two DataLoader workers",
    "loop_over_lightning": "our loop over Lightning, `fast`, images/s",
    "loop_over_skorch": "our loop over skorch, `fast`, images/s",
    "bfloat16.loop_over_tutorial": "our loop over the tutorial's, both in bfloat16, `fast`, images/s",
    "bfloat16.loop_over_tutorial_in_float32": "... ours in bfloat16 (`--amp auto` here), the tutorial's in float32",
    "nin.loop_over_tutorial": "our loop over the tutorial's, NIN, images/s",
    "nin.loop_over_tutorial_with_workers": "... with two DataLoader workers",
    "nin.loop_over_lightning": "our loop over Lightning, NIN, images/s",
    "nin.loop_over_skorch": "our loop over skorch, NIN, images/s",
    "nin.bfloat16.loop_over_tutorial": "our loop over the tutorial's, both in bfloat16, NIN, images/s",
    "nin.bfloat16.loop_over_tutorial_in_float32": "... ours in bfloat16 (`--amp auto` here), the tutorial's in float32",
    "default_over_plain_step": "a step with three default companions over a plain one, NIN (lower is better)",
    "supervised_over_plain_step": "... with flat companions",
    "pooled_supervised_over_plain_step": "... with pooled companions",
    "gated_over_plain_step": "... with flat companions, all below gamma",
    "fast.default_over_plain_step": "a step with three default companions over a plain one, `fast`",
    "fast.supervised_over_plain_step": "... with flat companions",
    "fast.pooled_supervised_over_plain_step": "... with pooled companions",
    "fast.gated_over_plain_step": "... with flat companions, all below gamma",
    "stripped_over_plain_inference": "inference after `strip()` over that of the model itself, NIN",
    "train_flops_over_matmul": "FLOP/s of a training step over those of a matrix product, NIN (1 is the machine)",
    "forward_flops_over_matmul": "... of a forward pass",
    "data.stream_over_dataloader": "our batch stream over a DataLoader, images/s, one thread",
    "data.stream_over_dataloader_with_workers": "... with two workers",
    "growth.training_set.ratios.largest_over_smallest": "time per image, largest training set over smallest",
    "growth.gradient_statistics_over_none": "an epoch with gradient statistics over one without, `cnn`",
    "growth.processes.ratios.two_over_one": "two processes over one, images/s, one thread each",
}


def find(answer: dict[str, Any], key: str) -> Any:
    """Return the value of a dotted key."""
    for word in key.split("."):
        answer = answer[word]
    return answer


def rows_of(answer: dict[str, Any]) -> dict[str, str]:
    """Return the rows of an answer; those of before bfloat16 was measured have none for it."""
    return {key: what for key, what in ROWS.items() if "bfloat16" not in key or "bfloat16" in answer}


def markdown(answer: dict[str, Any]) -> str:
    """Return the ratios as a Markdown table, followed by where and how they were measured."""
    lines = ["| what | ratio | quartiles |", "|---|---|---|"]
    for key, what in rows_of(answer).items():
        value, spread = find(answer, key), answer["spread"].get(key.replace(".ratios.", "."))
        around = f"{spread[0]:.3f} to {spread[1]:.3f}" if spread else ""
        lines.append(f"| {what} | {'not measured' if value is None else f'{value:.3f}'} | {around} |")
    return "\n".join([*lines, "", rates(answer), "", where(answer)])


def rates(answer: dict[str, Any]) -> str:
    """Return the values that are not ratios, as a list."""
    words = []
    for network, each in answer["images_per_second"].items():
        words.append(f"Training {network}, images/s: " + ", ".join(f"{n} {r:,.0f}" for n, r in each.items()) + ".")
    data = answer["data"]
    words.append("Data, images/s: " + ", ".join(f"{n} {r:,.0f}" for n, r in data["images_per_second"].items()) + ".")
    if data["load"]:
        load = data["load"]
        words.append(f"CIFAR-10 from files to tensors: {load['seconds']:.2f} s, {load['peak_mb']:,.0f} MB at its peak.")
    if data["step_peak_mb"]:
        peaks = ", ".join(f"{n} {mb:,.0f}" for n, mb in data["step_peak_mb"].items())
        words.append(f"Peak memory of two NIN steps, MB: {peaks}.")
    gflops = answer["limits"]["gflops"]
    words.append("GFLOP/s: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in gflops.items()) + ".")
    growth = answer["growth"]
    by_size = growth["training_set"]["microseconds_an_image"]
    words.append(
        "Microseconds per image by training-set size: " + ", ".join(f"{n} {t:,.0f}" for n, t in by_size.items()) + "."
    )
    by_taps = growth["step_by_taps"]
    words.append("A NIN step by taps, over none: " + ", ".join(f"{n} {r:.3f}" for n, r in by_taps.items()) + ".")
    by_processes = growth["processes"]["images_per_second"]
    words.append("By processes, images/s: " + ", ".join(f"{n} {r:,.0f}" for n, r in by_processes.items()) + ".")
    return "\n".join(f"- {word}" for word in words)


def where(answer: dict[str, Any]) -> str:
    """Return on what machine and with which versions it was measured."""
    e = answer["environment"]
    rounds = ", ".join(f"{name} {count}" for name, count in e["rounds"].items())
    load = " ".join(str(each) for each in e["load_average"])
    return (
        f"`deepsup bench{' --quick' if e['amount'] == 'quick' else ''}`, {e['date']}, {answer['seconds']:.0f} s; data: "
        f"{answer['data']['what']}; {e['cores']} cores, {e['threads']} threads, load average at its end {load}; "
        f"rounds: {rounds}; Python {e['python']}, torch {e['torch']}, torchvision {e['torchvision']}, "
        f"pytorch-lightning {e['pytorch-lightning']}, skorch {e['skorch']}."
    )


def read_answer(path: Path) -> dict[str, Any]:
    """Read a result that the bench wrote."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        markdown(answer)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; expected what deepsup bench --out wrote") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is not an answer of the bench ({type(error).__name__}: {error}); expected what deepsup bench "
            f"--out wrote; measure again"
        ) from error
    assert isinstance(answer, dict)
    return answer


def page_text(path: Path) -> str:
    """Return the text of a page; raise an error if it has no place for the table."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; expected a Markdown page") from error
    if not 0 <= text.find(BEGIN) < text.find(END):
        raise RunError(f"{path} has no place for the table; expected the lines {BEGIN} and {END} in it")
    return text


def write_page(path: Path, answer: dict[str, Any]) -> None:
    """Write the table to its place in a page."""
    write_whole(path, with_block(page_text(path), BEGIN, END, f"\n\n{markdown(answer)}\n\n").encode())
