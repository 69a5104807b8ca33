"""The levels of isolation, what each is made of, and how a zygote of that level is started.

    3  bubblewrap's namespaces, Landlock, seccomp
    2  Landlock, seccomp
    1  seccomp
    0  none: a separate process with limits, for a machine that may be thrown away

Every level has the separate process, the limits, and the change of identity (level 0 does not
change it). This module says what could be set up; `selftest` says whether it holds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from llamea_gpu.errors import SandboxError, SandboxUnavailableError
from llamea_gpu.sandbox import hardening, seccomp
from llamea_gpu.sandbox.launch import (
    Installation,
    bubblewrap_command,
    plain_command,
)
from llamea_gpu.sandbox.process import ZygoteProcess
from llamea_gpu.sandbox.report import Layer
from llamea_gpu.sandbox.zygote import Settings

NAMESPACES, LANDLOCK, SECCOMP = "bubblewrap namespaces", "Landlock", "seccomp"
IDENTITY = "unprivileged identity"


@dataclass(frozen=True, slots=True)
class Level:
    """One rung: its number, and the layers it needs beyond the separate process."""

    number: int
    title: str
    needs: tuple[str, ...]


LEVELS = (
    Level(3, "namespaces, Landlock and seccomp", (NAMESPACES, LANDLOCK, SECCOMP)),
    Level(2, "Landlock and seccomp", (LANDLOCK, SECCOMP)),
    Level(1, "seccomp alone", (SECCOMP,)),
)
UNSAFE = Level(0, "no isolation: a process with limits", ())

_IDENTITIES = {
    "nobody": f"children run as uid {hardening.NOBODY} without capabilities",
    "own": "children run as your own user, which has no capabilities",
    "stripped": "children keep uid 0 but no capability, with locked securebits: this root may not "
    "change to another uid, so files rest on Landlock and seccomp",
    "unchanged": "children run as the host does",
}


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What this machine has: found once, before any zygote is started."""

    installation: Installation
    bubblewrap: str | None
    landlock_version: int
    seccomp_program: bytes
    seccomp_problem: str

    @classmethod
    def find(cls, installation: Installation) -> Ingredients:
        """Look for bubblewrap, Landlock and libseccomp.

        Raises:
            SandboxUnavailableError: this is not Linux.
        """
        if sys.platform != "linux":
            raise SandboxUnavailableError(
                f"generated code is run on Linux only, but this is {sys.platform}: use a Linux "
                f"machine, container or virtual machine"
            )
        program, problem = b"", ""
        try:
            program = seccomp.compile_filter()
        except ImportError:
            problem = "the Python package pyseccomp is not installed"
        except (RuntimeError, OSError) as error:
            problem = f"libseccomp: {error}"
        return cls(
            installation=installation,
            bubblewrap=shutil.which("bwrap"),
            landlock_version=hardening.landlock_version(),
            seccomp_program=program,
            seccomp_problem=problem,
        )

    def layers(self, level: Level) -> tuple[Layer, ...]:
        """Found and missing, before trying them."""
        if not level.number:
            return ()
        covers = ", ".join(hardening.landlock_coverage(self.landlock_version))
        size = len(self.seccomp_program) // 8
        return (
            _layer(
                NAMESPACES,
                self.bubblewrap or "",
                "there is no bwrap program on the search path",
                "install bubblewrap (apt install bubblewrap, dnf install bubblewrap)",
            ),
            _layer(
                LANDLOCK,
                f"ABI {self.landlock_version}: denies all {covers}"
                if self.landlock_version
                else "",
                "this kernel has no Landlock, or it is not enabled",
                "use Linux 5.13 or newer with 'landlock' in the lsm= boot parameter (a container "
                "also needs a seccomp profile that lets it through)",
            ),
            _layer(
                SECCOMP,
                f"an allow list of system calls, {size} instructions" if size else "",
                self.seccomp_problem,
                "pip install pyseccomp and install libseccomp (apt install libseccomp2)",
            ),
        )

    def start(self, level: Level, library: str) -> ZygoteProcess:
        """A zygote of that level.

        Raises:
            SandboxError: a layer is missing, or the zygote does not come up.
        """
        missing = [
            layer.name
            for layer in self.layers(level)
            if layer.name in level.needs and layer.state == "missing"
        ]
        if missing:
            raise SandboxError(f"level {level.number} needs {', '.join(missing)}")
        settings = Settings(
            library=library,
            landlock=LANDLOCK in level.needs,
            seccomp=self.seccomp_program.hex() if SECCOMP in level.needs else "",
            isolated=level.number > 0,
        )
        return ZygoteProcess(self._command(level), settings)

    def _command(self, level: Level) -> Callable[[int], list[str]]:
        if NAMESPACES not in level.needs:
            return lambda fd: plain_command(self.installation, fd)
        program = self.bubblewrap or "bwrap"
        return lambda fd: bubblewrap_command(program, self.installation, fd)


def _layer(name: str, detail: str, lacking: str, remedy: str) -> Layer:
    return Layer(name, "off", detail) if detail else Layer(name, "missing", lacking, remedy)


def identity_layer(identity: str) -> Layer:
    """How the children of a zygote that reported ``identity`` give up root."""
    weak = identity == "stripped"
    return Layer(
        IDENTITY,
        "failed" if weak else "active",
        _IDENTITIES[identity],
        "run as an ordinary user, or give the container CAP_SETUID and CAP_SETGID" if weak else "",
    )


def process_layers() -> tuple[Layer, ...]:
    """The layers that need nothing of the machine."""
    return (
        Layer("separate process", "active", "a fork of a clean process for each run"),
        Layer("resource limits", "active", "CPU, memory, processes, descriptors, file size"),
    )
