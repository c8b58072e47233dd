"""File systems for one test: small images behind a loop device, and file systems in memory.

A program that uses these runs in its own mount namespace (``unshare -m``): the mounts disappear with the
process, and so does the loop device, which detaches itself after its last user.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import glob
import os
import shutil
import struct
import subprocess
import time
from typing import ClassVar

MIB = 1024 * 1024
IMAGE_BYTES = {"ext4": 16 * MIB, "xfs": 300 * MIB}
"""The smallest that mkfs makes with a journal."""
MOUNT_OPTIONS = {"ext4": "", "xfs": "nouuid"}
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_WITHOUT_LOG = struct.pack("I", 2)  # the end of the journal is thrown away

_ROOM = "size=1g"
_REMOUNT = 32  # MS_REMOUNT
_TRIM = 0xC0185879  # FITRIM

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str, options: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), 0, options.encode())


def unmount(target: str) -> None:
    """Unmount; tries again, because the files of a killed child may stay open for a moment after it has
    ended."""
    for _ in range(200):
        try:
            return _call("umount2", target.encode(), 0)
        except OSError as error:
            if error.errno != 16:
                raise
            time.sleep(0.005)
    raise TimeoutError(f"{target} is still in use")


class LoopDisk:
    """A file system in an image. ``cut_power`` is as close as software gets: what was not flushed is lost,
    and the file system must replay its journal."""

    MKFS_OPTIONS: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, directory: str, kind: str, size_bytes: int = 0) -> None:
        self.kind = kind
        image = f"{directory}/{kind}.image"
        with open(image, "wb") as file:
            file.truncate(size_bytes or IMAGE_BYTES[kind])
        _run(f"mkfs.{kind}", "-q", *self.MKFS_OPTIONS.get(kind, ()), image)
        self.device = _run("losetup", "--find", "--show", image).strip()
        self._user = os.open(self.device, os.O_RDONLY)
        _run("losetup", "--detach", self.device)  # it goes with its last user
        self.path = f"{directory}/{kind}"
        os.mkdir(self.path)
        self.mount()

    def mount(self) -> None:
        mount(self.device, self.path, self.kind, MOUNT_OPTIONS.get(self.kind, ""))

    def shut_down(self) -> None:
        """From now on nothing reaches the disk; the next mount replays the journal as far as it got there."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG)
        finally:
            os.close(descriptor)

    def power_up(self) -> None:
        unmount(self.path)
        self.mount()

    def close(self) -> None:
        unmount(self.path)
        os.close(self._user)


class FailingDisk(LoopDisk):
    """A file system whose device refuses writes on command. The image takes missing blocks from a file system
    in memory, which is full while the device fails: then free blocks cannot be written, as on a thin device
    whose pool is used up. The journal and the tables can."""

    MKFS_OPTIONS: ClassVar = {"ext4": ("-b", "4096")}  # a block is a page: each is written whole, or refused

    def __init__(self, directory: str, kind: str, size_bytes: int = 0) -> None:
        self._memory = f"{directory}/memory"
        os.mkdir(self._memory)
        mount("none", self._memory, "tmpfs", _ROOM)
        super().__init__(self._memory, kind, size_bytes)
        with open(f"{self._memory}/{kind}.image", "r+b") as image:
            os.posix_fallocate(image.fileno(), 0, os.fstat(image.fileno()).st_size)
        self._release_free_blocks()
        self._limit = f"/sys/block/{os.path.basename(self.device)}/queue/max_sectors_kb"
        with open(self._limit, encoding="ascii") as file:
            self._usual_limit = file.read()
        self._set_limit("4")  # a request of which a part is written would be reported as done

    def _set_limit(self, limit: str) -> None:
        with open(self._limit, "w", encoding="ascii") as file:
            file.write(limit)

    def _release_free_blocks(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            fcntl.ioctl(descriptor, _TRIM, struct.pack("QQQ", 0, 2**64 - 1, 0))
        finally:
            os.close(descriptor)

    def fail(self) -> None:
        found = os.statvfs(self._memory)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        _call("mount", b"none", self._memory.encode(), b"tmpfs", _REMOUNT, f"size={used}".encode())

    def heal(self) -> None:
        _call("mount", b"none", self._memory.encode(), b"tmpfs", _REMOUNT, _ROOM.encode())

    def close(self) -> None:
        self.heal()
        try:
            self._set_limit("0")  # what the system makes of it
        except OSError:  # Linux before 6.9 does not know that
            self._set_limit(self._usual_limit)
        super().close()
        unmount(self._memory)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def missing_for(kind: str) -> str:
    """What this machine lacks for a :class:`LoopDisk`; empty if it has everything."""
    if os.geteuid() != 0:
        return "not root: no loop device can be had"
    for program in (f"mkfs.{kind}", "losetup", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not os.path.exists("/dev/loop-control"):
        return "no /dev/loop-control"
    probe = (
        "import sys, tempfile; from tests.kernel.disks import LoopDisk\n"
        "with tempfile.TemporaryDirectory() as path:\n"
        "    disk = LoopDisk(path, sys.argv[1]); disk.shut_down(); disk.power_up(); disk.close()"
    )
    command = ["unshare", "-m", shutil.which("python3") or "python3", "-c", probe, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@functools.cache
def missing_for_failing(kind: str) -> str:
    """What this machine lacks for a :class:`FailingDisk`; empty if it has everything."""
    limits = glob.glob("/sys/block/loop*/queue/max_sectors_kb")
    if not all(os.access(path, os.W_OK) for path in limits):
        return "the size of a loop device's requests cannot be set"
    return missing_for(kind)


@functools.cache
def namespace_command() -> tuple[str, ...]:
    """What to put before a command that mounts file systems in memory; empty if nothing helps."""
    for command in (("unshare", "-m"), ("unshare", "-rm")):
        probe = [*command, "sh", "-c", "mount -t tmpfs none /mnt || mount -t tmpfs none /tmp"]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return command
    return ()
