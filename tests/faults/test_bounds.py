"""Small files that ask for gigabytes, for hours or for a helper program are refused in one line, within a bound."""

import gzip
import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from study_readers import comparison_table

from deepsup import supervise
from deepsup.cli import main
from deepsup.errors import ConfigError, DataError, DeepsupError, RunError
from deepsup.insight import measure
from deepsup.io import read_json, read_yaml
from deepsup.trainer.config import Config
from deepsup.trainer.data._archive import unpack
from deepsup.trainer.data._cifar import read_python
from deepsup.trainer.data._idx import read_idx
from deepsup.trainer.data._images import open_image, read_image_files
from deepsup.trainer.data._load import load_data
from deepsup.trainer.data._npz import read_arrays
from deepsup.trainer.data._svhn import read_svhn
from deepsup.trainer.runs._starting_weights import read_weights
from deepsup.trainer.runs.callbacks._snapshots import read_snapshot
from deepsup.trainer.training import _checkpoint as checkpoint

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


PAIRS_OF_PAIRS = b"\x80\x04})" + b"2\x86" * 60
"""A dictionary, and a pair of twice the same pair, of twice the same pair, ...: its hash would take 2**60 steps."""


def zip_bomb(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w") as file,
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": (600, 2**10, 2**10)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(600):
            file.write(bytes(2**20))
    with zipfile.ZipFile(path, "a") as archive, archive.open("labels.npy", "w") as file:
        np.lib.format.write_array(file, np.arange(600) % 2)


def lying_header(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("images.npy", "labels.npy"):
            with archive.open(name, "w") as file:
                np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (2**33,)})


def mat_bomb(path: Path) -> None:
    stream = zlib.compressobj()
    packed = stream.compress(struct.pack("<II", 14, 100 * 2**20))
    packed += b"".join(stream.compress(bytes(2**20)) for _ in range(100)) + stream.flush()
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed)


def long_name_bomb(path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**31
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(bytes(2**20))


def wide_tensor(path: Path) -> None:
    torch.save({"deepsup": 1, "sums": torch.zeros(1).expand(2**40)}, path)


def packed_checkpoint(path: Path) -> None:
    torch.save({"deepsup": 1, "x": torch.zeros(10**6)}, path)
    with zipfile.ZipFile(path) as old:
        held = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in held.items():
            new.writestr(name, data)


MANY_LISTS = b"\x80\x02](" + b"]" * 3_200_000 + b"e."
"""A list of lists: a byte each in the file, and a hundred in memory."""


def pickled(structure: bytes) -> Callable[[Path], None]:
    """Return what writes a checkpoint with this structure."""

    def make(path: Path) -> None:
        torch.save({"deepsup": 1}, path)
        with zipfile.ZipFile(path) as old:
            held = {name: old.read(name) for name in old.namelist()}
        with zipfile.ZipFile(path, "w") as new:
            for name, data in held.items():
                new.writestr(name, structure if name.endswith(".pkl") else data)

    return make


def old_weights(structure: bytes) -> Callable[[Path], object]:
    """Return what writes a file as old versions of torch did: pickles in a row."""
    first = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    return lambda path: path.write_bytes(b"".join([*first, structure, pickle.dumps([], 2)]))


def two_lists(path: Path) -> None:
    torch.save({"deepsup": 1}, path)
    path.write_bytes(path.read_bytes() * 2)


def asked(name: bytes, argument: bytes) -> bytes:
    """Return a pickle that calls something with a number of 8 bytes or a list."""
    return b"\x80\x02}(X\x07\x00\x00\x00deepsupK\x01X\x01\x00\x00\x00xc" + name + b"\n(" + argument + b"tRu."


EIGHT_GIGABYTES = b"\x8a\x08" + struct.pack("<q", 2**33)
SHARED_LISTS = b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(60)) + b"."
"""A list of twice a list of twice a list, ...: 700 bytes that stand for 2**60 values."""


