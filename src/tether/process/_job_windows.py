"""Windows' own words for a process and its tree: job objects, process handles, calls that block a thread."""

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Final

from tether.process._child import Member

_JOB_BASIC_PROCESS_ID_LIST: Final = 3
_JOB_EXTENDED_LIMIT_INFORMATION: Final = 9
_KILL_ON_JOB_CLOSE: Final = 0x2000
# SYNCHRONIZE, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SUSPEND_RESUME, PROCESS_SET_QUOTA, PROCESS_TERMINATE
_PROCESS_ACCESS: Final = 0x0010_0000 | 0x1000 | 0x0800 | 0x0100 | 0x0001
_QUERY_LIMITED_INFORMATION: Final = 0x1000
_LONGEST_PATH: Final = 32_768
_THREAD_TERMINATE: Final = 0x0001
_ERROR_MORE_DATA: Final = 234
_INFINITE: Final = 0xFFFF_FFFF
_WAIT_OBJECT_0: Final = 0
_WAIT_FAILED: Final = 0xFFFF_FFFF

# Exact widths rather than ctypes.wintypes: there a DWORD is eight bytes wide on a 64-bit Linux.
_DWORD = ctypes.c_uint32
_BOOL = ctypes.c_int32
_HANDLE = ctypes.c_void_p
_POINTER = ctypes.c_void_p

