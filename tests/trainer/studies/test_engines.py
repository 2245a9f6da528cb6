"""Engines: the same results to the bit wherever a run is trained, whoever is killed; and mistakes in one line."""

import builtins
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from deepsup.cli import app, main
from deepsup.errors import MissingPackageError, RunError, TrainingError
from deepsup.trainer.config import Config
from deepsup.trainer.studies import _ray_workers as ray_workers
from deepsup.trainer.studies import sweep
from deepsup.trainer.studies._engine import Engine
from deepsup.trainer.studies._pool import Job, pool, run_job
from deepsup.trainer.studies._ray_workers import (
    DriverPlace,
    check_answers,
    check_resources,
    fits,
    imported_ray,
    work_there,
)

CLUSTER = """
import sys
from deepsup.trainer.studies._ray_workers import imported_ray
ray = imported_ray(starts=True)
ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
print("ADDRESS", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two CPUs; it is its own process, so that several drivers can use it.

    It has the token of the tests, but nothing tells it to ask for one.
    """
    pytest.importorskip("ray", reason="ray is not installed (pip install 'deepsup[ray]')")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environment, **pipes) as head:
        yield next(line.split()[1] for line in head.stdout if line.startswith("ADDRESS"))
        head.stdin.close()


def jobs_in(folder: Path, config: Config) -> list[Job]:
    """Four runs, one of which diverges."""
    configs = [config.replace(seed=seed) for seed in (0, 1, 2)] + [config.replace(lr=1e9)]
    return [Job("DSN", f"c{number}", each, folder / f"run{number}") for number, each in enumerate(configs)]


def weights(folder: Path) -> dict[str, str]:
    """Return run -> a digest of all its weights; the file itself has its metadata in any order."""
    tensors = {path.parent.name: load_file(path) for path in folder.glob("*/*.safetensors")}
    return {
        run: hashlib.sha256(b"".join(named[name].numpy().tobytes() for name in sorted(named))).hexdigest()
        for run, named in tensors.items()
    }


def without_time(results: list[dict]) -> list[dict]:
    return [{key: value for key, value in result.items() if key != "seconds"} for result in results]


@pytest.fixture(scope="module")
def reference(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, list[dict], dict[str, str]]:
    """The results of ``--jobs 1`` with one thread per run, and the digests of its weights."""
    config = Config(data=str(digits), epochs=4, batch_size=20, lr=0.01, checkpoint_steps=4, tensorboard=False)
    folder = tmp_path_factory.mktemp("reference")
    with pool(Engine(jobs=1, cpus=1), folder) as run_all:
        results = run_all(jobs_in(folder, config), lambda *_: None)
    return config, without_time(results), weights(folder)