def many_members(mark: bytes, at: int, layout: str) -> Callable[[Path], object]:
    """Return what writes the end of a zip file that says how long its list of members is."""

    def make(path: Path) -> None:
        end = bytearray(b"PK\5\6".ljust(22, b"\0") if mark.endswith(b"\5\6") else mark.ljust(56, b"\0"))
        struct.pack_into(layout, end, at, 2**27)
        path.write_bytes(bytes(100) + end)

    return make


def many_tensors(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**26) + b"{}")


def read_batch(path: Path) -> None:
    read_python([path], b"labels", 9)


def long_idx(path: Path) -> None:
    path.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 2**31 - 1))


BOMBS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], str]] = {
    "a.yaml": (lambda p: p.write_text(LAUGHS), read_yaml, "it has an alias"),
    "long.yaml": (lambda p: p.write_text("a: 1\n" * 20_000), read_yaml, "expected at most 65,536"),
    "deep.yaml": (lambda p: p.write_text("a: " + "[" * 20_000), read_yaml, "nested too deeply"),
    "deep.json": (lambda p: p.write_text("[" * 10**5), read_json, "nested too deeply"),
    "bomb.npz": (zip_bomb, load_data, "take 629,"),
    "lying.npz": (lying_header, load_data, "does not match its header"),
    "a.mat": (mat_bomb, read_svhn, "expected at most 67,108,864"),
    "memo": (lambda p: p.write_bytes(b"\x80\x02}r\xff\xff\xff\x7f."), read_batch, "memo of"),
    "bytes": (lambda p: p.write_bytes(b"\x80\x04\x8e\0\0\0\x80\0\0\0\0"), read_batch, "expected"),
    "hash": (lambda p: p.write_bytes(PAIRS_OF_PAIRS + b"K\x01s."), read_batch, "keys that are no text"),
    "hashes": (lambda p: p.write_bytes(PAIRS_OF_PAIRS.replace(b"}", b"}(") + b"K\x01u."), read_batch, "no text"),
    "old": (lambda p: p.write_bytes(PAIRS_OF_PAIRS.replace(b"}", b"(") + b"K\x01d."), read_batch, "no text"),
    "set": (lambda p: p.write_bytes(PAIRS_OF_PAIRS.replace(b"}", b"\x8f(") + b"\x90."), read_batch, "it has a set"),
    "a.idx": (long_idx, lambda p: read_idx(p, 1), "claims"),
    "a.tar.gz": (long_name_bomb, lambda p: unpack(p, p.parent / "out"), "a header of 2,147,483,648 bytes"),
    "wide.pt": (wide_tensor, checkpoint.load, "more values than are stored"),
    "packed.pt": (packed_checkpoint, checkpoint.load, "packed records"),
    "zeros.pt": (pickled(asked(b"builtins\nbytearray", EIGHT_GIGABYTES)), checkpoint.load, "asks for builtins.bytearr"),
    "storage.pt": (pickled(asked(b"torch\nFloatStorage", EIGHT_GIGABYTES)), checkpoint.load, "values that are not in"),
    "tensor.pt": (pickled(asked(b"torch\nTensor", EIGHT_GIGABYTES)), checkpoint.load, "it asks for torch.Tensor"),
    "set.pt": (pickled(asked(b"builtins\nset", b"](e")), checkpoint.load, "it asks for builtins.set"),
    "counter.pt": (pickled(asked(b"collections\nCounter", b"](e")), checkpoint.load, "is made of a list"),
    "keys.pt": (pickled(PAIRS_OF_PAIRS + b"K\x01s."), checkpoint.load, "keys that are no text"),
    "lists.pt": (pickled(SHARED_LISTS), checkpoint.load, "stands for more than 1,048,576 values"),
    "steps.pt": (pickled(MANY_LISTS[:3_000_000] + b"e."), checkpoint.load, "more than 1,048,576 operations"),
    "twice.pt": (two_lists, checkpoint.load, "two records of one name, or two lists"),
    "zeros.pth": (old_weights(asked(b"builtins\nbytearray", EIGHT_GIGABYTES)), read_weights, "builtins.bytearray"),
    "keys.pth": (old_weights(PAIRS_OF_PAIRS + b"K\x01s."), read_weights, "keys that are no text"),
    "objects.pt": (pickled(MANY_LISTS), checkpoint.load, "its structure has 3,200,006 bytes"),
    "objects": (lambda p: p.write_bytes(MANY_LISTS), read_batch, "more than 2,097,152 operations"),
    "members.npz": (many_members(b"PK\5\6", 12, "<I"), load_data, "its list of members has 134,217,728 bytes"),
    "large.npz": (many_members(b"PK\6\6", 40, "<Q"), load_data, "its list of members has 134,217,728 bytes"),
    "members.pt": (many_members(b"PK\5\6", 12, "<I"), checkpoint.load, "its list of members has 134,217,728 bytes"),
    "a.safetensors": (many_tensors, read_weights, "its header has 67,108,864 bytes, expected at most 4,194,304"),
    "snapshot.safetensors": (many_tensors, read_snapshot, "its header has 67,108,864 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(name: str, tmp_path: Path) -> None:
    make, read, said = BOMBS[name]
    path = tmp_path / name
    make(path)
    assert path.stat().st_size < 2**22
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DeepsupError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # in KiB: 256 MiB


@pytest.mark.parametrize("piece", ["[],", '"a",', '"ab":{},'])
def test_json_whose_values_take_more_memory_than_there_is(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"a": [{piece * (2**26 // len(piece) - 8)}0]}}')
    with pytest.raises(
        RunError, match=r"a\.json: its values take more memory than the 768 MiB that there are for them"
    ):
        read_json(path)


def measured(script: str, *words: object) -> tuple[list[str], float, float]:
    """Run a script in a process of its own; return what it says, its MiB above the imports, its CPU time."""
    whole = f"""
import resource, sys
from pathlib import Path
import numpy as np
import matplotlib, jinja2
from deepsup.trainer.report import write_report
from deepsup.errors import DeepsupError
def used():
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_maxrss / 2**10, now.ru_utime + now.ru_stime
before = used()
try:
    {script}
except DeepsupError as error:
    print(error)
print(*(now - then for now, then in zip(used(), before)))
"""
    command = [sys.executable, "-c", whole, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    memory, seconds = map(float, last.split())
    return said, memory, seconds


REPORT = "print(write_report(sys.argv[1:]))"


def run_with(folder: Path, metrics: bytes) -> Path:
    """Make a run that has these metrics."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(Config().to_yaml())
    (folder / "metrics.jsonl").write_bytes(metrics)
    return folder


def test_five_million_tiny_lines_of_metrics(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", b'{"epoch":0}\n' * 5_000_000)
    said, memory, seconds = measured(REPORT, run)
    assert "it has more than 262,144 lines" in said[0]
    assert memory < 512
    assert seconds < 5


@pytest.mark.slow
def test_a_new_layer_in_every_epoch(tmp_path: Path) -> None:
    """A table of all layers by all epochs would have 400 million cells."""
    lines = (json.dumps({"epoch": n, "companion_errors": {f"layer{n}": 1.0}}) for n in range(20_000))
    said, memory, seconds = measured(REPORT, run_with(tmp_path / "run", "\n".join(lines).encode()))
    assert "report.html" in said[0]
    assert memory < 512
    assert seconds < 15  # drawing the figures


def test_a_comparison_that_names_one_run_many_times(tmp_path: Path) -> None:
    line = json.dumps({"epoch": 0, "error": 1.0, "companion_errors": {f"layer{n}": 1.0 for n in range(20)}}) + "\n"
    run_with(tmp_path / "all" / "a", (line * 2000).encode())
    (tmp_path / "all" / "a" / "insight.json").write_text("{}")
    np.savez_compressed(tmp_path / "all" / "a" / "insight.npz", unused=np.zeros(2**25))  # 256 MiB that no figure shows
    table = comparison_table()
    for method in table["methods"].values():
        method["runs"] = ["a"] * 2000
    (tmp_path / "all" / "comparison.json").write_text(json.dumps(table))
    said, memory, seconds = measured(REPORT, tmp_path / "all")
    assert "report.html" in said[0]
    assert memory < 256
    assert seconds < 15  # drawing the figures


def test_records_of_many_rows_and_letters(tmp_path: Path) -> None:
    """Half a million layers and 30 million letters made a page of 100 MB; what is left out is counted."""
    run = run_with(tmp_path / "run", b'{"epoch": 0, "error": 1.0}\n')
    (run / "environment.json").write_text(json.dumps({"a": "<" * 30_000_000, "b": "\x1b" * 3_000_000}))
    result = {"error": 1.0, "companions": dict.fromkeys(map(str, range(100_000)), 1.0), "epochs": 1, "seconds": 1.0}
    (run / "result.json").write_text(json.dumps(result))
    said, memory, _ = measured(REPORT, run)
    assert "report.html" in said[0]
    assert memory < 512
    assert (run / "report.html").stat().st_size < 10**6
    assert "and 98,001 more" in (run / "report.html").read_text()


@pytest.mark.slow
def test_a_page_has_one_budget_for_all_runs(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"{n}", b'{"epoch":0,"a":[' + b"0," * 2**24 + b"0]}\n") for n in range(8)]
    said, memory, _ = measured(REPORT, *runs)
    assert "its values take more memory than the 768 MiB" in said[0]
    assert memory < 1024


@pytest.mark.slow
def test_many_runs_take_the_memory_of_one(tmp_path: Path) -> None:
    """17.5 MB per run were kept until the page was written."""
    lines = b"".join(
        json.dumps({"epoch": n, "error": 9.0 - n, "loss": 1.0, "companion_errors": {"conv1": 9.0}}).encode() + b"\n"
        for n in range(5)
    )
    runs = [run_with(tmp_path / f"{n}", lines) for n in range(10)]
    _, few, _ = measured(REPORT, *runs[:2])
    _, many, _ = measured(REPORT, *runs)
    assert many - few < 5 * 8  # MiB for 8 runs more


def test_members_that_are_not_needed_are_not_read(tmp_path: Path) -> None:
    zip_bomb(tmp_path / "a.npz")
    assert read_arrays(tmp_path / "a.npz", ["labels"]).keys() == {"labels"}


def test_text_that_is_encoded_over_and_over(tmp_path: Path) -> None:
    text = pickle.dumps("x" * 1000, 2)[2:-1]  # without the protocol and the stop; it stays in the memo as 0
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    (tmp_path / "a").write_bytes(b"\x80\x02(" + text + call * 500 + b"l.")
    with pytest.raises(DataError, match="of more text than there is"):
        read_python([tmp_path / "a"], b"labels", 9)


FIFO_READERS: dict[str, Callable[[Path], object]] = {
    "a.npz": load_data,
    "a.png": open_image,
    "step-1.pt": checkpoint.load,
    "a.yaml": read_yaml,
    "a.json": read_json,
}


@pytest.mark.parametrize("name", FIFO_READERS)
def test_only_regular_files_are_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DeepsupError, match="a FIFO, a socket or a device"):
        FIFO_READERS[name](tmp_path / name)


def test_a_picture_with_too_many_pixels(tmp_path: Path) -> None:
    Image.new("1", (9000, 9000)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="9000x9000 pixels, expected at most 67,108,864"):
        open_image(tmp_path / "a.png")


def test_a_picture_with_a_side_that_is_too_long(tmp_path: Path) -> None:
    """67,108,863 pixels are few enough, but scaling them to 28 takes gigabytes."""
    Image.new("1", (2**26 - 1, 1)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="67108863x1 pixels, expected at most 65,536 on a side"):
        read_image_files([tmp_path / "a.png"], (1, 28, 28))


def test_a_jpeg_with_thousands_of_scans(tmp_path: Path) -> None:
    """Each goes over all pixels and may have 70 bytes: 5,000 of them take minutes."""
    Image.new("L", (64, 64)).save(tmp_path / "a.jpg", progressive=True)
    assert read_image_files([tmp_path / "a.jpg"], (1, 28, 28)).shape == (1, 1, 28, 28)
    whole = (tmp_path / "a.jpg").read_bytes()
    last = whole[whole.rindex(b"\xff\xda") : -2]
    (tmp_path / "a.jpg").write_bytes(whole[:-2] + last * 5000 + b"\xff\xd9")
    with pytest.raises(DataError, match=r"a\.jpg: not a readable image \(5,\d+ scans, expected at most 100"):
        open_image(tmp_path / "a.jpg")


def test_millions_of_images_of_one_pixel(tmp_path: Path) -> None:
    """33 million of them took 64 KB in the file and gigabytes for their names."""
    few = np.zeros((2**22 + 1, 1, 1), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", images=few, labels=few[:, 0, 0])
    with pytest.raises(DataError, match=r"a\.npz, images: 4,194,305 images; expected at most 4,194,304"):
        load_data(tmp_path / "a.npz")


def test_no_memory_for_a_picture_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image.Image, "resize", none)
    with pytest.raises(DataError, match=r"cannot read .*a\.png: it asks for more memory than there is; repair it"):
        read_image_files([tmp_path / "a.png"], (1, 28, 28))


def test_no_helper_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS under the name of a PNG: pillow would look for Ghostscript."""
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "EPS")
    (tmp_path / "a.png").write_bytes(out.getvalue())
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(DataError, match="it is of no known format; expected PNG, JPEG"):
        open_image(tmp_path / "a.png")


@pytest.mark.parametrize("text", ["a: 2020-01-01", "a: !!binary aGk=", "1: 2", "a: !!set {b}", f"a: {10**30}"])
def test_yaml_that_holds_no_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"cannot read .*a\.yaml: .*; expected a YAML file of settings"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[]", "it is a list, expected dict"),
        ('{"epochs": true}', "'epochs' is a bool, expected int"),
        ('{"epochs": 1, "companions": {"conv1": "x"}}', "'conv1' is a str, expected float"),
        ("{}", "it has no 'epochs'"),
    ],
)
def test_json_of_the_wrong_shape(value: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(value)
    with pytest.raises(RunError, match=rf"cannot read .*a\.json: {said}"):
        read_json(tmp_path / "a.json", {"epochs": int, "companions?": {"*": float}})


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--lr", "1e308"], "lr=1e+308"), (["--hidden", "1000000000"], "the weights of the net take more than")],
)
def test_absurd_settings_end_in_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--train-size", "50", "--batch-size", "10", "--epochs", "1", "--no-tensorboard"]
    assert main(["train", *given, *words, "--out", str(tmp_path / "run")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("deepsup: ")
    assert said in last


@pytest.mark.parametrize(("side", "batches"), [(28, [500, 100]), (1024, [16] * 37 + [8])])
def test_few_large_images_go_through_a_net_at_once(side: int, batches: list[int]) -> None:
    """Many files of the largest size must not take the memory of all of them at once."""
    seen = []

    def normalize(images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return images[:, :, :4, :4].float()

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    net = supervise(model, [], num_classes=3, example=torch.zeros(1, 1, 4, 4))
    images = torch.zeros(1, dtype=torch.uint8).expand(600, 1, side, side)
    found = measure(net, images, torch.zeros(600, dtype=torch.long), normalize)
    assert seen == batches
    assert len(found.scores) == 600
