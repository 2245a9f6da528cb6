"""What a stranger plants in a folder: nothing outside of it is written, read into a page, or removed."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from attacks import ATTACKS, HOSTILE, command, hostile_comparison, hostile_sweep, snapshot, stopped_run, touched
from PIL import Image
from safetensors.torch import load_file, save

from deepsup import Run
from deepsup.errors import RunError, WriteError
from deepsup.io import append_line, below, file_name, folder_below, printable, whole_file, write_whole
from deepsup.trainer.demo._demo_nets import demo_net
from deepsup.trainer.report._names import shorten
from deepsup.trainer.runs import RunFolder


@pytest.fixture(scope="module")
def sound(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped_run(digits, tmp_path_factory.mktemp("sound"))


QUICK = {
    "link .lock": "train", "hard_link .lock": "train", "dangling .lock": "train", "fifo .lock": "train",
    "folder .lock": "train", "link metrics.jsonl": "train", "hard_link metrics.jsonl": "train",
    "folder metrics.jsonl": "train", "link report.html": "report", "link plots/losses.png": "report",
    "dangling plots/losses.svg": "report", "hard_link plots/confusion.png": "report",
    "link checkpoints/step-000000006.pt": "train", "folder checkpoints/.half.part": "train",
    "linked folder plots": "report", "linked folder checkpoints": "train", "linked folder export": "export",
    "fifo insight.json": "report", "folder environment.json": "train", "temporary names": "train", "events": "train",
}  # fmt: skip
"""One of each kind, with the verb that it is for; all of them with all verbs are slow."""


@pytest.mark.parametrize("name", QUICK)
def test_nothing_outside_is_touched(name: str, sound: Path, tmp_path: Path) -> None:
    assert touched(sound, tmp_path, ATTACKS[name], (QUICK[name],)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_outside_is_touched_by_any_verb(name: str, sound: Path, tmp_path: Path) -> None:
    assert touched(sound, tmp_path, ATTACKS[name]) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_a_file_become_safe_names_of_files(name: str, tmp_path: Path) -> None:
    made = file_name(name)
    assert Path(made).name == made
    assert not made.startswith(".")
    assert len(made.encode()) < 200
    assert made.isprintable()
    (tmp_path / f"{made}.svg").touch()
    assert made != file_name(f"{name}2")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (number not in (0, 6))) for number, name in enumerate(HOSTILE)],
)
def test_a_setting_of_a_sweep_cannot_lead_out_of_its_folder(name: str, tmp_path: Path) -> None:
    """Its name becomes the name of a figure."""
    outside, sweep = tmp_path / "outside", tmp_path / "stranger" / "sweep"
    outside.mkdir(parents=True)
    (sweep / "plots" / "slice-x").mkdir(parents=True)
    (sweep / "sweep.json").write_bytes(hostile_sweep(name))
    done = command("report", sweep)
    assert done.code == 0, done.said
    assert snapshot(outside) == {}
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "stranger"}
    assert [path.name for path in (tmp_path / "stranger").iterdir()] == ["sweep"]
    figures = list((sweep / "plots").glob("slice-*.svg"))
    assert len(figures) == 4
    for figure in figures:
        ElementTree.parse(figure)


@pytest.mark.parametrize("name", ["../secret", "/home/me", "a/../../secret", "..", "", "a\0b", "linked", "./secret"])
def test_a_comparison_names_only_runs_in_its_folder(name: str, sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    folder.mkdir()
    (folder / "linked").symlink_to(sound)
    (folder / "comparison.json").write_bytes(hostile_comparison(name))
    done = command("report", folder)
    assert done.code == 2
    assert done.said.startswith("deepsup: ")
    assert str(folder) in done.said
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "insight.npz", "metrics.jsonl"])
def test_a_page_shows_nothing_from_outside(name: str, sound: Path, tmp_path: Path) -> None:
    """A link to a file of mine must not bring it into a page that I may hand on."""
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(sound, run)
    (run / name).rename(mine)
    (run / name).symlink_to(mine)
    done = command("report", run)
    assert done.code == 2
    assert f"{run / name} is a link" in done.said


def test_lines_of_a_file_of_mine_do_not_become_those_of_a_run(tmp_path: Path) -> None:
    run, mine = RunFolder(tmp_path / "run"), tmp_path / "mine.jsonl"
    run.folder.mkdir()
    mine.write_text('{"epoch": 0, "secret": 1}\n')
    (run.folder / "metrics.jsonl").symlink_to(mine)
    with pytest.raises(RunError, match=r"metrics\.jsonl is a link"):
        run.keep_metrics(9)


@pytest.mark.parametrize("kind", ["nan", "large", "link", "linked folder"])
def test_snapshots_of_a_stranger(kind: str, sound: Path, tmp_path: Path) -> None:
    """Weights that are not finite ended in a traceback; weights of mine must not come into a page."""
    run = Path(shutil.copytree(sound, tmp_path / "run"))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 0}\n{"epoch": 1}\n')
    path = next((run / "snapshots").glob("epoch-0000.safetensors"))
    if kind in ("nan", "large"):
        factor = float("nan") if kind == "nan" else 1e300
        weights = {name: value.double() * factor for name, value in load_file(path).items()}
        path.write_bytes(save(weights))
    else:
        linked = path if kind == "link" else path.parent
        linked.rename(tmp_path / "mine")
        linked.symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match=r"(numbers that are not finite; remove it|is a link)"):
        demo_net(RunFolder(run))


@pytest.mark.parametrize("name", ["a.onnx", "a.pt2"])
def test_no_verb_takes_an_exported_file(name: str, sound: Path, digits: Path, tmp_path: Path) -> None:
    """Wherever one is given, one line says what was expected: none is opened as a program."""
    path, out = tmp_path / name, tmp_path / "out"
    if name == "a.pt2":  # a zip of pickles and weights, as torch.export writes it
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive_format", "pt2")
            archive.writestr("data/constants/model_constants.pt", b"cos\nsystem\n(X\x04\x00\x00\x00trueetR.")
    else:
        path.write_bytes(b"\x08\x07\x12\x07pytorch:\x80\x80\x80\x80\x08")
    train = ["train", "--epochs", "1", "--no-tensorboard", "--out", out]
    for words in (["predict", sound, path], ["predict", path, path], ["report", path], ["evaluate", path],
                  ["evaluate", sound, "--data", path], ["inspect", path], ["exits", path], ["demo", path],
                  ["export", path, "--to", "onnx"], ["train", "--out", path, "--resume"],
                  [*train, "--data", path], [*train, "--data", digits, "--weights", path],
                  [*train, "--data", digits, "--start-from", path], ["compare", "--config", path]):  # fmt: skip
        done = command(*words)
        assert done.code == 2, words
        assert done.said.count("deepsup: ") == 1, words
        assert "Traceback" not in done.said


def test_hostile_names_on_a_page(sound: Path, tmp_path: Path) -> None:
    """Control and bidirectional characters are spelled out; the page is UTF-8, and its figures are XML."""
    run = Path(shutil.copytree(sound, tmp_path / "run"))
    names = [f"{name}{number}" for number, name in enumerate(("\x1b[2J", "\u202egnp", "\udc80", "a\0\ufffe", "\u200f"))]
    insight = json.loads((run / "insight.json").read_text())
    insight["classes"][: len(names)] = names
    for each in insight["mistakes"]:
        each["label"], each["said"] = names[0], names[2]
    (run / "insight.json").write_text(json.dumps(insight))
    lines = (run / "metrics.jsonl").read_text().replace("conv1", "conv\\u0007\\u202e\\udc80")
    (run / "metrics.jsonl").write_text(lines)
    assert command("report", run).code == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "\\x1b[2J" in page
    assert "\\u202egnp" in page
    assert [char for char in page if printable(char) != char] == []
    for figure in (run / "plots").glob("*.svg"):
        ElementTree.parse(figure)


@pytest.mark.slow
def test_names_of_a_million_letters(sound: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(sound, tmp_path / "run"))
    lines = (run / "metrics.jsonl").read_text().replace('"conv1"', f'"{"x" * 1_000_000}"')
    (run / "metrics.jsonl").write_text(lines)
    done = command("report", run)
    assert done.code == 0
    assert done.seconds < 20  # as long as for other names
    for figure in (run / "plots").glob("*.svg"):
        assert figure.stat().st_size < 10**7


def test_a_long_name_is_shortened() -> None:
    assert shorten("ab" * 10**6, 10) == "abababa…ab"


def test_what_is_handed_on_is_of_the_run(sound: Path, tmp_path: Path) -> None:
    """A link would bring a file of mine to whom I give the copy; those of the hub's cache lead to its blobs."""
    cache, mine = tmp_path / "models--a--b", tmp_path / "mine.json"
    run = Path(shutil.copytree(sound, cache / "snapshots" / "abc"))
    (cache / "blobs").mkdir()
    (run / "environment.json").rename(cache / "blobs" / "1")
    (run / "environment.json").symlink_to(cache / "blobs" / "1")
    Run(run).save_pretrained(tmp_path / "copy")
    mine.write_text('{"password": "mine"}')
    (run / "environment.json").unlink()
    (run / "environment.json").symlink_to(mine)
    with pytest.raises(RunError, match=r"environment\.json is a link"):
        Run(run).save_pretrained(tmp_path / "other")
    assert "password" not in "".join(path.read_text(errors="ignore") for path in (tmp_path / "other").iterdir())


