"""Remove the features of Linux that macOS lacks. Python imports this module first if its directory is in PYTHONPATH.

Functions that exist on both systems keep the behavior of Linux.
"""

import ctypes
import os
import resource
import sys

OPEN_MAX = 10_240
FOLDERS = ("/proc", "/dev/shm", "/sys")
MISSING = {
    "select": ("epoll", "EPOLL", "POLLRDHUP"),
    "os": (
        "sched_get",
        "sched_set",
        "sched_param",
        "sched_rr",
        "SCHED_",
        "posix_fallocate",
        "posix_fadvise",
        "pipe2",
        "eventfd",
        "EFD_",
        "memfd_create",
        "MFD_",
        "splice",
        "SPLICE_",
        "copy_file_range",
        "getrandom",
        "GRND_",
        "pidfd_open",
        "P_PIDFD",
        "waitid",
        "fdatasync",
        "getresuid",
        "getresgid",
        "setresuid",
        "setresgid",
        "getxattr",
        "setxattr",
        "listxattr",
        "removexattr",
        "setns",
        "unshare",
        "timerfd",
        "O_TMPFILE",
        "O_PATH",
        "O_DIRECT",
        "O_LARGEFILE",
        "O_NOATIME",
    ),
    "_socket": (
        "SOCK_CLOEXEC",
        "SOCK_NONBLOCK",
        "TCP_INFO",
        "TCP_USER_TIMEOUT",
        "TCP_KEEPIDLE",
        "TCP_QUICKACK",
        "TCP_CORK",
        "TCP_DEFER_ACCEPT",
        "TCP_SYNCNT",
        "TCP_LINGER2",
        "TCP_WINDOW_CLAMP",
        "TCP_CONGESTION",
        "MSG_NOSIGNAL",
        "MSG_MORE",
        "MSG_CMSG_CLOEXEC",
        "MSG_ERRQUEUE",
        "MSG_CONFIRM",
        "MSG_FASTOPEN",
        "SO_PEERCRED",
        "SO_PASSCRED",
        "SO_PEERSEC",
        "SO_BINDTODEVICE",
        "SO_DOMAIN",
        "SO_PROTOCOL",
        "SO_MARK",
        "SO_PRIORITY",
        "SO_INCOMING_CPU",
        "AF_NETLINK",
        "AF_PACKET",
        "AF_ALG",
        "AF_VSOCK",
    ),
    "_signal": ("sigtimedwait", "sigwaitinfo", "SIGRT", "SIGPWR", "SIGPOLL", "SIGCLD", "SIGSTKFLT"),
    "resource": ("prlimit", "RUSAGE_THREAD"),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
    "mmap": ("MAP_POPULATE", "MAP_STACK", "MAP_DENYWRITE", "MAP_EXECUTABLE"),
    "fcntl": (
        "F_SETPIPE_SZ",
        "F_GETPIPE_SZ",
        "F_OFD_",
        "F_ADD_SEALS",
        "F_GET_SEALS",
        "F_NOTIFY",
        "F_SETSIG",
    ),
}

for module, starts in MISSING.items():
    for name in [name for name in vars(__import__(module)) if name.startswith(starts)]:
        delattr(sys.modules[module], name)


class Library(ctypes.CDLL):
    """A C library that is not glibc."""

    def __getattr__(self, name):
        if name in ("mallopt", "malloc_trim"):
            raise AttributeError(name)
        return super().__getattr__(name)


ctypes.CDLL = Library


def hide(event, arguments):
    """Audit hook: raise FileNotFoundError if a hidden file is opened or a hidden directory is listed."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(FOLDERS):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def without(look):
    """Return `look` with the hidden directories missing."""

    def find(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", path)
        return look(path, *arguments, **options)

    return find


def access(path, *arguments, allowed=os.access, **options):
    return not str(path).startswith(FOLDERS) and allowed(path, *arguments, **options)


sys.addaudithook(hide)
os.access = access
os.stat, os.lstat, os.readlink, os.statvfs = map(
    without, (os.stat, os.lstat, os.readlink, os.statvfs)
)

getrlimit, setrlimit = resource.getrlimit, resource.setrlimit
_, HARD = getrlimit(resource.RLIMIT_NOFILE)


def limits_of(kind):
    """Report no hard limit for open files."""
    soft, hard = getrlimit(kind)
    return (soft, resource.RLIM_INFINITY if kind == resource.RLIMIT_NOFILE else hard)


def limit(kind, limits):
    """Reject a soft limit above OPEN_MAX for open files."""
    if kind == resource.RLIMIT_NOFILE:
        if not 0 <= limits[0] <= OPEN_MAX:
            raise ValueError("current limit exceeds maximum limit")
        limits = (min(limits[0], HARD), HARD)
    setrlimit(kind, limits)


setrlimit(resource.RLIMIT_NOFILE, (256, HARD))
resource.getrlimit, resource.setrlimit = limits_of, limit
sys.modules["simdjson"] = None  # setup.cfg requires it only on Linux
