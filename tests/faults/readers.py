"""Every reader of deepsup with a sound file of its own: how to make it, how to spoil it, how to read it."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from mutations import damaged, distorted
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from study_readers import comparison_table, hostile_study, read_study_pages, read_sweep_folder, sweep_files, sweep_table

from deepsup import DeeplySupervised, create_network, supervise
from deepsup.errors import DataError, SupervisionError
from deepsup.trainer.config import Config
from deepsup.trainer.data._archive import unpack
from deepsup.trainer.data._cifar import read_binary, read_python
from deepsup.trainer.data._idx import pack_idx, read_pair
from deepsup.trainer.data._images import is_grey, read_image_files
from deepsup.trainer.data._load import load_data
from deepsup.trainer.data._mask_folder import read_mask_folder
from deepsup.trainer.data._storage import read_errors_named
from deepsup.trainer.data._svhn import read_svhn
from deepsup.trainer.report._read import read_run
from deepsup.trainer.report._write import write_report
from deepsup.trainer.runs._exits import digest, load_exits
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.runs._starting_weights import read_weights
from deepsup.trainer.runs._train import RunTraining, train
from deepsup.trainer.runs.callbacks._snapshots import read_snapshot
from deepsup.trainer.training import _checkpoint as checkpoint
from deepsup.trainer.training._distributed import joined


@dataclass(frozen=True)
class Reader:
    """One reader and its sound input."""

    sound: dict[str, bytes]
    """Files by name."""
    read: Callable[[Path], object]
    """Reads the folder that the files are in."""
    spoil: Callable[[str, bytes, Random], bytes] | None = None
    """A hostile edit of the decoded file, beside the changes of its bytes."""
    beside: dict[str, bytes] = field(default_factory=dict)
    """Files that are there too and stay sound."""
    named: bool = True
    """Whether an error has to name the file, or the folder that it is in."""


PIXELS = np.arange(6 * 3 * 32 * 32, dtype=np.uint8).reshape(6, 3, 32, 32)
LABELS = np.arange(6) % 3


def npz(**arrays: np.ndarray) -> bytes:
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return packed.getvalue()


def hostile_npz(_name: str, data: bytes, random: Random) -> bytes:
    """Spoil the arrays inside, in a zip whose checksums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            held = old.read(name)
            new.writestr(zipfile.ZipInfo(name), damaged(held[:128], random) + held[128:])
    return out.getvalue()


def hostile_record(name: str, data: bytes, random: Random) -> bytes:
    """Spoil a record of a run by its kind."""
    if name.endswith("jsonl"):
        lines = [json.dumps(distorted(json.loads(line), random)) for line in data.splitlines()]
        return "\n".join(lines).encode()
    if name.endswith("json"):
        return json.dumps(distorted(json.loads(data), random)).encode()
    return (hostile_yaml if name.endswith("yaml") else hostile_npz)(name, data, random)


def hostile_yaml(_name: str, data: bytes, random: Random) -> bytes:
    return yaml.safe_dump(distorted(yaml.safe_load(data), random)).encode()


def hostile_pickle(_name: str, data: bytes, random: Random) -> bytes:
    odd = random.choice(
        [b"r\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x00", b"B\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f"]
    )
    at = random.randrange(len(data))
    return data[:at] + odd + data[at:]


def mat_element(kind: int, payload: bytes) -> bytes:
    return struct.pack("<II", kind, len(payload)) + payload + b"\0" * (-len(payload) % 8)


def mat_array(name: str, array: np.ndarray, packed: bool) -> bytes:
    flags = struct.pack("<II", 9 if array.dtype == np.uint8 else 6, 0)
    kind = 2 if array.dtype == np.uint8 else 9
    held = mat_element(6, flags) + mat_element(5, np.array(array.shape, "<i4").tobytes())
    held += mat_element(1, name.encode()) + mat_element(kind, array.tobytes(order="F"))
    whole = mat_element(14, held)
    if not packed:
        return whole
    squeezed = zlib.compress(whole)
    return struct.pack("<II", 15, len(squeezed)) + squeezed


