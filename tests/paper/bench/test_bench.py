"""The bench: functions take fair turns, the other loops do the same work, and the answer has what it promises."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from deepsup.cli import main
from deepsup.exits._timing import ratio, take_turns
from deepsup.paper.bench import answer as answers
from deepsup.paper.bench import companion_cost as companions
from deepsup.paper.bench import data_speed, growth, limits, loops, packages
from deepsup.paper.bench import suite as bench_module
from deepsup.paper.bench.data_speed import stand_in
from deepsup.paper.bench.loops import OTHERS, Task, measure_loops, ours
from deepsup.paper.bench.suite import FULL, QUICK, Amount, Bench
from deepsup.trainer.data import Dataset
from deepsup.trainer.runs._folder import RunFolder

ROOT = Path(__file__).parents[3]
PROMISED = [
    "loop_over_tutorial",
    "loop_over_lightning",
    "loop_over_skorch",
    "default_over_plain_step",
    "supervised_over_plain_step",
    "pooled_supervised_over_plain_step",
    "gated_over_plain_step",
    "stripped_over_plain_inference",
    "train_flops_over_matmul",
    "forward_flops_over_matmul",
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return stand_in(32, 8)


# Turns


def test_turns_alternate_and_the_first_round_does_not_count():
    order: list[str] = []

    def side(name: str, seconds: float) -> Any:
        def turn() -> float:
            order.append(name)
            return seconds * len(order)

        return turn

    seconds = take_turns({"a": side("a", 1), "b": side("b", 10), "c": side("c", 100)}, rounds=2)
    assert "".join(order) == "cba" + "abc" + "cba"
    assert seconds == {"a": [4, 9], "b": [50, 80], "c": [600, 700]}


def test_a_turn_that_tells_no_seconds_is_timed():
    (seconds,) = take_turns({"a": lambda: None}, rounds=3, warm_up=0).values()
    assert len(seconds) == 3
    assert all(0 <= each < 1 for each in seconds)


def test_ratio_is_formed_within_rounds():
    # the machine was ten times slower in the second round; the ratio does not see it
    assert ratio([2, 20, 2], [1, 10, 1]) == (2, 2, 2)
    assert ratio([3], [2]) == (1.5, 1.5, 1.5)
    found = ratio([1, 2, 3, 4, 5], [1] * 5)
    assert (found.low, found.median, found.high) == tuple(np.percentile([1, 2, 3, 4, 5], [25, 50, 75]))


# The rivals


@pytest.mark.parametrize(("network", "options"), [("fast", {}), ("nin-cifar10", {"drop": 0.0})])
@pytest.mark.parametrize("loop", [name for name in OTHERS if "workers" not in name])
def test_every_loop_does_the_same_work(loop, network, options):
    """Same first weights, same batches: after three steps the weights agree, so it is the same training."""
    task = Task(network, stand_in(12, 8), batch_size=4, lr=0.1, random=False, options=options)
    begun = {name: value.clone() for name, value in task.net().state_dict().items()}
    mine, theirs = ours(task), OTHERS[loop].make(task)
    assert mine.turn() > 0
    assert theirs.turn() > 0
    moved = 0.0
    for (name, a), (other, b) in zip(mine.net.state_dict().items(), theirs.net.state_dict().items(), strict=True):
        assert name == other
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, check_stride=False)
        moved = max(moved, float((a - begun[name]).abs().max()))
    assert moved > 1e-3  # they did train


def test_both_train_in_bfloat16_if_they_are_compared_in_it():
    """The same training up to the rounding of bfloat16; the tutorial's in float32 is another one."""
    task = Task("fast", stand_in(12, 8), batch_size=4, lr=0.1, random=False, bfloat16=True)
    types: dict[str, set[torch.dtype]] = {}
    nets = {}
    for name, loop in (("ours", ours(task)), ("theirs", loops.tutorial(task))):
        types[name] = set()
        first = next(layer for layer in loop.net.modules() if isinstance(layer, torch.nn.Conv2d))
        first.register_forward_hook(lambda *given, name=name: types[name].add(given[2].dtype))
        loop.turn()
        nets[name] = loop.net.state_dict()
    assert types == {"ours": {torch.bfloat16}, "theirs": {torch.bfloat16}}
    for name, value in nets["ours"].items():
        torch.testing.assert_close(value, nets["theirs"][name], rtol=0.05, atol=0.05, check_stride=False)


