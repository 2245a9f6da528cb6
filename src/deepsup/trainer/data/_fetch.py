"""Download a file and check its digest, with pooch and our own retries and progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepsup.trainer.data._storage import storage_error

TIMEOUT = (10.0, 30.0)
"""Seconds to wait for a connection, and for the next bytes of a response."""
RETRIES = 2
_PERMANENT = {400, 401, 403, 404, 410, 451}


class Unreachable(Exception):  # noqa: N818 - it is no mistake of the user's: the next source is tried
    """A download failed, with the reason. Not a ValueError, which pooch would retry."""


def fetch(url: str, md5: str, folder: Path, name: str) -> Path:
    """Download one file into a folder; remove everything on failure."""
    import pooch
    import requests

    # pooch would log its own lines to standard error; the caller reports instead
    pooch.get_logger().setLevel("ERROR")
    store = pooch.create(
        path=folder, base_url="", registry={name: f"md5:{md5}"}, urls={name: url}, retry_if_failed=RETRIES
    )
    try:
        return Path(store.fetch(name, downloader=_Downloader(name)))
    except requests.RequestException as error:
        raise Unreachable(_reason(error)) from error
    except OSError as error:
        raise storage_error(error) from error
    except ValueError as error:
        raise Unreachable(f"what came is not the published file (its md5 is not {md5})") from error


class _Downloader:
    """Wrap pooch's downloader and stop its retries if a second attempt cannot help."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, url: str, output_file: str, store: Any, check_only: bool = False) -> None:
        import pooch
        import requests

        # a server that compresses a .gz again would change its digest
        plain = {"Accept-Encoding": "identity"}
        with _Bar(self.name) as bar:
            download = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=TIMEOUT, headers=plain)
            try:
                download(url, output_file, store, check_only=check_only)
            except requests.HTTPError as error:
                if error.response is not None and error.response.status_code in _PERMANENT:
                    raise Unreachable(_reason(error)) from error
                raise
            except requests.ConnectionError as error:
                # no name, no route, refused, no reply; not a response that was cut off
                if "Max retries exceeded" in str(error):
                    raise Unreachable(_reason(error)) from error
                raise


class _Bar:
    """A progress bar on standard error with the interface that pooch expects; silent without a terminal."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn(name),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=None)
        self.total = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, count: int) -> None:
        self._progress.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


def _reason(error: Exception) -> str:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    if isinstance(error, requests.ConnectionError) and "Max retries exceeded" in str(error):
        return "cannot connect"
    return "the answer broke off"
