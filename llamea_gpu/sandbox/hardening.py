"""What a freshly forked child does to itself, irreversibly, before it may see a candidate.

Each function raises when the kernel refuses; the caller then exits without running anything. It
needs ctypes and the standard library only, because it runs inside the zygote and its children.

Not here: building the seccomp filter (`seccomp`, on the host, where libseccomp is) and deciding
which layers a level needs (`levels`).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import resource
import signal
import struct
from collections.abc import Iterator

NOBODY = 65534
CHANNEL_FD = 3

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
# The same numbers on every architecture that has Landlock.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_QUERY_VERSION = 1
# noroot, no_setuid_fixup, keep_caps off, no_cap_ambient_raise: each set and locked.
_SECUREBITS_LOCKED = 0b11101111
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class ParentEndedError(OSError):
    """The process that started this one is gone."""


def _checked(result: int, operation: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{operation}: {os.strerror(code)}")
    return result


def _syscall(name: str, number: int, *arguments: object) -> int:
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *values), name)


def _prctl(option: int, argument: object) -> int:
    value = ctypes.c_ulong(argument) if isinstance(argument, int) else argument
    zero = ctypes.c_ulong(0)
    result: int = _libc.prctl(ctypes.c_int(option), value, zero, zero, zero)
    return result


# -- descriptors, limits, identity ------------------------------------------------------------


def isolate_descriptors(channel: int, landlock: int) -> int:
    """Leave /dev/null as 0-2, the channel as 3, the Landlock ruleset as 4; close all else.

    Returns the ruleset's descriptor, -1 when there is none. 0 must be /dev/null, read-write.
    """
    os.dup2(0, 1)
    os.dup2(0, 2)
    os.dup2(channel, CHANNEL_FD)
    if landlock >= 0:
        os.dup2(landlock, 4)
        os.closerange(5, 1 << 20)
        return 4
    os.closerange(4, 1 << 20)
    return -1


def limit_resources(cpu_s: float, memory_bytes: int) -> None:
    """Set every limit, soft = hard. The CPU limit is whole seconds: the host is more exact."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: math.ceil(cpu_s) + 1,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 4,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    for which, value in limits.items():
        resource.setrlimit(which, (value, value))


def become_nobody() -> None:
    """Give up root for good: uid and gid 65534, no groups, and with them every capability.

    Raises:
        OSError: not root, no CAP_SETUID/CAP_SETGID, or 65534 is not mapped in this user namespace.
    """
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_capabilities() -> None:
    """Keep the uid, but empty every capability set and lock the securebits that bring them back."""
    for capability in range(_LAST_CAPABILITY + 1):
        # EINVAL past the kernel's last one; EPERM without CAP_SETPCAP, when none can be gained
        # anyway: NO_NEW_PRIVS follows and execve is not allowed.
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_SECUREBITS, _SECUREBITS_LOCKED)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), 8)
    empty = ctypes.create_string_buffer(24)
    _checked(_libc.capset(header, empty), "capset")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; ``parent`` is the parent's pid.

    After a change of uid, because that clears the setting.

    Raises:
        ParentEndedError: it has ended already, and nothing would be sent.
    """
    _checked(_prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        raise ParentEndedError("the parent ended while this process was starting")


def forbid_tracing() -> None:
    """Not dumpable: no core, no ptrace, /proc/self belongs to root."""
    _checked(_prctl(_PR_SET_DUMPABLE, 0), "PR_SET_DUMPABLE")


def forbid_new_privileges() -> None:
    """NO_NEW_PRIVS, which Landlock and seccomp require."""
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "PR_SET_NO_NEW_PRIVS")


# -- memory -------------------------------------------------------------------------------------


def forbid_executable_data(proc: int) -> None:
    """Take execution from all pages that can be written (libffi maps one for its first callback).

    Children cannot get it back: seccomp refuses. ``proc`` is a descriptor of /proc, because there
    is none in bubblewrap's view of the file system.

    Raises:
        OSError: the kernel refuses.
        RuntimeError: memory is still writable and executable, or is shared and writable.
    """
    for start, end, mode in _mappings(proc):
        if "w" in mode and "x" in mode:
            size = ctypes.c_size_t(end - start)
            _checked(_libc.mprotect(ctypes.c_void_p(start), size, _READ_WRITE), "mprotect")
    bad = [mode for _, _, mode in _mappings(proc) if "w" in mode and ("x" in mode or "s" in mode)]
    if bad:
        raise RuntimeError(
            f"no memory may be writable and also executable or shared, but {len(bad)} mappings "
            f"are ({', '.join(sorted(set(bad)))})"
        )


def _mappings(proc: int) -> Iterator[tuple[int, int, str]]:
    """Start, end and mode (``r-xp``) of each of this process's mappings."""
    with open(os.open("self/maps", os.O_RDONLY, dir_fd=proc), encoding="utf-8") as file:
        for line in file.read().splitlines():
            bounds, mode = line.split()[:2]
            start, _, end = bounds.partition("-")
            yield int(start, 16), int(end, 16), mode


# -- Landlock -----------------------------------------------------------------------------------


def landlock_version() -> int:
    """The kernel's Landlock ABI, 0 when it has none or it is disabled."""
    try:
        return _syscall(
            "landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_QUERY_VERSION
        )
    except OSError:
        return 0


def landlock_coverage(version: int) -> tuple[str, ...]:
    """What a ruleset of that ABI denies."""
    parts = ["files"]
    if version >= 4:
        parts.append("TCP")
    if version >= 6:
        parts += ["abstract sockets", "signals"]
    return tuple(parts)


def create_landlock_ruleset() -> int:
    """A ruleset that handles every right this kernel knows and allows none. Returns its fd.

    Raises:
        OSError: the kernel has no Landlock.
    """
    version = landlock_version()
    files = (1 << 13) - 1  # ABI 1
    if version >= 2:
        files |= 1 << 13  # refer
    if version >= 3:
        files |= 1 << 14  # truncate
    if version >= 5:
        files |= 1 << 15  # ioctl on devices
    network = 0b11 if version >= 4 else 0  # bind, connect
    scoped = 0b11 if version >= 6 else 0  # abstract sockets, signals
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("=QQQ", files, network, scoped)[:size]
    return _syscall(
        "landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0
    )


def enter_landlock(ruleset: int) -> None:
    """Restrict this process by ``ruleset`` and close it."""
    _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


# -- seccomp ------------------------------------------------------------------------------------


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def enter_seccomp(program: bytes) -> None:
    """Install a compiled BPF filter, 8 bytes an instruction. Last: it forbids all the above."""
    argument = _FilterProgram(len(program) // 8, program)
    zero = ctypes.c_ulong(0)
    result = _libc.prctl(
        ctypes.c_int(_PR_SET_SECCOMP),
        ctypes.c_ulong(_SECCOMP_MODE_FILTER),
        ctypes.byref(argument),
        zero,
        zero,
    )
    _checked(result, "PR_SET_SECCOMP")
