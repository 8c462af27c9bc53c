"""A seccomp filter: system calls that a worker of a role never needs answer EPERM for the rest of its life.

Everything else is allowed. A list of what torch, numpy and a CUDA driver need would break with each of their versions,
and the list of what this layer must stop is short: new processes and programs where none are wanted, sockets, reading
or signalling other processes, and the system calls through which sandboxes have been escaped.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from kernelsearch.worker.isolation import syscalls

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_AT_NUMBER, _AT_MACHINE, _AT_ARGS = 0, 4, 16
_X32 = 0x40000000
_THREAD = 0x00010000
"""CLONE_THREAD."""

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}


def _parse_calls(table: str) -> dict[str, tuple[int, int | None]]:
    """Numbers by call from words `name:x86-64:aarch64`; aarch64 is left out where 64-bit Arm has no such call."""
    calls: dict[str, tuple[int, int | None]] = {}
    for word in table.split():
        name, x86, *arm = word.split(":")
        calls[name] = int(x86), int(arm[0]) if arm else None
    return calls


# The numbers are those of asm/unistd_64.h and asm-generic/unistd.h.
_SYSTEM = _parse_calls("""
    ptrace:101:117 mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 setns:308:268 unshare:272:97
    kexec_load:246:104 kexec_file_load:320:294 bpf:321:280 init_module:175:105 finit_module:313:273
    delete_module:176:106 add_key:248:217 request_key:249:218 keyctl:250:219 open_by_handle_at:304:265 reboot:169:142
    swapon:167:224 swapoff:168:225 acct:163:89 quotactl:179:60 mount_setattr:442:442 fsopen:430:430 fsmount:432:432
    move_mount:429:429 open_tree:428:428 fsconfig:431:431 fspick:433:433 clock_settime:227:112 settimeofday:164:170
    sethostname:170:161 iopl:172 ioperm:173
""")
_NEIGHBOURS = _parse_calls("""
    process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440 kcmp:312:272 pidfd_open:434:434
    pidfd_getfd:438:438 pidfd_send_signal:424:424 perf_event_open:298:241 userfaultfd:323:282 io_uring_setup:425:425
    rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240
""")
_PROGRAMS = _parse_calls("execve:59:221 execveat:322:281 fork:57 vfork:58")
_SOCKETS = _parse_calls("socket:41:198 connect:42:203 bind:49:200")
_ATTRIBUTES = _parse_calls("""
    chmod:90 fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92 fchown:93:55 lchown:94 fchownat:260:54 utime:132
    utimes:235 futimesat:261 utimensat:280:88 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 removexattr:197:14
    lremovexattr:198:15 fremovexattr:199:16 setxattrat:463:463 removexattrat:466:466 file_setattr:469:469
""")
_GROUP_CALLS = {
    "system": _SYSTEM,
    "neighbours": _NEIGHBOURS,
    "programs": _PROGRAMS,
    "sockets": _SOCKETS,
    "attributes": _ATTRIBUTES,
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKETPAIR = (53, 199)
_NO_STREAM = 0b110
"""Bits of the types of sockets that can send to an address without a connection, such as datagrams."""
_OWN_PROCESS = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}
_TKILL = (200, 130)

GROUPS = tuple(_GROUP_CALLS)
"""Groups to deny: the kernel's own doors; other processes; new processes and programs; sockets to anybody, those of a
path in the file system too; attributes of files, which Landlock lets change even where a file may not be read."""


def number_of(name: str) -> int | None:
    """The number of a call of `_GROUP_CALLS` on this machine; None if it has none or the machine is not known."""
    column = _COLUMN.get(os.uname().machine)
    return None if column is None else next(calls[name] for calls in _GROUP_CALLS.values() if name in calls)[column]


def restrict(groups: tuple[str, ...]) -> str:
    """Denies these groups to this thread and all that it starts. Returns "", or why that failed."""
    machine = os.uname().machine
    if machine not in _AUDIT:
        return f"seccomp: no table of system calls for {machine}"
    steps = build_program(machine, groups, os.getpid())
    code = ctypes.create_string_buffer(b"".join(steps))
    address = struct.pack("@HxxxxxxQ", len(steps), ctypes.addressof(code))
    _, refused = syscalls.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(address))
    return f"seccomp: {syscalls.errno_name(refused)}" if refused else ""


def build_program(machine: str, groups: tuple[str, ...], process: int) -> list[bytes]:
    """The filter as instructions of classic BPF. Calls of other instruction sets are denied as a whole."""
    column = _COLUMN[machine]
    steps = [_step(_LOAD, _AT_MACHINE), _step(_EQUAL, _AUDIT[machine], 1, 0), _deny(), _step(_LOAD, _AT_NUMBER)]
    if machine == "x86_64":
        steps += [_step(_AT_LEAST, _X32, 0, 1), _deny()]
    for group in groups:
        for call in _GROUP_CALLS[group].values():
            if (number := call[column]) is not None:
                steps += [_step(_EQUAL, number, 0, 1), _deny()]
    if "programs" in groups:
        # At ENOSYS glibc assumes an older kernel and falls back to clone, whose flags a filter can read.
        steps += [_step(_EQUAL, _CLONE3[column], 0, 1), _deny(errno.ENOSYS)]
        steps += _deny_unless(_CLONE[column], _step(_ANY_BIT, _THREAD, 1, 0))
    if "sockets" in groups:
        steps += _deny_unless(_SOCKETPAIR[column], _step(_ANY_BIT, _NO_STREAM, 0, 1), argument=1)
    if "neighbours" in groups and "programs" in groups:  # a worker with children may have to end them
        steps += _deny_unless(_OWN_PROCESS["kill"][column], _step(_EQUAL, process, 1, 0))
        steps += _deny_unless(_OWN_PROCESS["tgkill"][column], _step(_EQUAL, process, 1, 0))
        steps += [_step(_EQUAL, _TKILL[column], 0, 1), _deny()]
    if "neighbours" in groups:
        steps += [_step(_EQUAL, _OWN_PROCESS["prlimit64"][column], 0, 5), _step(_LOAD, _AT_ARGS)]
        steps += [_step(_EQUAL, 0, 2, 0), _step(_EQUAL, process, 1, 0), _deny(), _step(_RETURN, _ALLOW)]
    return [*steps, _step(_RETURN, _ALLOW)]


def _deny_unless(call: int, test: bytes, argument: int = 0) -> list[bytes]:
    """Denies a call unless the test of an argument's low word skips the denial."""
    return [_step(_EQUAL, call, 0, 4), _step(_LOAD, _AT_ARGS + 8 * argument), test, _deny(), _step(_RETURN, _ALLOW)]


def _deny(code: int = errno.EPERM) -> bytes:
    return _step(_RETURN, _ERRNO | code)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