def hostile_mat(_name: str, data: bytes, random: Random) -> bytes:
    """Claim another size inside a packed element."""
    size = random.choice([2**32 - 1, 2**31, 2**29, 0, 8])
    inner = struct.pack("<II", 14, size) + b"\0" * random.choice([0, 100, 2**22])
    squeezed = zlib.compress(inner)
    return data[:128] + struct.pack("<II", 15, len(squeezed)) + squeezed


def pictures() -> dict[str, bytes]:
    made = {}
    for kind, suffix in (
        ("PNG", "png"),
        ("JPEG", "jpg"),
        ("GIF", "gif"),
        ("BMP", "bmp"),
        ("TIFF", "tif"),
        ("WEBP", "webp"),
    ):
        out = io.BytesIO()
        Image.fromarray(PIXELS[0].transpose(1, 2, 0)).save(out, kind)
        made[f"a.{suffix}"] = out.getvalue()
    return made


def tar_gz() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("batches/one.bin", "b" * 150 + "/two.bin"):
            info = tarfile.TarInfo(name)
            info.size = 700
            tar.addfile(info, io.BytesIO(b"x" * 700))
    return gzip.compress(out.getvalue(), mtime=0)


def hostile_tar(_name: str, data: bytes, random: Random) -> bytes:
    return gzip.compress(damaged(gzip.decompress(data), random), mtime=0)