_SIGNATURES: Final = (
    ("CreateJobObjectW", _HANDLE, (_POINTER, _POINTER)),
    ("SetInformationJobObject", _BOOL, (_HANDLE, ctypes.c_int32, _POINTER, _DWORD)),
    ("QueryInformationJobObject", _BOOL, (_HANDLE, ctypes.c_int32, _POINTER, _DWORD, _POINTER)),
    ("AssignProcessToJobObject", _BOOL, (_HANDLE, _HANDLE)),
    ("TerminateJobObject", _BOOL, (_HANDLE, ctypes.c_uint32)),
    ("OpenProcess", _HANDLE, (_DWORD, _BOOL, _DWORD)),
    ("OpenThread", _HANDLE, (_DWORD, _BOOL, _DWORD)),
    ("TerminateProcess", _BOOL, (_HANDLE, ctypes.c_uint32)),
    ("WaitForSingleObject", _DWORD, (_HANDLE, _DWORD)),
    ("GetExitCodeProcess", _BOOL, (_HANDLE, _POINTER)),
    ("QueryFullProcessImageNameW", _BOOL, (_HANDLE, _DWORD, _POINTER, _POINTER)),
    ("CancelSynchronousIo", _BOOL, (_HANDLE,)),
    ("CloseHandle", _BOOL, (_HANDLE,)),
)


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    limit_flags: int
    _fields_ = (
        ("per_process_user_time", ctypes.c_int64),
        ("per_job_user_time", ctypes.c_int64),
        ("limit_flags", _DWORD),
        ("minimum_working_set", ctypes.c_size_t),
        ("maximum_working_set", ctypes.c_size_t),
        ("active_process_limit", _DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority_class", _DWORD),
        ("scheduling_class", _DWORD),
    )


class IoCounters(ctypes.Structure):
    """IO_COUNTERS."""

    _fields_ = (
        ("read_operations", ctypes.c_uint64),
        ("write_operations", ctypes.c_uint64),
        ("other_operations", ctypes.c_uint64),
        ("bytes_read", ctypes.c_uint64),
        ("bytes_written", ctypes.c_uint64),
        ("bytes_other", ctypes.c_uint64),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    basic: BasicLimits
    _fields_ = (
        ("basic", BasicLimits),
        ("io", IoCounters),
        ("process_memory_limit", ctypes.c_size_t),
        ("job_memory_limit", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class ProcessIdListHead(ctypes.Structure):
    """JOBOBJECT_BASIC_PROCESS_ID_LIST up to its ids, which are pointer-sized numbers."""

    assigned: int
    listed: int
    _fields_ = (("assigned", _DWORD), ("listed", _DWORD))


def process_ids_in(raw: bytes) -> tuple[list[int], int]:
    """The ids that a filled JOBOBJECT_BASIC_PROCESS_ID_LIST holds, and how many the job has."""
    head = ProcessIdListHead.from_buffer_copy(raw)
    ids = (ctypes.c_size_t * head.listed).from_buffer_copy(raw, ctypes.sizeof(ProcessIdListHead))
    return list(ids), head.assigned


@functools.cache
def _kernel32() -> ctypes.CDLL:
    if sys.platform != "win32":
        raise OSError("job objects exist on Windows only")
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    for name, result, arguments in _SIGNATURES:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def _last_error() -> int:
    return ctypes.get_last_error() if sys.platform == "win32" else 0


def _failure(doing: str) -> OSError:
    if sys.platform != "win32":
        return OSError(f"cannot {doing} outside Windows")
    code = ctypes.get_last_error()
    return ctypes.WinError(code, f"cannot {doing}: {ctypes.FormatError(code).strip()}")


class ProcessHandle:
    """A hold on a process that keeps its pid from being given to another."""

    def __init__(self, pid: int) -> None:
        self._handle: int | None = _kernel32().OpenProcess(_PROCESS_ACCESS, 0, pid)
        if not self._handle:
            raise _failure(f"open process {pid}")
        self.pid = pid

    @property
    def value(self) -> int:
        """The handle for calls that take one."""
        if self._handle is None:
            raise ValueError(f"the handle of process {self.pid} is closed")
        return self._handle

    def ended_within(self, seconds: float) -> bool:
        """Wait at most `seconds` for the process to end; 0 only looks."""
        return self._wait(int(seconds * 1000))

    def wait(self) -> int:
        """Block this thread until the process ends, and give its exit code."""
        self._wait(_INFINITE)
        code = _DWORD()
        if not _kernel32().GetExitCodeProcess(self.value, ctypes.byref(code)):
            raise _failure(f"read the exit code of process {self.pid}")
        return code.value

    def _wait(self, milliseconds: int) -> bool:
        answer: int = _kernel32().WaitForSingleObject(self.value, milliseconds)
        if answer == _WAIT_FAILED:
            raise _failure(f"wait for process {self.pid}")
        return answer == _WAIT_OBJECT_0

    def resume(self) -> None:
        """Let a process that was created suspended begin."""
        if sys.platform != "win32":
            raise OSError("only Windows creates processes suspended")
        # ResumeThread wants the first thread's handle, which subprocess has closed by now.
        resume = ctypes.WinDLL("ntdll").NtResumeProcess
        resume.restype, resume.argtypes = ctypes.c_int32, (_HANDLE,)
        status: int = resume(self.value)
        if status < 0:
            raise OSError(f"cannot resume process {self.pid}: NTSTATUS {status & 0xFFFF_FFFF:#010x}")

    def kill(self) -> None:
        """End this process alone, with exit code 1; one that is over stays so."""
        _kernel32().TerminateProcess(self.value, 1)

    def close(self) -> None:
        """Let go; idempotent."""
        if self._handle is not None:
            _kernel32().CloseHandle(self._handle)
            self._handle = None


class Census:
    """The look at all processes that other systems need: here a job object lists its own."""

    def __init__(self, since: float = 0.0) -> None:
        self.since = since


class Job:
    """A tree of processes that ends as one; Windows ends it even if we die."""

    since = 0.0

    def __init__(self) -> None:
        self._handle: int | None = _kernel32().CreateJobObjectW(None, None)
        if not self._handle:
            raise _failure("create a job object")
        limits = ExtendedLimits()
        limits.basic.limit_flags = _KILL_ON_JOB_CLOSE
        if not _kernel32().SetInformationJobObject(
            self._handle, _JOB_EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            failure = _failure("tie the job object's processes to it")
            self.close()
            raise failure

    def add(self, process: ProcessHandle) -> None:
        """Put a process, and all it will start from now on, into the tree."""
        if not _kernel32().AssignProcessToJobObject(self._handle, process.value):
            raise _failure(f"put process {process.pid} into its job object")

    def members_in(self, census: object) -> list[Member]:  # noqa: ARG002 - a job knows its members
        """Everybody of the tree that is alive; none after close."""
        return self.nearest()

    def nearest(self) -> list[Member]:
        """Everybody of the tree that is alive; none after close."""
        # A job ends its own processes only, so no reused pid can be meant by mistake.
        return [Member(pid, "") for pid in self._pids()]

    def _pids(self) -> list[int]:
        room = 64
        while self._handle is not None:
            size = ctypes.sizeof(ProcessIdListHead) + room * ctypes.sizeof(ctypes.c_size_t)
            raw = ctypes.create_string_buffer(size)
            done = _kernel32().QueryInformationJobObject(self._handle, _JOB_BASIC_PROCESS_ID_LIST, raw, size, None)
            if not done and _last_error() != _ERROR_MORE_DATA:
                raise _failure("list the processes of a job object")
            ids, assigned = process_ids_in(raw.raw)
            if done:
                return ids
            room = max(assigned, 2 * room)
        return []

    def alive(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that still live."""
        living = set(self._pids())
        return [member for member in members if member.pid in living]

    def strays_in(self, census: object) -> list[Member]:  # noqa: ARG002 - a job leaves no doubt
        """Nobody: a job knows its members."""
        return []

    def ask_to_end(self, members: Sequence[Member]) -> None:
        """End the tree: Windows has no polite request that reaches every program."""
        self.kill(members)

    def kill(self, members: Sequence[Member]) -> None:  # noqa: ARG002 - a job knows its members
        """End the tree."""
        self.kill_at_once()

    def kill_at_once(self) -> bool:
        """End every process of the tree now, as `taskkill /T /F` does, with exit code 1."""
        if self._handle is not None and not _kernel32().TerminateJobObject(self._handle, 1):
            raise _failure("end the processes of a job object")
        return True

    def describe(self, member: Member) -> str:
        """The path of the program that a member runs."""
        process: int | None = _kernel32().OpenProcess(_QUERY_LIMITED_INFORMATION, 0, member.pid)
        if not process:
            return ""
        path = ctypes.create_unicode_buffer(_LONGEST_PATH)
        size = _DWORD(_LONGEST_PATH)
        found = _kernel32().QueryFullProcessImageNameW(process, 0, path, ctypes.byref(size))
        _kernel32().CloseHandle(process)
        return path.value if found else ""

    def reap(self) -> None:
        """Nothing to do: Windows hands orphans to nobody."""

    def close(self) -> None:
        """End what is left of the tree and let go; idempotent."""
        if self._handle is not None:
            _kernel32().CloseHandle(self._handle)
            self._handle = None


def cancel_blocking_call(thread_id: int) -> None:
    """Make a read or write that blocks another thread fail now; one that blocks nowhere is left alone."""
    thread: int | None = _kernel32().OpenThread(_THREAD_TERMINATE, 0, thread_id)
    if thread:
        _kernel32().CancelSynchronousIo(thread)
        _kernel32().CloseHandle(thread)


def message_of(code: int) -> str:
    """What Windows says about an error code, in the user's language; empty elsewhere."""
    return ctypes.FormatError(code).strip() if sys.platform == "win32" else ""