def test_bfloat16_is_measured_beside_both_precisions_of_the_tutorial(data, monkeypatch):
    task = Task("cnn", data, batch_size=16)
    found = loops.measure_bfloat16(task, 1)
    assert {name: each.median > 0 for name, each in found["ratios"].items()} == {
        "loop_over_tutorial": True, "loop_over_tutorial_in_float32": True,
    }  # fmt: skip
    assert list(found["images_per_second"]) == ["deepsup in bfloat16", "tutorial in bfloat16"]
    monkeypatch.setattr(loops, "missing", lambda _: ["torchvision"])
    assert set(loops.measure_bfloat16(task, 1)["ratios"].values()) == {None}
    monkeypatch.setattr(bench_module, "bfloat16_on", lambda _: (False, "it is slow"))
    said: list[str] = []
    answer = Bench(QUICK, said.append).loops(task, "nin.")
    assert answer["ratios"]["bfloat16"] == {"loop_over_tutorial": None, "loop_over_tutorial_in_float32": None}
    assert "... not in bfloat16: it is slow" in said


def test_an_answer_of_before_bfloat16_has_no_rows_for_it():
    answer = answers.read_answer(ROOT / "results" / "bench.json")
    assert "bfloat16" in answer or not any("bfloat16" in key for key in answers.rows_of(answer))
    assert list(answers.rows_of(answer | {"bfloat16": {}})) == list(answers.ROWS)


def test_steps_counted(data):
    """A pass over 32 images in batches of 8 is four steps for every loop."""
    task = Task("cnn", data, batch_size=8)
    for make in [ours, *(other.make for name, other in OTHERS.items() if "workers" not in name)]:
        side, steps = make(task), []
        handle = side.net.register_forward_hook(lambda _, args, __, steps=steps: steps.append(len(args[0])))
        side.turn()
        handle.remove()
        assert steps == [8] * 4


def test_missing_packages_are_null_and_named(data, monkeypatch):
    monkeypatch.setattr(loops, "missing", lambda names: [n for n in names if n in ("skorch", "pytorch_lightning")])
    told: dict[str, list[str]] = {}
    found = measure_loops(Task("cnn", data, 16), 1, told.__setitem__)
    assert found["ratios"]["loop_over_skorch"] is None
    assert found["ratios"]["loop_over_lightning"] is None
    assert found["ratios"]["loop_over_tutorial"].median > 0
    assert told == {"loop_over_lightning": ["pytorch_lightning"], "loop_over_skorch": ["skorch"]}
    said: list[str] = []
    Bench(QUICK, said.append).absent("loop_over_skorch", ["skorch"])
    assert said == ["loop_over_skorch is null: skorch not installed; pip install 'deepsup[bench]'"]
    assert packages.missing(("torch", "no_such_package")) == ["no_such_package"]


