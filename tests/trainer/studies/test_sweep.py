"""Sweeps: equal trials, the defaults first, validation only, the same when stopped and resumed, many processes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from postgres_server import PostgresServer, postgres_missing

from deepsup.cli import main
from deepsup.errors import ConfigError, MissingPackageError, RunError, TrainingError
from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.studies import sweep as sweep_anywhere
from deepsup.trainer.studies._engine import Engine
from deepsup.trainer.studies._rate_choice import held_out
from deepsup.trainer.studies._sweep_space import COMPANIONS, DECIDED, Choice, Range, default_space, read_space
from deepsup.trainer.training import Callback

optuna = pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")
# Optuna 5 uses what scikit-learn deprecates, where fANOVA is measured
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")

ONE = Engine(jobs=1, cpus=1)  # one thread: on a busy machine a second one only waits


def sweep(config: Config | None, out: Path, **more: Any) -> dict[str, Any]:
    return sweep_anywhere(config, out, engine=ONE, **more)


SPACE = "lr: {low: 0.001, high: 0.1, log: true}\nalpha: {low: 0.1, high: 1}\ntaps: [[network], [conv1]]\n"


@pytest.fixture(scope="module")
def config(digits: Path) -> Config:
    return Config(data=str(digits), epochs=2, batch_size=48, lr=0.02, tensorboard=False)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("space") / "space.yaml"
    path.write_text(SPACE)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep") / "swept"


@pytest.fixture(scope="module")
def answer(config: Config, space: Path, folder: Path) -> dict[str, Any]:
    return sweep(config, folder, space=space, trials=3, seeds=1)


def comparable(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(t["method"], t["number"], t["state"], t["validation_error"], t["settings"]) for t in answer["trials"]]


def test_both_nets_have_the_same_number_of_trials_and_begin_with_the_defaults(answer, config: Config) -> None:
    for method in ("supervised", "plain"):
        mine = [trial for trial in answer["trials"] if trial["method"] == method]
        assert [trial["number"] for trial in mine] == [0, 1, 2]
        assert answer["methods"][method]["trials"] == 3
        assert mine[0]["settings"]["lr"] == 0.02
        assert len({trial["settings"]["lr"] for trial in mine}) == 3
        found = answer["methods"][method]
        ended = [trial["validation_error"] for trial in mine if trial["state"] == "complete"]
        assert found["validation_error"] == min(ended) <= found["defaults_error"] == mine[0]["validation_error"]
    plain = [trial["settings"] for trial in answer["trials"] if trial["method"] == "plain"]
    assert all(set(settings) == {"lr"} for settings in plain)
    best = min(answer["methods"].values(), key=lambda each: each["validation_error"])
    assert answer["best"]["validation_error"] == best["validation_error"]


def test_trials_never_read_the_test_set_and_the_winners_do_once(answer, folder: Path) -> None:
    trials = [RunFolder(path) for path in (folder / "trials").iterdir()]
    assert len(trials) == 6
    for run in trials:
        assert not run.config.run.test
        assert not any("test_error" in record for record in run.metrics)
        assert not run.finished or run.result["error"] is None
    for method, each in answer["methods"].items():
        runs = [RunFolder(folder / name) for name in each["runs"]]
        assert [run.result["error"] for run in runs] == each["errors"]
        assert [run.config.run.seed for run in runs] == [0]
        assert {run.config.data.validation for run in runs} == {0}
        assert (runs[0].config.supervision.taps == ("none",)) is (method == "plain")
    assert len(list((folder / "final").iterdir())) == 2


def test_the_error_of_a_trial_is_that_of_a_run_by_hand(answer, config: Config, tmp_path: Path) -> None:
    """The oracle: the settings of each method's winner, trained without the sweep on the same split."""
    from deepsup.trainer.runs._train import train

    for method, each in answer["methods"].items():
        taps = {"taps": ("none",)} if method == "plain" else {}
        by_hand = held_out(config.replace(**each["settings"] | taps), 2000)
        assert train(by_hand, tmp_path / method).result["validation_error"] == each["validation_error"]


