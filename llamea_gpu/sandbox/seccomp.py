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
brk munmap mremap
sched_yield rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall
gettimeofday time getrandom
getpid gettid getuid geteuid getgid getegid getrusage
exit exit_group
"""
# WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET, all of them private. Without
# that flag, two processes meet at any page of a file that both have mapped, a library's code, say.
# Not the priority-inheriting ones: they name another thread by its number.
_PRIVATE_FUTEX = 128
_FUTEX_CLOCK_REALTIME = 256
_FUTEX_OPERATIONS = tuple(number | _PRIVATE_FUTEX for number in (0, 1, 3, 4, 5, 9, 10))
# NORMAL, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE. Others act on the page cache, which all processes
# share (PAGEOUT, COLD), or merge pages with theirs (MERGEABLE).
_ADVICE = (0, 4, 8, 14, 15)
# The clocks of other processes have negative numbers.
_CLOCK_OF_A_PROCESS = 1 << 31
_WORD = (1 << 32) - 1  # the kernel reads these arguments as int
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
    own_clock = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLOCK_OF_A_PROCESS, 0)
    for name in ("clock_gettime", "clock_getres"):
        _add(rules, pyseccomp.ALLOW, name, own_clock)
    operation = _WORD & ~_FUTEX_CLOCK_REALTIME
    for number in _FUTEX_OPERATIONS:
        private = pyseccomp.Arg(1, pyseccomp.MASKED_EQ, operation, number)
        _add(rules, pyseccomp.ALLOW, "futex", private)
    for number in _ADVICE:
        advice = pyseccomp.Arg(2, pyseccomp.MASKED_EQ, _WORD, number)
        _add(rules, pyseccomp.ALLOW, "madvise", advice)
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