@pytest.mark.slow
def test_hostile_classes_from_training_to_the_last_page(tmp_path: Path) -> None:
    """An .npz of a stranger names the classes; every verb takes them, and no page or terminal acts on them."""
    classes = ["\x1b[2J</script>", "\u202egnp\udc80", "a\0\ufffeb"]
    images, labels = np.arange(30 * 28 * 28).astype(np.uint8).reshape(30, 28, 28), np.arange(30) % 3
    np.savez(tmp_path / "data.npz", images=images, labels=labels, classes=np.array(classes))
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    run = tmp_path / "run"
    train = ["train", "--data", tmp_path / "data.npz", "--epochs", "1", "--batch-size", "8", "--no-tensorboard"]
    for words in ([*train, "--out", run], ["report", run], ["demo", run], ["predict", run, tmp_path / "a.png"],
                  ["export", run, "--to", "safetensors"], ["evaluate", run]):  # fmt: skip
        done = command(*words)
        assert done.code == 0, done.said
        assert [char for char in done.said if printable(char) != char and char != "\r"] == []
    for page in (run / "report.html", run / "demo.html"):
        text = page.read_text(encoding="utf-8")
        assert [char for char in text if printable(char) != char] == []
        assert text.count("</script>") == text.count("<script")
    for figure in (run / "plots").glob("*.svg"):
        ElementTree.parse(figure)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a") as file:
        file.write(b"new" if file.write(b"half") > 9 else bytes(1 // 0))
    assert snapshot(tmp_path).keys() == {"a"}
    assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask()


def mask() -> int:
    os.umask(before := os.umask(0))
    return before


def test_what_is_no_regular_file_is_not_added_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "folder").mkdir()
    for name, said in (("fifo", "it is a FIFO"), ("link", "it is a link; move"), ("folder", "it is a folder; move")):
        with pytest.raises(WriteError, match=f"cannot write .*/{name}: {said}.*, then try again"):
            append_line(tmp_path / name, "x")
    assert not (tmp_path / "new").exists()
    append_line(tmp_path / "file", "x")
    append_line(tmp_path / "file", "y")
    assert (tmp_path / "file").read_text() == "x\ny\n"


def test_a_folder_below_another(tmp_path: Path) -> None:
    assert folder_below(tmp_path, "a", "b") == tmp_path / "a" / "b"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(RunError, match=r"link is a link, which may lead out of .*; remove the link"):
        folder_below(tmp_path, "link", "c")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"file: File exists; move it out of the way"):
        folder_below(tmp_path, "file")
    with pytest.raises(WriteError, match=r"cannot write .*file/run/.lock: .*file is a file, expected a folder; move"):
        write_whole(tmp_path / "file" / "run" / ".lock", b"")
    linked = tmp_path / "mine"
    linked.symlink_to(tmp_path / "a")  # the user's own way to the folder may be a link
    assert below(linked, "b") == linked / "b"
