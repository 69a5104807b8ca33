"""Hostile candidates beyond the product's own self-attacks. Data: what runs them is in the tests.

A body is the inside of a method (see `llamea_gpu.sandbox.selftest`): it returns what it gained, or
raises when it was refused. The first group is what a published prototype was attacked with; the
second aims at this design: its table, its protocol, its zygote, its next candidate.
"""

from __future__ import annotations

import pyseccomp

from llamea_gpu.sandbox.selftest import ATTACKS, FUTEX, SelfAttack

SECRET_VARIABLE = "LLAMEA_GPU_TEST_SECRET"


def _refused_call(name: str) -> SelfAttack:
    """A system call with zeros for arguments must be refused as such, not for its arguments."""
    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    body = f"""
        result = libc.syscall({number}, 0, 0, 0, 0, 0, 0)
        code = ctypes.get_errno()
        if result == -1 and code in (1, 2, 38):
            raise PermissionError(code, "{name}")
        return result, code
    """
    return SelfAttack(f"call {name}", body)


_CALLS = """
io_uring_setup bpf perf_event_open keyctl add_key request_key userfaultfd mount umount2 pivot_root
chroot setns unshare pidfd_open pidfd_getfd pidfd_send_signal process_vm_readv process_vm_writev
ptrace kcmp open_by_handle_at init_module kexec_load personality socketpair pipe2 eventfd2 signalfd4
timerfd_create timer_create setitimer inotify_init1 fanotify_init shmget semget msgget mq_open
memfd_create memfd_secret prctl seccomp ioctl fcntl sendmsg sendto recvmsg dup dup3 execveat vfork
clone3 wait4 kill tkill tgkill rt_sigqueueinfo sched_setaffinity sched_setscheduler setpriority
ioprio_set prlimit64 setrlimit capset setuid setgid mlock mlockall msync flock fsync ftruncate
sethostname syslog acct swapon reboot quotactl name_to_handle_at landlock_create_ruleset
openat openat2 fchmodat unlinkat renameat2 symlinkat linkat mknodat mkdirat utimensat chdir
pkey_mprotect mincore futex_waitv process_madvise remap_file_pages mseal
nanosleep clock_nanosleep pause poll ppoll epoll_create1 sched_getaffinity uname sysinfo times
"""
_KNOWN_HERE = [
    n for n in _CALLS.split() if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, n) >= 0
]

CALLS = tuple(_refused_call(name) for name in _KNOWN_HERE)