def kill_owner(run: Path, killed: list[int]) -> None:
    """Kill the process that trains a run, once it has written a checkpoint."""
    while not (run / "result.json").exists():
        if any((run / "checkpoints").glob("step-*.pt")) and (run / ".lock").is_file():
            killed.append(json.loads((run / ".lock").read_text())["pid"])
            os.kill(killed[0], signal.SIGKILL)
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_ray_gives_the_same_bits_whoever_is_killed(
    cluster: str, reference: tuple[Config, list[dict], dict[str, str]], tmp_path: Path
) -> None:
    """A driver is killed, and then a worker of the next; a run that had ended before is not touched."""
    config, results, digests = reference
    printing = builtins.print
    code = "import sys; sys.path.insert(0, 'tests/trainer/studies'); import test_engines as t; t.drive(*sys.argv[1:])"
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    command = [sys.executable, "-c", code, cluster, str(tmp_path)]
    driver = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    while not any(tmp_path.glob("run*/result.json")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    ended = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run*/result.json")}
    assert 0 < len(ended) < 3
    killed: list[int] = []
    killer = threading.Thread(target=kill_owner, args=(tmp_path / "run2", killed), daemon=True)
    killer.start()
    seen: list[int] = []
    with pool(Engine("ray", address=cluster), tmp_path) as run_all:
        found = run_all(jobs_in(tmp_path, config), lambda _, count: seen.append(count))
    killer.join()
    assert killed
    assert seen == [1, 2, 3, 4]
    assert "diverged" in found[3]["failed"]
    assert without_time(found) == results
    assert weights(tmp_path) == digests
    assert {path: path.stat().st_mtime_ns for path in ended} == ended
    assert len(list(tmp_path.glob(".engine-*"))) == 1  # the mark of the driver that was killed
    assert builtins.print is printing  # Ray had put one of its own in its place, which cannot be pickled


def drive(address: str, folder: str) -> None:
    """What the driver that is killed does."""
    config = Config.from_yaml(Path(folder) / "config.yaml")
    with pool(Engine("ray", address=address), Path(folder)) as run_all:
        run_all(jobs_in(Path(folder), config), lambda *_: time.sleep(60))


def test_a_mistake_in_a_run_comes_back_as_it_is(tmp_path: Path) -> None:
    workers = ray_workers.RayWorkers(Engine("ray"), tmp_path)
    workers.ray = SimpleNamespace(get=lambda handle: handle)
    assert workers.result(7) == 7
    with pytest.raises(TrainingError, match=r"^batch_size=500 with 240 training images"):
        workers.result(work_there(run_job, wrong_job(tmp_path), 1, DriverPlace.of(tmp_path)))


def wrong_job(folder: Path) -> Job:
    return Job("DSN", "a", Config(batch_size=500, train_size=240), folder / "run")


@pytest.mark.slow
def test_a_sweep_on_ray_is_the_sweep_of_one_process(cluster: str, digits: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")
    (tmp_path / "space.yaml").write_text("lr: [0.01, 0.02, 0.05]\n")
    config = Config(data=str(digits), epochs=2, batch_size=60, tensorboard=False)
    found = []
    for name, engine in (("a", Engine(jobs=1, cpus=1)), ("b", Engine("ray", jobs=1, address=cluster))):
        answer = sweep(config, tmp_path / name, space=tmp_path / "space.yaml", trials=1, seeds=1, engine=engine)
        trials = [(each["method"], each["validation_error"], each["settings"]) for each in answer["trials"]]
        found.append((trials, answer["methods"]["plain"]["errors"]))
    assert found[0] == found[1]


def test_runs_that_no_machine_has_room_for() -> None:
    """Ray would wait for a machine for ever."""
    alive = [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": False, "Resources": {"CPU": 16.0}}]
    ray = SimpleNamespace(nodes=lambda: alive)
    check_resources(ray, Engine("ray", cpus=4))
    with pytest.raises(
        TrainingError, match=r"a run needs 9 CPUs and 0 GPUs, and no machine of the cluster .*4 CPUs and"
    ):
        check_resources(ray, Engine("ray", cpus=9))


@pytest.mark.parametrize("token", [None, "00" * 32])
def test_a_cluster_that_is_started_here_refuses_drivers_without_its_token(
    token: str | None, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is asked by a process of its own, as a second driver would; it finds no token in its home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    if token is None:
        monkeypatch.delenv("RAY_AUTH_MODE")
        monkeypatch.delenv("RAY_AUTH_TOKEN")
    else:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with pytest.raises(TrainingError, match="refuses this machine: its token is missing or incorrect; set RAY_AUTH"):
        check_answers(cluster)


TOKENS = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}


@pytest.mark.parametrize(
    ("given", "starts", "made"),
    [
        ({}, True, {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}),
        ({}, False, set()),  # an existing cluster has its own token, or none
        ({"RAY_AUTH_MODE": "disabled"}, True, set()),
        ({"RAY_AUTH_TOKEN": "mine"}, True, {"RAY_AUTH_MODE"}),
        ({"RAY_AUTH_TOKEN_PATH": "mine"}, True, {"RAY_AUTH_MODE"}),
    ],
)
def test_a_cluster_that_is_started_here_gets_a_random_token(
    given: dict[str, str], starts: bool, made: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray reads it when it is imported: by then it must be there. This Ray here keeps what it finds."""
    (tmp_path / "ray.py").write_text("import os\nfound = {**os.environ}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    tokens = []
    for _ in range(2):
        for name in TOKENS:
            monkeypatch.setenv(name, given[name]) if name in given else monkeypatch.delenv(name, raising=False)
        monkeypatch.delitem(sys.modules, "ray", raising=False)
        found = imported_ray(starts).found
        assert {name for name in TOKENS if name in found} == made | set(given)
        assert given.items() <= found.items()
        assert found.get("RAY_AUTH_MODE", "none") == ("token" if made else given.get("RAY_AUTH_MODE", "none"))
        tokens.append(found.get("RAY_AUTH_TOKEN", ""))
    if "RAY_AUTH_TOKEN" in made:
        assert len(tokens[0]) == len(tokens[1]) == 64
        assert tokens[0] != tokens[1]
    for name in TOKENS:  # too late: Ray has been imported
        monkeypatch.delenv(name, raising=False)
    imported_ray(starts)
    assert not TOKENS & set(os.environ)


def test_two_processes_give_the_same_bits(reference: tuple[Config, list[dict], dict[str, str]], tmp_path: Path) -> None:
    config, results, digests = reference
    with pool(Engine(jobs=2, cpus=1), tmp_path) as run_all:
        assert without_time(run_all(jobs_in(tmp_path, config), lambda *_: None)) == results
    assert weights(tmp_path) == digests


def test_tasks_are_taken_as_there_is_room() -> None:
    """A task may depend on the results of earlier ones."""
    results: list[int] = [0]
    tasks = (results[-1] + 1 for _ in range(4))
    with Engine(jobs=1).workers(Path()) as workers:
        for _, result in workers.stream(lambda task, _threads, _own: 2 * task, tasks):
            results.append(result)
    assert results == [0, 2, 6, 14, 30]


def test_threads_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [Engine(jobs=jobs).threads for jobs in (None, 2, 4)] == [3, 3, 2]
    assert Engine(cpus=5).threads == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # of nested levels: not ours to read
    assert Engine().threads == 8
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [Engine(jobs=jobs).threads for jobs in (None, 1, 2, 3, 16)] == [8, 8, 4, 2, 1]
    assert Engine("ray").threads == 8
    assert Engine("ray", jobs=4).threads == 2
    assert Engine("ray", address="auto").threads == 1
    assert Engine("ray", address="auto", cpus=3).threads == 3
    assert fits({"CPU": 8.0, "GPU": 2.0}, Engine("ray", cpus=2, gpus=1)) == 2
    assert fits({"CPU": 8.0}, Engine("ray", cpus=2)) == 4
    assert fits({"CPU": 8.0}, Engine("ray", cpus=2, gpus=0.5)) == 0


def test_options_of_an_engine() -> None:
    assert Engine(jobs=2).options() == ["--jobs", "2"]
    given = ["--jobs", "3", "--engine", "ray", "--address", "a:1", "--cpus", "2", "--gpus", "0.5"]
    assert Engine("ray", 3, 2, 0.5, "a:1").options() == given


def test_a_run_that_a_dying_process_still_owns_is_waited_for(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=1, batch_size=60, tensorboard=False)
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(1)"
    with subprocess.Popen([sys.executable, "-c", hold, tmp_path / ".lock"], stdout=subprocess.PIPE) as owner:
        owner.stdout.readline()
        assert run_job(Job("DSN", "a", config, tmp_path), 1)["epochs"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "spark"], "engine='spark'; expected one of: local, ray"),
        (["--jobs", "0"], "jobs=0; expected at least 1"),
        (["--cpus", "0"], "cpus=0; expected at least 1"),
        (["--gpus", "1"], "gpus=1 with engine=local; it is for --engine ray"),
        (["--engine", "ray", "--gpus", "-1"], "gpus=-1.0; expected at least 0"),
        (["--engine", "ray", "--device", "cuda"], "Ray reserves them: give --gpus 1"),
        (["--engine", "ray", "--address", "nowhere"], "address='nowhere'; expected --address HOST:PORT"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1 (Connection refused)"),
    ],
)
def test_mistakes_end_in_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert main(["compare", *words, "--json"]) == 2
    assert time.monotonic() - began < 20
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert not any(tmp_path.rglob("run*/*"))


def test_no_cluster_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install 'deepsup[ray]')")
    monkeypatch.setattr(ray_workers, "WAIT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TrainingError, match=f"what listens at {address} does not answer as a Ray cluster"):
            check_answers(address)


def test_ray_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r'pip install "deepsup\[ray\]"$'), pool(Engine("ray"), tmp_path):
        pass


def test_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    """Another machine has a folder of that name, or none: the driver's mark is not in it."""
    here = Path.cwd()
    place = DriverPlace.of(tmp_path / "runs")
    assert work_there(lambda task, threads, own: (task, threads, own), 5, 2, place) == (5, 2, True)
    place.leave()
    found = work_there(lambda *_: 0, 5, 2, place)
    assert isinstance(found, RunError)
    assert "expected a file system that all machines share" in str(found)
    assert Path.cwd() == here


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to read the scripts")
def test_the_slurm_scripts_of_the_docs_are_scripts() -> None:
    """They cannot be run here; their syntax and their deepsup commands can be read."""
    page = (Path(__file__).parents[3] / "docs" / "many-machines.md").read_text()
    scripts = [block.split("```")[0] for block in page.split("```bash\n")[1:]]
    assert len(scripts) == 2
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        (command,) = re.findall(r"deepsup ((?:train|sweep) .*)", script)
        assert callable(app._parse(shlex.split(command)))
