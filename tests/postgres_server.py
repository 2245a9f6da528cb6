"""A PostgreSQL server for tests, which can be killed; it refuses to be root, so root starts it as somebody else."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any


def postgres_missing() -> str:
    """Say what is missing for a server; empty if nothing is."""
    here = all(map(shutil.which, ("initdb", "pg_ctl")))
    return "" if here else "there is no PostgreSQL (Debian: apt-get install postgresql)"


class PostgresServer:
    """A server on a free port of this machine, as long as the ``with`` block lasts."""

    def __init__(self) -> None:
        self.home = Path(f"/tmp/deepsup-postgres-{os.getpid()}")  # nobody may not enter pytest's own folder
        owner = {"user": "nobody"} if os.getuid() == 0 else {}
        nothing = subprocess.DEVNULL
        self.options: dict[str, Any] = {"cwd": "/", "check": True, "stdout": nothing, "stderr": nothing, **owner}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"postgresql://deepsup:secret@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> "PostgresServer":
        self.home.mkdir(mode=0o700)
        if "user" in self.options:
            os.chown(self.home, pwd.getpwnam("nobody").pw_uid, -1)
        try:
            self.run("initdb", "-U", "deepsup", "--auth=trust", "--no-sync")
            self.start()
        except BaseException:
            shutil.rmtree(self.home)
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if (self.home / "data" / "postmaster.pid").exists():
                self.kill()
        finally:
            shutil.rmtree(self.home)

    def start(self) -> None:
        """Start the server, also after it was killed."""
        settings = f"-p {self.port} -k {self.home} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", "-o", settings, "-w", "-l", self.home / "log", "start")

    def kill(self) -> None:
        """Kill the server as a lost machine would end it; its processes end with it."""
        lock = self.home / "data" / "postmaster.pid"
        process = int(lock.read_text().splitlines()[0])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for each in (process, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        lock.unlink()
        while any(Path(f"/proc/{each}").exists() for each in (process, *children)):
            time.sleep(0.01)

    def run(self, program: str, *words: object) -> None:
        subprocess.run([shutil.which(program), "-D", self.home / "data", *words], **self.options)