def hostile_model(_name: str, data: bytes, random: Random) -> bytes:
    """Spoil what the file says about the net, or a tensor; there is no digest, as in files of older versions."""
    path = Path("model.tmp")
    path.write_bytes(data)
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["deepsup"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if random.random() < 0.2:  # another normalization, without what it has learned
        about["steps"] += random.choice(
            [[{"step": "gcn", "scale": 1.0}], [{"step": "lcn", "size": 7}], [{"step": "zca"}]]
        )
    if random.random() < 0.2:
        tensors = {name: odd_tensor(t, random) if random.random() < 0.2 else t for name, t in tensors.items()}
    return to_safetensors(tensors, {"deepsup": json.dumps(distorted(about, random))})


def odd_tensor(tensor: Any, random: Random) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return random.choice([None, 0, "x"])
    kinds = [
        tensor.reshape(-1), tensor[..., None], tensor.double(), tensor.to(torch.int64), torch.zeros(0), torch.zeros(()),
        torch.full_like(tensor.float(), float("nan")), torch.ones(1, 2).expand(2**20, 2).contiguous()[:3],
    ]  # fmt: skip
    return random.choice(kinds).contiguous()


def hostile_checkpoint(_name: str, data: bytes, random: Random) -> bytes:
    out = io.BytesIO()
    torch.save(distorted(torch.load(io.BytesIO(data)), random, odd_tensor), out)
    return out.getvalue()


def read_records(folder: Path) -> None:
    """Read each record as the verbs do."""
    run = RunFolder(folder)
    read_run(folder)
    _ = run.config, run.result, run.metrics, run.split, run.insight, run.environment, run.changes, run.diverged


def run_files(folder: Path) -> tuple[dict[str, bytes], RunTraining]:
    """Return the files of a run of a few steps, and the trainer that could resume it."""
    data = folder / "data.npz"
    data.write_bytes(npz(images=np.arange(12 * 28 * 28, dtype=np.uint8).reshape(12, 28, 28), labels=np.arange(12) % 3))
    config = Config(data=str(data), epochs=1, batch_size=2, tensorboard=False)
    run = train(config, folder / "run")
    with joined("cpu") as processes:
        trainer = RunTraining(config, run, processes)
    (folder / "run" / "changes.json").write_text('{"changes": [{"epoch": 0, "step": 0, "changed": {}}]}')
    (folder / "run" / "diverged.json").write_text('{"failed": "x", "config": {}}')
    (folder / "run" / "exits.json").write_text(json.dumps(early_exits(run)))
    (folder / "run" / "exits.npz").write_bytes(npz(images=PIXELS[:1, :1]))
    files = {path.name: path.read_bytes() for path in (folder / "run").glob("*.*")}
    files["step.pt"] = checkpoint.all_steps(folder / "run" / "checkpoints")[-1].read_bytes()
    return files, trainer


def saved(state: dict[str, Any]) -> bytes:
    """Return what torch.save writes."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def early_exits(run: RunFolder) -> dict[str, Any]:
    """What ``deepsup exits`` leaves."""
    taps = load_model(run).net.taps
    point = {"cost": 0.5, "error": 9.0, "multiply_adds": 0.4, "thresholds": dict.fromkeys(taps, 0.5), "batch": 32}
    return {
        "plain_error": 10.0, "error": 9.0, "speedup": {"1": 2.0}, "thresholds": dict.fromkeys(taps, 0.5),
        "temperatures": dict.fromkeys((*taps, "output"), 1.0), "exits": {"output": {"share": 100.0, "error": 9.0}},
        "validation": {"plain_error": 10.0}, "curve": [point], "model": digest(run),
        "shown": [{"exit": "output", "label": "a", "said": "b", "index": 0, "confidence": 0.5}],
    }  # fmt: skip


def read_exits(folder: Path) -> None:
    load_exits(RunFolder(folder))[0](torch.zeros(2, 1, 28, 28))


def read_pictures(folder: Path) -> None:
    """Read each picture as a folder of images and as a file to predict."""
    faults = []
    for file in sorted(folder.iterdir()):
        try:
            is_grey(file)
            read_image_files([file], (3, 8, 8))
        except DataError as error:
            faults.append(error)
    if faults:
        raise faults[0]


def palette_mask() -> bytes:
    out, image = io.BytesIO(), Image.fromarray(PIXELS[0, 0] % 3, "P")
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    image.save(out, "PNG")
    return out.getvalue()


def read_masks(folder: Path) -> None:
    """Read an image and its mask as a folder of the user's own."""
    for name in ("images", "masks"):
        (folder / "set" / name).mkdir(parents=True)
        (folder / f"{name}.png").rename(folder / "set" / name / "a.png")
    read_mask_folder(folder / "set")


def read_model(folder: Path) -> None:
    load_model(RunFolder(folder)).measure(PIXELS[:1, :1, :28, :28])


def read_checkpoint(trainer: RunTraining, folder: Path) -> None:
    path = folder / "step.pt"
    trainer.checkpointing.restore_from(trainer.training, path, checkpoint.load(path))


def known(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Read as load_data does for the sets that are known by name."""

    def named(at: Path) -> None:
        with read_errors_named(at):
            read(at)

    return named


def data_readers() -> dict[str, Reader]:
    """Return the readers of images and of settings."""
    idx = {"images": pack_idx(PIXELS[:, 0]), "labels": pack_idx(LABELS.astype(np.uint8))}
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in idx.items()}
    rows = np.hstack([LABELS[:, None].astype(np.uint8), PIXELS.reshape(6, -1)])
    batch = {b"data": PIXELS.reshape(6, -1), b"labels": LABELS.tolist()}
    mat = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    mat += mat_array("X", PIXELS.transpose(2, 3, 1, 0).copy(), packed=True)
    mat += mat_array("y", LABELS[:, None] + 1.0, packed=False)
    arrays = npz(images=PIXELS, labels=LABELS, classes=np.array(["a", "b", "c"]), unused=np.zeros(10**5))
    settings = Config(network_options={"drop": 0.3}, phases=[{"epochs": 1, "lr": 0.1}])  # type: ignore[arg-type]
    return {
        "idx": Reader(idx, known(lambda at: read_pair(at / "images", at / "labels"))),
        "idx.gz": Reader(packed, known(lambda at: read_pair(at / "images.gz", at / "labels.gz"))),
        "CIFAR binary": Reader({"a.bin": rows.tobytes()}, known(lambda at: read_binary([at / "a.bin"], 1, 3))),
        "CIFAR pickle": Reader(
            {"a": pickle.dumps(batch, 2)}, known(lambda at: read_python([at / "a"], b"labels", 3)), hostile_pickle
        ),
        "mat": Reader({"a.mat": mat}, known(lambda at: read_svhn(at / "a.mat")), hostile_mat),
        "npz": Reader({"a.npz": arrays}, lambda at: load_data(at / "a.npz"), hostile_npz),
        "image files": Reader(pictures(), read_pictures),
        "masks": Reader({"images.png": pictures()["a.png"], "masks.png": palette_mask()}, read_masks),
        "archive": Reader({"a.tar.gz": tar_gz()}, lambda at: unpack(at / "a.tar.gz", at / "out"), hostile_tar),
        "YAML": Reader(
            {"a.yaml": settings.to_yaml().encode()}, lambda at: Config.from_yaml(at / "a.yaml"), hostile_yaml
        ),
    }


def run_readers(folder: Path) -> dict[str, Reader]:
    """Return the readers of what a run leaves; ``folder`` takes a run of a few steps."""
    files, trainer = run_files(folder)
    records = {name: data for name, data in files.items() if name.endswith(("json", "jsonl", "yaml", "npz"))}
    model = {"model.safetensors": files["model.safetensors"]}
    beside = {"config.yaml": files["config.yaml"], **model}
    return {
        "checkpoint": Reader(  # a sound one of other data is refused in the name of the run
            {"step.pt": files["step.pt"]}, lambda at: read_checkpoint(trainer, at), hostile_checkpoint, named=False
        ),
        "model": Reader(model, read_model, hostile_model, beside=beside),
        "weights": Reader({"a.pth": saved({"weight": torch.ones(3, 4)})}, lambda at: read_weights(at / "a.pth")),
        "snapshot": Reader(
            {"a.safetensors": to_safetensors({"weight": torch.ones(3, 4).half(), "count": torch.ones(1).long()})},
            lambda at: read_snapshot(at / "a.safetensors"),
        ),
        "records": Reader(records, read_records, hostile_record, beside=beside),
        "exits": Reader({"exits.json": files["exits.json"]}, read_exits, hostile_record, beside=beside),
        "page": Reader(records, lambda at: write_report([at]), hostile_record),
        "sweep": Reader(sweep_files(folder / "sweep", folder / "data.npz"), read_sweep_folder, hostile_study),
        "study page": Reader(
            {
                "sweep.json": json.dumps(sweep_table()).encode(),
                "comparison.json": json.dumps(comparison_table()).encode(),
            },
            read_study_pages,
            hostile_record,
        ),
    }


def read_pretrained(folder: Path) -> None:
    net = DeeplySupervised.from_pretrained(folder)
    with torch.no_grad(), suppress(SupervisionError):  # a net of other images
        net(torch.zeros(1, 1, 8, 8))


def hostile_settings(name: str, data: bytes, random: Random) -> bytes:
    return json.dumps(distorted(json.loads(data), random)).encode() if name.endswith("json") else damaged(data, random)


def pretrained_reader(folder: Path) -> dict[str, Reader]:
    """Return the reader of what ``save_pretrained`` writes."""
    network = create_network("plain", num_classes=3, in_channels=1, image_size=8, depth=3, widths=(4, 6))
    net = supervise(network, at=list(network.taps), num_classes=3, example=torch.zeros(2, 1, 8, 8))
    net.save_pretrained(folder / "pretrained")
    files = {name: (folder / "pretrained" / name).read_bytes() for name in ("config.json", "model.safetensors")}
    net.save_companions(folder / "companions.safetensors")
    companions = {"companions.safetensors": (folder / "companions.safetensors").read_bytes()}
    return {
        "pretrained": Reader(files, read_pretrained, hostile_settings),
        "companions": Reader(companions, lambda at: net.load_companions(at / "companions.safetensors")),
    }


def all_readers(folder: Path, names: Collection[str]) -> dict[str, Reader]:
    """Return the readers of these names; a run is made only where one of them needs it."""
    found = data_readers() | pretrained_reader(folder)
    if not found.keys() >= set(names):
        found |= run_readers(folder)
    return {name: found[name] for name in dict.fromkeys(names)}