def test_the_library_imports_no_rival():
    code = (
        "import sys, deepsup.paper.bench.suite; sys.exit(any(n in sys.modules for n in "
        "('torchvision', 'pytorch_lightning', 'skorch')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The parts


def told_seconds(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **seconds: float) -> list[str]:
    """Let every turn of a module be taken once, with seconds of our own; return the names of the turns."""
    taken: list[str] = []

    def turns(given: dict[str, Any], *_: int, **__: int) -> dict[str, list[float]]:
        for name, turn in given.items():
            turn()
            taken.append(name)
        return {name: [seconds[name]] for name in given}

    monkeypatch.setattr(module, "take_turns", turns)
    return taken


def one(value: float) -> Any:
    return pytest.approx((value, value, value))


def test_companions_and_taps(monkeypatch):
    told = {"plain": 2.0, "default": 1.0, "supervised": 3.0, "pooled_supervised": 5.0, "gated": 7.0, "stripped": 9.0}
    taken = told_seconds(monkeypatch, companions, **told)
    found = companions.measure_companions("cnn", 4, 2)
    assert taken == ["plain", "default", "supervised", "pooled_supervised", "gated", "plain", "stripped"]
    assert found == dict(zip(PROMISED[3:8], map(one, (0.5, 1.5, 2.5, 3.5, 4.5)), strict=True))
    told_seconds(monkeypatch, growth, **{"0": 2.0, "1": 3.0, "2": 5.0})
    assert growth.measure_taps("cnn", 4, 1) == {"0": one(1), "1": one(1.5), "2": one(2.5)}


def test_flops_are_those_of_a_hand_count():
    a, b, product = torch.ones(3, 5), torch.ones(5, 7), torch.empty(3, 7)
    assert limits.flops_of(lambda: torch.mm(a, b, out=product).sum() and None) == 2 * 3 * 5 * 7
    found = limits.measure_limits("nin-cifar10", 1, 1, 64)
    assert found["gflop_an_image"]["forward"] == pytest.approx(2 * 222_486_528 / 1e9)
    # the backward pass takes twice a forward pass's, but for the gradient of the images
    first_layer = 2 * 5 * 5 * 3 * 192 * 32 * 32 / 1e9
    assert found["gflop_an_image"]["train"] == pytest.approx(3 * 2 * 222_486_528 / 1e9 - first_layer)
    assert set(found["ratios"]) == {"train_flops_over_matmul", "forward_flops_over_matmul"}


def test_streams(data, monkeypatch):
    """Ours is taken ten times as often as a DataLoader; our steps return the seconds of as many images themselves."""
    names = ["deepsup", "dataloader", "dataloader_with_workers", "normalize", "augment"]
    taken = told_seconds(monkeypatch, data_speed, **dict(zip(names, (1.0, 2.0, 4.0, 5.0, 8.0), strict=True)))
    threads = torch.get_num_threads()
    found = data_speed.measure_streams(data, 1, 32)
    assert torch.get_num_threads() == threads
    assert taken == names
    rates = [320 / 1, 32 / 2, 32 / 4, 320 / 5, 320 / 8]
    assert found["images_per_second"] == dict(zip(names, rates, strict=True))
    assert found["ratios"] == {"stream_over_dataloader": one(20), "stream_over_dataloader_with_workers": one(40)}


def test_a_turn_takes_as_many_images_as_it_says():
    batches = [torch.zeros(size) for size in (8, 8, 8, 8, 8)]
    left = iter(batches)
    data_speed.turn_of(left, 20)()
    assert len(list(left)) == 2
    work = iter(batches)
    assert data_speed.repeated(lambda: next(work), 20)() > 0
    assert len(list(work)) == 2


def test_growth_in_size_and_statistics(data, monkeypatch):
    told_seconds(monkeypatch, growth, **{"8": 2e-6, "32": 16e-6, "with": 3.0, "without": 2.0})
    found = growth.measure_sizes(data, "cnn", 8, (8, 32), 1)
    assert found["microseconds_an_image"] == pytest.approx({"8": 0.25, "32": 0.5})
    assert found["ratios"] == {"largest_over_smallest": one(2)}
    assert growth.measure_statistics(data, "cnn", 8, 1) == one(1.5)
    assert len(data_speed.first(data, 8).train) == 8


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the system tells no peak of memory")
def test_memory_is_the_peak_of_a_new_process():
    """200 MB more while they are held, and still after they are freed; none of this process's own memory."""
    code = (
        "import re\n"
        "import numpy as np\n"
        "from pathlib import Path\n"
        f"{inspect.getsource(data_speed.peak_mb)}\n"  # alone: the import of its module takes 3 s
        "before = peak_mb()\n"
        "more = np.ones(25 * 2**20)\n"
        "held = peak_mb()\n"
        "del more\n"
        "print(before, held - before, peak_mb() - held)"
    )
    ours = np.ones(50 * 2**20)  # 400 MB that the new process does not have
    before, held, freed = data_speed.in_new_process(code)
    assert before < data_speed.peak_mb() - ours.nbytes / 2**20 / 2
    assert held == pytest.approx(200, abs=10)
    assert freed == pytest.approx(0, abs=1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the system tells no peak of memory")
def test_flat_companions_take_memory_and_pooled_ones_hardly_any():
    """Weights, gradients and momentum: about 40 MB against 2 MB."""
    found = data_speed.measure_memory("nin-cifar10", ("conv1", "conv2"), 2)
    assert found["supervised"] > found["plain"] + 20 > found["pooled"]


def test_processes(monkeypatch):
    rates = {1: 100.0, 2: 150.0}
    numbers = []

    def rate(folder: Path, number: int, processes: int, runs: growth.Runs) -> float:
        assert np.load(folder / "images.npz")["images"].shape == (200, 3, 32, 32)
        numbers.append(number)
        return rates[processes]

    monkeypatch.setattr(growth, "rate_of", rate)
    found = growth.measure_processes(stand_in(200, 8), growth.Runs("cnn", 16, 200, 2))
    assert found == {"images_per_second": {"1": 100, "2": 150}, "ratios": {"two_over_one": one(1.5)}}
    assert numbers == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_rate_of_processes_is_that_of_their_second_epoch(processes, tmp_path):
    part = stand_in(64, 8).train
    np.savez(tmp_path / "images.npz", images=part.images, labels=part.labels)
    rate = growth.rate_of(tmp_path, 3, processes, growth.Runs("cnn", 16, 64, 1))
    run = RunFolder(tmp_path / "run3")
    assert rate == run.metrics[-1]["images_per_second"]
    assert [record["epoch"] for record in run.metrics] == [0, 1]
    assert run.environment["processes"] == processes


# The whole


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """An answer with every part measured, the slow ones replaced: they have tests of their own above."""
    tiny = Amount(8, 2, 1, 1, 4, 1, 64, 8, 1, 1, (8, 16), 1, 1, 16, 1, 1, nin="cnn", fast="cnn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_module, "can_tell_memory", lambda: False)
        patch.setattr(
            bench_module,
            "measure_processes",
            lambda *_: {"images_per_second": {"1": 1.0, "2": 1.5}, "ratios": {"two_over_one": ratio([1.5], [1.0])}},
        )
        said: list[str] = []
        answer = Bench(tiny, said.append).run((stand_in(32, 8), "random arrays"))
    assert len([line for line in said if not line.startswith("...")]) == 8
    return answer


def test_the_answer_has_what_it_promises(whole):
    assert all(isinstance(whole[key], float) for key in PROMISED)
    assert all(isinstance(whole["nin"][key], float) for key in PROMISED[:3])
    assert json.loads(json.dumps(whole)) == whole
    assert whole["environment"]["threads"] == torch.get_num_threads()
    for key in PROMISED:
        low, high = whole["spread"][key]
        assert low <= whole[key] <= high
    assert QUICK.loop_rounds < FULL.loop_rounds
    assert "random arrays" in whole["data"]["what"]


def test_a_table_into_a_page_and_back(whole, tmp_path, capsys):
    file, page = tmp_path / "bench.json", tmp_path / "speed.md"
    file.write_text(json.dumps(whole))
    page.write_text(f"before\n{answers.BEGIN}\nold\n{answers.END}\nafter\n")
    assert main(["bench", "--table", str(file), "--page", str(page)]) == 0
    shown = capsys.readouterr().out
    assert shown.strip() == answers.markdown(whole)
    assert f"{whole['loop_over_skorch']:.3f}" in shown
    assert page.read_text() == f"before\n{answers.BEGIN}\n\n{shown}\n{answers.END}\nafter\n"
    assert main(["bench", "--table", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == whole
    nothing = {**whole, "loop_over_skorch": None, "spread": {}}
    assert "| our loop over skorch, `fast`, images/s | not measured |  |" in answers.markdown(nothing)


def test_the_command_writes_what_it_shows(whole, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Bench, "run", lambda self: {**whole, "amount": self.amount == QUICK})
    assert main(["bench", "--quick", "--json", "--out", str(tmp_path / "new" / "bench.json")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads((tmp_path / "new" / "bench.json").read_text())
    assert answer["amount"] is True
    assert main(["bench"]) == 0
    assert "our loop over Lightning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "nowhere.json"], ["cannot read nowhere.json", "deepsup bench --out"]),
        (["--table", "bad.json"], ["bad.json is not an answer of the bench"]),
        (["--table", "list.json"], ["list.json is not an answer of the bench"]),
        (["--page", "nowhere.md"], ["cannot read nowhere.md"]),
        (["--page", "bad.json"], ["has no place for the table", "bench: begin"]),
        (["--out", "."], ["is a folder"]),
        (["--out", "bad.json/bench.json"], ["cannot write bad.json/bench.json"]),
        (["--quik"], ["--quik", "--quick"]),
    ],
    ids=" ".join,
)
def test_what_a_user_can_mend_is_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("list.json").write_text("[]")
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    for word in words:
        assert word in captured.err


def test_where_there_is_no_cifar_random_arrays_stand_in(monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path))
    data, told = bench_module.cifar10()
    assert "not in the data folder" in told
    assert data.train.images.shape == (50_000, 3, 32, 32)
    assert list(tmp_path.iterdir()) == []  # nothing was fetched


def test_the_documents_table_is_that_of_the_committed_results():
    answer = answers.read_answer(ROOT / "results" / "bench.json")
    page = (ROOT / "docs" / "speed.md").read_text()
    place = page[page.index(answers.BEGIN) + len(answers.BEGIN) : page.index(answers.END)]
    assert place.strip() == answers.markdown(answer), "deepsup bench --table results/bench.json --page docs/speed.md"