def test_the_winner_is_a_config_that_train_takes(answer, folder: Path, tmp_path: Path, capsys) -> None:
    best = answer["best"]
    assert best["config"] == str(folder / "best.yaml")
    assert Config.from_yaml(best["config"]) == Config.from_yaml(folder / f"{best['method']}.yaml")
    assert main(["train", "--config", best["config"], "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == answer["methods"][best["method"]]["errors"][0]
    assert RunFolder(tmp_path / "run").config.optimizer.lr == best["settings"]["lr"]


def test_a_sweep_that_was_stopped_goes_on_as_if_it_had_not_been(
    answer, config: Config, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of a trial; what had ended is not trained again."""
    from deepsup.trainer.studies import _sweep_trial as trial_run

    class Stop(Callback):
        def __init__(self, task: Any) -> None:
            self.now = (task.method, task.number) == ("plain", 1)

        def step_ended(self, training: Any) -> None:
            if self.now and training.iteration == 6:
                raise KeyboardInterrupt

    class Both(trial_run.Pruning):
        def __init__(self, task: Any) -> None:
            super().__init__(task)
            self.stop = Stop(task)

        def step_ended(self, training: Any) -> None:
            self.stop.step_ended(training)

    out = tmp_path / "out"
    whole = trial_run.Pruning
    monkeypatch.setattr(trial_run, "Pruning", Both)
    with pytest.raises(KeyboardInterrupt):
        sweep(config.replace(checkpoint_steps=2), out, space=space, trials=3, seeds=1)
    ended = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(ended) == 3
    monkeypatch.setattr(trial_run, "Pruning", whole)
    again = sweep(None, out, trials=3, seeds=1, resume=True)
    assert comparable(again) == comparable(answer)
    assert again["methods"]["plain"]["errors"] == answer["methods"]["plain"]["errors"]
    assert {path: path.stat().st_mtime_ns for path in ended} == ended
    lost = RunFolder(out / "trials" / "plain-0001")
    assert [record["epoch"] for record in lost.metrics] == list(range(len(lost.metrics)))


def test_more_trials_on_a_finished_sweep(answer, config: Config, space: Path, tmp_path: Path, folder: Path) -> None:
    out = tmp_path / "out"
    sweep(config, out, space=space, trials=1, seeds=1, storage=str(tmp_path / "trials.journal"))
    again = sweep(config, out, space=space, trials=2, seeds=1, resume=True)
    assert comparable(again) == [trial for trial in comparable(answer) if trial[1] < 2]
    assert (tmp_path / "trials.journal").read_text().startswith("{")
    assert not (out / "study.db").exists()


def test_trials_that_are_not_promising_end_early(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate that does not train is pruned, and a divergence is a result; the pruner here has a fixed threshold."""
    pruner = optuna.pruners.ThresholdPruner(upper=85, n_warmup_steps=1)
    monkeypatch.setattr("deepsup.trainer.studies._sweep_trial.pruner_of", lambda _: pruner)
    path = tmp_path / "space.yaml"
    path.write_text("lr: [1.0e-9, 1.0e+9]\n")
    found = sweep(config.replace(epochs=3), tmp_path / "out", space=path, trials=4, seeds=1)
    states = {trial["settings"]["lr"]: trial["state"] for trial in found["trials"]}
    assert states == {0.02: "complete", 1e-9: "pruned", 1e9: "diverged"}  # the defaults are outside of the space
    assert found["best"]["settings"]["lr"] == 0.02
    for trial in (trial for trial in found["trials"] if trial["state"] == "pruned"):
        assert (trial["epochs"], trial["validation_error"]) == (2, None)


def test_the_importance_of_settings(config: Config, tmp_path: Path) -> None:
    """Trials whose error depends on one of two settings alone; too few trials say nothing."""
    from deepsup.trainer.studies._sweep_search import Search

    space = {"lr": Range(0.0, 1.0), "alpha": Range(0.0, 1.0)}
    search = Search("supervised", config, space, f"sqlite:///{tmp_path}/study.db", "mine", tmp_path, "me")
    for number in range(12):
        task = search.ask(deadline=0.0)
        outcome = {"state": "complete", "epochs": 2, "seconds": 1.0, "why": ""}
        search.tell(task, outcome | {"validation_error": 10 * task.config.optimizer.lr})
        assert number >= 3 or search.importance() == {}
    found = search.importance()
    assert list(found) == ["lr", "alpha"]
    assert found["lr"] > 0.8


def test_the_pruner_is_the_median_of_earlier_trials(config: Config) -> None:
    from deepsup.trainer.studies._sweep_trial import pruner_of

    study = optuna.create_study()
    for error in (10.0, 20.0, 30.0, 40.0, 50.0):
        values = dict.fromkeys(range(9), error)
        study.add_trial(optuna.create_trial(value=error, intermediate_values=values))
    for error, epoch, pruned in ((31.0, 8, True), (29.0, 8, False), (99.0, 2, False)):
        trial = study.ask()
        trial.report(error, epoch)
        frozen = study._storage.get_trial(trial._trial_id)
        assert bool(pruner_of(config.replace(epochs=9)).prune(study, frozen)) is pruned
        study.tell(trial, state=optuna.trial.TrialState.FAIL)


def test_a_space_of_companions_only_needs_one_plain_run(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("alpha: {low: 0.1, high: 1}\n")
    found = sweep(config, tmp_path / "out", space=path, trials=2, seeds=1)
    assert [found["methods"][method]["trials"] for method in ("supervised", "plain")] == [2, 1]


def run_verb(words: list[str], **more: Any) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "deepsup", "sweep", *words], stdout=subprocess.PIPE, text=True, **more
    )


def search_together(config: Config, space: Path, out: Path, storage: str | None) -> None:
    """Two processes search together; between them they train every trial once. Of three, no importance is measured."""
    settings = out.parent / "config.yaml"
    settings.write_text(config.to_yaml())
    words = ["--config", str(settings), "--space", str(space), "--out", str(out), "--resume", "--json"]
    words += ["--trials", "3", "--seeds", "1", "--cpus", "1", *(["--storage", storage] if storage else [])]
    processes = [run_verb(words) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=200)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert any(answer["others"] == 0 for answer in answers)
    last = json.loads((out / "sweep.json").read_text())
    for method in ("supervised", "plain"):
        mine = [trial for trial in last["trials"] if trial["method"] == method]
        assert {trial["number"] for trial in mine} >= {0, 1, 2}
        assert len(mine) <= 4  # both may ask for the last one at once
    owners = {trial.user_attrs["owner"] for trial in trials_in(out, storage)}
    assert len(owners) == 2
    assert not any((out / ".drivers").iterdir())


def trials_in(out: Path, storage: str | None) -> list[Any]:
    from deepsup.trainer.studies._sweep_storage import storage_of

    opened = storage_of(storage or f"sqlite:///{out / 'study.db'}")
    trials = [trial for study in opened.get_all_studies() for trial in opened.get_all_trials(study._study_id)]
    opened.remove_session()
    opened.engine.dispose()  # a connection that is deleted while it is open is a warning in whatever test comes next
    return trials


@pytest.mark.slow
def test_two_processes_on_one_sqlite_file(config: Config, space: Path, tmp_path: Path) -> None:
    search_together(config, space, tmp_path / "out", None)


@pytest.fixture
def postgres() -> Iterator[str]:
    if postgres_missing():
        pytest.skip(postgres_missing())
    with PostgresServer() as server:
        yield server.url


@pytest.mark.slow
def test_two_processes_on_one_postgresql_server(config: Config, space: Path, tmp_path: Path, postgres: str) -> None:
    out = tmp_path / "out"
    search_together(config, space, out, postgres)
    for path in (*out.glob("*.json"), *out.glob("*.yaml"), *out.glob("*.html")):
        assert "secret" not in path.read_text(), path
    with pytest.raises(RunError, match="a database with a password; give its URL again: --storage URL"):
        sweep(None, out, resume=True)


def test_the_verb_with_its_page(config: Config, space: Path, folder: Path, answer, capsys) -> None:
    assert (
        main(["sweep", "--out", str(folder), "--resume", "--cpus", "1", "--trials", "3", "--seeds", "1", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert comparable(found) == comparable(answer)
    page = Path(found["report"]).read_text()
    assert "Plain against supervised, at equal budgets" in page
    assert "The error over each setting" in page
    assert main(["sweep", "--out", str(folder), "--resume", "--cpus", "1", "--trials", "3", "--seeds", "1"]) == 0
    text = capsys.readouterr().out
    assert f"next: deepsup train --config {folder / 'best.yaml'}" in text


def test_the_default_space_contains_the_defaults() -> None:
    config = Config()
    space = default_space(config, ("conv1", "conv2"))
    assert {"lr", "weight_decay", "alpha", "gamma", "schedule", "at", "pool", "hidden"} == set(space)
    assert space["lr"] == Range(0.003, pytest.approx(0.3), log=True)
    assert space["at"] == Choice((("network",), ("conv1",), ("conv2",)))
    assert config.supervision.pool in space["pool"].values
    assert not COMPANIONS & DECIDED


def test_whole_numbers_and_one_number_for_all_taps(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("batch_size: {low: 16, high: 64}\nalpha: {low: 0, high: 1}\nhidden: [[], [64]]\n")
    space = read_space(path, Config())
    assert space["batch_size"] == Range(16, 64)
    assert isinstance(space["batch_size"].low, int)
    assert space["alpha"] == Range(0.0, 1.0)
    assert space["hidden"] == Choice(((), (64,)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; expected settings and their ranges"),
        ("lrr: [1]", "no setting 'lrr'; did you mean 'lr'"),
        ("seed: [1]", "seed is not searched; expected a setting of the training"),
        ("lr: []", "lr has no choices; expected at least one"),
        ("lr: {low: 0.1, high: 0.01}", "lr has an empty range, 0.1 to 0.01; expected low below high"),
        ("lr: {low: 0.1, high: 0.1}", "lr has an empty range, 0.1 to 0.1"),
        ("lr: {low: 0, high: 0.1, log: true}", "expected low below high, and above 0 for log"),
        ("lr: {low: -1, high: 0.1}", "lr=-1.0; expected a number of at least 0"),
        ("lr: {from: 1, to: 2}", "expected {low: NUMBER, high: NUMBER}"),
        ("lr: 3", "lr is 3; expected {low: NUMBER, high: NUMBER}"),
        ("schedule: {low: 1, high: 2}", "schedule is {'low': 1, 'high': 2}; expected"),
        ("schedule: [linar]", "schedule=linar cannot be built: schedule='linar' is not known; did you mean 'linear'"),
        ("taps: [[conv9]]", "at=conv9 cannot be built"),
        ("loss: [soft]", "loss='soft'"),
    ],
)
def test_a_space_with_a_mistake(text: str, said: str, config: Config, tmp_path: Path, capsys) -> None:
    path, settings = tmp_path / "space.yaml", tmp_path / "config.yaml"
    path.write_text(text)
    settings.write_text(config.to_yaml())
    words = ["sweep", "--config", str(settings), "--space", str(path), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert not (tmp_path / "out" / "settings.json").exists()


def foreign(path: Path) -> str:
    path.write_bytes(b"not a database at all" * 100)
    return f"sqlite:///{path}"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (foreign, "file is not a database"),
        (lambda path: f"sqlite:///{path}/no/such/folder.db", "unable to open database file"),
        (lambda _: "postgresql://me:secret@127.0.0.1:1/x", r"postgresql://me:\*\*\*@127.0.0.1:1/x: .*[Cc]onnection"),
        (lambda _: "nosql://x", "cannot open the storage nosql://x: "),
        (lambda path: foreign(path).removeprefix("sqlite:///"), "is not a journal file of Optuna"),
    ],
)
def test_a_storage_that_cannot_be_opened(
    where: Callable[[Path], str], said: str, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        sweep(config, tmp_path / "out", storage=where(tmp_path / "file"))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sweep_that_does_not_fit_its_folder(answer, config: Config, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already holds a sweep; resume it"):
        sweep(config, folder)
    with pytest.raises(RunError, match=r"searches around another config \(epochs 2 -> 3\)"):
        sweep(config.replace(epochs=3), folder, resume=True)
    other = tmp_path / "other.yaml"
    other.write_text("lr: [0.1, 0.2]\n")
    with pytest.raises(RunError, match="searches another space than"):
        sweep(None, folder, space=other, resume=True)
    with pytest.raises(RunError, match="has 0 other studies and not the trials of this sweep"):
        sweep(None, folder, storage=f"sqlite:///{tmp_path}/new.db", resume=True)


def test_a_budget_too_small_for_one_run(config: Config, space: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"a budget of 0.0001 minutes is too small for one run of each net; expected"
    ):
        sweep(config, tmp_path / "out", space=space, budget=0.0001)
    again = sweep(None, tmp_path / "out", trials=1, seeds=1, resume=True)  # what was begun goes on
    assert again["methods"]["supervised"]["states"] == {"complete": 1}


def test_a_budget_for_fewer_final_runs_has_fewer(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from deepsup.trainer.studies import _sweep

    monkeypatch.setattr(_sweep, "Forecast", lambda *_: SimpleNamespace(seconds=lambda _: 10.0))
    job = _sweep.Job("supervised", "forecast", config, tmp_path)
    with caplog.at_level("INFO", logger="deepsup"):
        for minutes, seeds in ((2.0, 3), (1.1, 2), (0.7, 1)):  # 12, 6.6 and 4.2 runs, two of them trials
            searching = _sweep.Searching([], None, minutes, 3, lambda *_: None)
            searching.forecast(SimpleNamespace(room=lambda: 1), job)
            assert searching.seeds == seeds
    assert "--budget 1.1: 2 of 3 final runs per net" in caplog.messages
    with pytest.raises(TrainingError, match=r"a budget of 0.5 minutes is too small .* at least about 0.7"):
        _sweep.Searching([], None, 0.5, 3, lambda *_: None).forecast(SimpleNamespace(room=lambda: 1), job)


@pytest.mark.parametrize(
    ("best", "interval", "said"),
    [
        ("supervised", (-2, -1), "companions help"),
        ("plain", (1, 2), "companions harm"),
        ("plain", (-1, 1), "not a significant difference"),
        ("plain", (-2, -1), "undecided: the validation images chose the plain net"),
        ("supervised", (1, 2), "undecided: the validation images chose the supervised net"),
    ],
)
def test_the_verdict_never_contradicts_the_chosen_net(best: str, interval: tuple[int, int], said: str) -> None:
    from deepsup.trainer.studies._sweep_summary import verdict

    assert verdict(best, interval).startswith(said)


def test_how_long_a_run_takes_is_known_from_the_longest_part_of_one(config: Config) -> None:
    """A trial that was stopped after one step says little; of a resumed one, only what was trained here counts."""
    from deepsup.trainer.studies._sweep import Searching
    from deepsup.trainer.training import Deadline

    nothing = SimpleNamespace(method="plain", space={}, others=lambda: 0, records=list)
    searching = Searching([nothing], None, 0.2, 3, lambda *_: None)
    for first, last, seconds in ((0, 25, 10.0), (50, 51, 9.0)):
        times = iter([100.0, 100.0 + seconds, 100.0 + seconds])
        deadline = Deadline(0.0, times.__next__)
        training = SimpleNamespace(iteration=first, batches=range(10), config=config.replace(epochs=10), finished=False)
        deadline.started(training)
        training.iteration = last
        deadline.step_ended(training)
        assert deadline.passed
        searching.note({"state": "stopped", "done": deadline.done, "seconds": deadline.seconds})
    minutes = (2 + 2 * 3) * 10.0 / (25 / 100) / 60
    with pytest.raises(TrainingError, match=f"expected at least about {minutes:.1f}; resume with --resume"):
        searching.check_enough()
    searching.note({"state": "complete", "seconds": 30.0})
    with pytest.raises(TrainingError, match=r"expected at least about 4\.0; resume with --resume"):
        searching.check_enough()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "-1"], "budget=-1; expected minutes, more than 0"),
        (["--trials", "0"], "deepsup: trials=0; expected at least 1"),
        (["--seeds", "0"], "deepsup: seeds=0; expected at least 1"),
        (["--validation", "9"], "sweep has no option --validation; sweep holds validation images out by itself"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_mistakes_end_in_one_line(words: list[str], said: str, tmp_path: Path, capsys) -> None:
    assert main(["sweep", "--out", str(tmp_path / "out"), *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def test_what_cannot_be_swept(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sweep chooses one learning rate per method"):
        sweep(config.replace(anneal="plateau", validation=20), tmp_path / "out")
    with pytest.raises(TrainingError, match="finds no CUDA"):
        sweep(config.replace(device="cuda"), tmp_path / "out")


def test_optuna_is_not_installed(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("deepsup.trainer.studies._sweep_storage", "optuna"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        MissingPackageError, match=r'needs the package optuna, which is not installed; pip install "deepsup\[sw'
    ):
        sweep(config, tmp_path / "out")


def test_the_space_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sweep.md").read_text()
    blocks = page.split("```yaml\n")[1:]
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block.split("```")[0])
        assert set(read_space(path, Config())) == set(yaml.safe_load(path.read_text()))
