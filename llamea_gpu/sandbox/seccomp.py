"""The system calls a child may make, compiled to a BPF program by libseccomp.

Compiled on the host: libseccomp is not in the zygote's view of the file system. An allow list, so
that a call which a future kernel adds is refused. It does not install the filter (`hardening`).
"""

from __future__ import annotations

import errno
import mmap
import tempfile

# The channel, memory, locks, clocks, and what a process may know of itself and no other.
_ALLOWED = """
read write close
brk munmap mremap madvise
futex sched_yield rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall
clock_gettime clock_getres gettimeofday time getrandom
getpid gettid getuid geteuid getgid getegid getrusage
exit exit_group
"""
# Looks like an empty file system, so that library code takes its ordinary way out.
_ABSENT = """
open openat openat2 stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
getdents64 getcwd
"""


def compile_filter() -> bytes:
    """The BPF program, 8 bytes an instruction. Other architectures' call numbers kill the process.

    Calls outside the list fail with EPERM. Memory can never be mapped or made executable: all code
    that a child runs was loaded by the zygote.

    Raises:
        ImportError: pyseccomp is not installed.
        RuntimeError: libseccomp is not installed.
        OSError: libseccomp refuses a rule.
    """
    import pyseccomp

    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.EPERM))
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    for name in _ALLOWED.split():
        _add(rules, pyseccomp.ALLOW, name)
    for name in _ABSENT.split():
        _add(rules, pyseccomp.ERRNO(errno.ENOENT), name)
    # Third argument: protection.
    not_executable = pyseccomp.Arg(2, pyseccomp.MASKED_EQ, mmap.PROT_EXEC, 0)
    for name in ("mmap", "mprotect"):
        _add(rules, pyseccomp.ALLOW, name, not_executable)
    _add(rules, pyseccomp.ERRNO(errno.ENOSYS), "clone3")  # glibc then tries clone, which is refused
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _add(rules: object, action: int, name: str, *arguments: object) -> None:
    """Add one rule; a call that this architecture does not have needs none."""
    import pyseccomp

    if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) < 0:
        return
    rules.add_rule(action, name, *arguments)  # type: ignore[attr-defined]