CLASSIC = (
    SelfAttack("read the password file", "return open('/etc/passwd').read()"),
    SelfAttack("read ssh keys", "return os.listdir(os.path.expanduser('~') + '/.ssh')"),
    SelfAttack(
        "read the environment",
        f"""
        secret = os.environ.get({SECRET_VARIABLE!r}) or os.environ.get("HOME")
        if secret is None: raise PermissionError("not there")
        return secret
        """,
    ),
    SelfAttack(
        "read the environment block",
        """
        environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
        block = []
        while environ[len(block)]: block.append(environ[len(block)])
        if any(b"SECRET" in b or b"HOME=" in b for b in block): return block
        raise PermissionError("not there")
        """,
    ),
    SelfAttack("stat a path of the host", "return os.stat(secret)"),
    SelfAttack("stat the root folder", "return os.stat('/')"),
    SelfAttack("write into /tmp", "return open('/tmp/llamea-gpu-left', 'w')"),
    SelfAttack("write into shared memory", "return open('/dev/shm/llamea-gpu-left', 'w')"),
    SelfAttack(
        "write beside a library", "return open(os.path.dirname(np.__file__) + '/left.py', 'w')"
    ),
    SelfAttack("read a library's file", "return open(np.__file__).read()"),
    SelfAttack("make a symbolic link", "return os.symlink('/etc/passwd', '/tmp/llamea-gpu-link')"),
    SelfAttack("make a hard link", "return os.link(secret, '/tmp/llamea-gpu-link')"),
    SelfAttack("connect over TCP", "return socket.create_connection(('127.0.0.1', 22), 1)"),
    SelfAttack(
        "connect to an abstract socket",
        "s = socket.socket(socket.AF_UNIX)\nreturn s.connect('\\0/tmp/.X11-unix/X0')",
    ),
    SelfAttack("fork a bomb", "while True: os.fork()"),
    SelfAttack("leave a daemon", "return libc.daemon(0, 0) == 0 or refused(-1)"),
    SelfAttack("spawn through the C library", "return libc.system(b'true') == 0 or refused(-1)"),
    SelfAttack("take 10 GB", "return np.ones(10 * 2**27)", "memory"),
    SelfAttack(
        "take memory in small pieces", "a = []\nwhile True: a.append(bytes(1 << 20))", "memory"
    ),
    SelfAttack("kill the host", "return os.kill(host, signal.SIGKILL)"),
    SelfAttack("kill everything", "return os.kill(-1, signal.SIGKILL)"),
    SelfAttack("kill the process group", "return os.killpg(0, signal.SIGKILL)"),
    SelfAttack("stop itself", "return os.kill(os.getpid(), signal.SIGSTOP)"),
    SelfAttack("read its own memory file", "return open('/proc/self/mem', 'rb').read(1)"),
    SelfAttack("read its maps", "return open('/proc/self/maps').read()"),
    SelfAttack("list processes", "return os.listdir('/proc')"),
    SelfAttack(
        "raise the limits",
        "import resource\nreturn resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ),
    SelfAttack(
        "use another architecture's calls", "return libc.syscall(0x40000000 + 39)", "crashed"
    ),
    SelfAttack(
        "write 1 GB to its output",
        """
        for _ in range(1024): os.write(2, bytes(1 << 20))
        raise PermissionError("into the void")
        """,
    ),
    SelfAttack("loop in C", "a = np.ones((4000, 4000))\nwhile True: a = a @ a", "timeout"),
    SelfAttack(
        "ignore all signals",
        """
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
        """,
        "timeout",
    ),
    SelfAttack("close the channel", "os.close(3)\nwhile True: pass", "protocol"),
    SelfAttack("crash", "return ctypes.string_at(0)", "crashed"),
    SelfAttack("abort", "return libc.abort()", "crashed"),
    SelfAttack("leave at once", "os._exit(0)", "crashed"),
    SelfAttack(
        "flood without reading", "while True: os.write(3, b'\\3\\0\\0\\0\\0\\0\\0\\0')", "protocol"
    ),
    SelfAttack("use up descriptors", "fds = []\nwhile True: fds.append(os.dup(3))"),
    SelfAttack(
        "pass a descriptor",
        "s = socket.socket(fileno=3)\nreturn socket.send_fds(s, [b'x'], [0])",
    ),
)

# Walks everything that can be reached from modules and frames: the collector does not list what
# the zygote froze.
_REACHABLE = """
        import gc
        frame, heap = sys._getframe(), [sys.modules]
        while frame:
            heap += [dict(frame.f_locals), frame.f_globals]
            frame = frame.f_back
        seen, reachable = set(), []
        while heap:
            o = heap.pop()
            if id(o) not in seen:
                seen.add(id(o))
                reachable.append(o)
                heap.extend(gc.get_referents(o))
"""

# Aimed at the table. `space.size` is the length of the table; a gain is anything like it.
TABLE = (
    SelfAttack(
        "search all objects",
        _REACHABLE
        + """
        if not any(type(o).__name__ == "SearchSpace" for o in reachable): return "a poor search"
        found = [
            o for o in reachable
            if type(o).__name__ in ("Recording", "Task", "Evaluator", "Trace", "Job")
            or isinstance(o, (list, tuple)) and len(o) == space.size and isinstance(o[0], float)
        ]
        if found: return found
        raise PermissionError("nothing")
        """,
    ),
    SelfAttack(
        "search all arrays",
        _REACHABLE
        + """
        arrays = [o for o in reachable if isinstance(o, np.ndarray)]
        shape = (space.size, len(space.names))
        if not any(a.shape == shape for a in arrays): return "a poor search"
        found = [a for a in arrays if a.dtype.kind == "f" and a.size == space.size]
        if found: return found
        raise PermissionError("nothing")
        """,
    ),
    SelfAttack(
        "import the recordings",
        """
        import llamea_gpu.spaces.catalogue
        return llamea_gpu.spaces.catalogue.list_spaces()
        """,
    ),
    SelfAttack("import the tasks", "import llamea_gpu.tasks\nreturn 1"),
)

# What several processes share although no memory is: pages of files, clocks, numbers of threads.
_MEETING = """
        page = ctypes.c_void_p(ctypes.cast(libc.getpid, ctypes.c_void_p).value & ~4095)
        within = (ctypes.c_long * 2)(0, 1_000_000)
        def forbidden(result):  # as such, not for its arguments
            code = ctypes.get_errno() if result < 0 else 0
            if code in (1, 38): raise PermissionError(code, "forbidden")
            return result, code
"""
MEETING = (
    *(
        SelfAttack(
            f"meet at a page by futex operation {operation}",
            _MEETING
            + f"        return forbidden(libc.syscall({FUTEX}, page, {operation}, 1, within))",
        )
        # The shared forms of all but the last two, which name another thread.
        for operation in (*range(14), 256, 256 | 9, 256 | 11, 128 | 6, 128 | 13)
    ),
    *(
        SelfAttack(
            f"meet at a page by call {number}",
            f"{_MEETING}\n        return forbidden(libc.syscall({number}, page, 1, 2, 0, 0, 0))",
        )
        for number in (449, 454, 455, 456)  # futex_waitv, futex_wake, futex_wait, futex_requeue
    ),
    *(
        SelfAttack(
            f"throw a page out by advice {advice}",
            f"{_MEETING}\n        return forbidden(libc.madvise(page, 4096, {advice}))",
        )
        for advice in (9, 12, 20, 21, 25, 100)  # REMOVE, MERGEABLE, COLD, PAGEOUT, COLLAPSE, POISON
    ),
    SelfAttack("read the host's clock", "return time.clock_gettime((~host << 3) | 2)"),
    SelfAttack("find a process by its clock", "return time.clock_getres((~host << 3) | 2)"),
)

# Aimed at what the zygote left in the child's hands.
ZYGOTE = (
    SelfAttack(
        "write to every descriptor",
        """
        reached = []
        for fd in range(4096):
            if fd not in (2, 3):
                try: reached.append((fd, os.write(fd, b'{"do": "run"}')))
                except OSError: pass
        if reached: return reached
        raise PermissionError("none")
        """,
    ),
    SelfAttack(
        "use the sockets in memory",
        _REACHABLE
        + """
        sockets = [o for o in reachable if isinstance(o, socket.socket)]
        if not sockets: return "a poor search"
        reached = []
        for o in sockets:
            try: reached.append(o.send(b'{"do": "run"}'))
            except OSError: pass
        if reached: return reached
        raise PermissionError("none")
        """,
    ),
    SelfAttack(
        "be the zygote",
        _REACHABLE
        + """
        zygote = next(o for o in reachable if type(o).__name__ == "Zygote")
        return zygote._fork({"cpu_s": 1, "memory_bytes": 1 << 30}, 3, 3)
        """,
    ),
    SelfAttack(
        "signal every process",
        """
        reached = []
        for pid in range(1, 70000):
            if pid != os.getpid():
                try: reached.append((pid, os.kill(pid, 0)))
                except OSError as error:
                    if error.errno != 1: reached.append((pid, error.errno))
        if reached: return reached
        raise PermissionError("none")
        """,
    ),
    SelfAttack(
        "change the shared /dev/null",
        "import fcntl\nreturn fcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK | 0o20000)",
    ),
)


def _send(packets: str) -> str:
    return f"""
        import struct
        READY, UNHARDENED, MORE, ASK, NEXT, FAILED, DONE, SUBMIT, WAIT = range(9)
        def send(kind, body=b""):
            os.write(3, struct.pack("=i", kind) + body)
            return os.read(3, 1 << 16)
        def rows(*values): return struct.pack(f"={{len(values)}}i", *values)
{packets}
        return "answered"
    """


# Aimed at the protocol: each must end the run, and be answered with nothing.
PROTOCOL = tuple(
    SelfAttack(name, _send(" " * 8 + packets.replace("\n", "\n" + " " * 8)), "protocol")
    for name, packets in {
        "a negative row": "send(ASK, rows(-1))",
        "the lowest row": "send(ASK, rows(-2**31))",
        "the first row past the end": "send(ASK, rows(space.size))",
        "a huge row": "send(ASK, rows(2**31 - 1))",
        "a bad row in a good batch": "send(ASK, rows(0, 1, 2, -1, 3))",
        "a bad row in the second part": "send(MORE, rows(0, 1))\nsend(ASK, rows(-1))",
        "not a number": "send(ASK, struct.pack('=d', float('nan')))",
        "no rows": "send(ASK)",
        "half a row": "send(ASK, rows(1) + b'xx')",
        "half a kind": "os.write(3, b'x')\nos.read(3, 1)",
        "nothing": "os.write(3, b'')\nos.read(3, 1)",
        "a part without rows": "send(MORE)",
        "an unknown kind": "send(99)",
        "a negative kind": "send(-1, rows(1))",
        "ready again": "send(READY)",
        "not hardened after all": "send(UNHARDENED, b'the sandbox is broken')",
        "more when there is no more": "send(NEXT)",
        "done with a body": "send(DONE, b'p=1.0')",
        "an unknown reason": "send(FAILED, rows(7) + b'why')",
        "a negative reason": "send(FAILED, rows(-1) + b'why')",
        "no reason": "send(FAILED)",
        "a packet of 20 kB": "send(ASK, bytes(20000))",
        "a packet of 200 kB": "send(ASK, bytes(200000))",
        "a batch without end": "while True: send(MORE, rows(*range(8)) * 128)",
        "an ask before the answer is fetched": "send(ASK, rows(0) * 4096)\n"
        "send(MORE, rows(0) * 4096)\nsend(ASK, rows(0))\nsend(ASK, rows(1))",
        "a negative row to submit": "send(SUBMIT, rows(0, -1))",
        "a bad row in a second part to submit": "send(MORE, rows(0))\nsend(SUBMIT, rows(2**31-1))",
        "no rows to submit": "send(SUBMIT)",
        "submissions without end": "while True: send(SUBMIT, rows(0) * 4096)",
        "a wait with a body": "send(WAIT, rows(0))",
        "a wait in the middle of a batch": "send(MORE, rows(0))\nsend(WAIT)",
        "a wait before the answer is fetched": "send(MORE, rows(0) * 4096)\n"
        "send(SUBMIT, rows(0) * 4096)\nsend(WAIT)\nsend(WAIT)",
    }.items()
)

FIRST = ATTACKS + CLASSIC
ALL = FIRST + TABLE + MEETING + ZYGOTE + PROTOCOL + CALLS
