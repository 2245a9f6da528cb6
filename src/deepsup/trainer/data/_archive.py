"""Unpack .tar.gz archives safely: no files or links outside the folder, and a size limit."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path, PurePosixPath

from deepsup.errors import DataError, DeepsupError
from deepsup.io import reason
from deepsup.trainer.data._storage import disk_errors_named

MOST_BYTES = 2**30
"""What an archive may unpack to: CIFAR-10 and CIFAR-100 need a fifth of it."""
MOST_HEADER = 2**20
"""Bytes of a long name or of other facts about one file, which are read into memory."""


class _Member(tarfile.TarInfo):
    """Refuses a header with a size below 0, and one with facts of many megabytes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type not in _CONTENT and member.size > MOST_HEADER):
            raise tarfile.ReadError(f"a header of {member.size:,} bytes")
        return member


_CONTENT = (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack every file of a .tar.gz into a folder and return their paths."""
    unpacked, room = [], MOST_BYTES
    try:
        with gzip.open(archive) as packed:
            with tarfile.open(fileobj=packed, mode="r|", tarinfo=_Member) as tar:
                for member in tar:
                    inside = _checked(member, archive)
                    room -= member.size
                    if room < 0:
                        raise DataError(f"{archive}: unpacks to more than {MOST_BYTES:,} bytes; refused")
                    if member.isfile():
                        unpacked.append(_write(tar, member, folder / inside))
            # tar stops at its end mark; the checksum of the whole file comes after it
            while room > 0 and (rest := packed.read(1 << 20)):
                room -= len(rest)
    except DeepsupError:
        raise
    except Exception as error:  # of gzip, of tar, of the system
        raise DataError(
            f"{archive}: damaged archive ({reason(error)}); move {archive.name} away and get it again"
        ) from error
    return unpacked


def _checked(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    inside = PurePosixPath(member.name)
    if inside.is_absolute() or ".." in inside.parts or "\\" in member.name or ":" in member.name:
        raise DataError(f"{archive}: its member {member.name!r} points outside the archive; refused")
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{archive}: its member {member.name!r} is a link or a device; expected plain files; refused")
    return inside


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> Path:
    source = tar.extractfile(member)
    assert source is not None, "only plain files come here"
    with disk_errors_named():
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.open("wb")
    with source, file:
        # only errors of writing are errors of the disk; all others are those of the archive
        while chunk := source.read(1 << 20):
            with disk_errors_named():
                file.write(chunk)
    return target
