"""The sandbox's layers do what they say, are named only when they do, and are missed loudly."""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.cli import run_doctor
from kernelsearch.worker.isolation import landlock, sandbox, seccomp
from kernelsearch.worker.processes import pool, workers

COMMON = {"environment", "session", "no_new_privs", "private_folder", "descriptors", "limits"}
CONFINING = {"network", "landlock", "landlock_read", "seccomp"}
WORK = {"write_own", "move_own", "read_library", "import_late", "signal_self", "socketpair"}
"""What a worker of any role must still be able to do."""

FORBIDDEN = {
    "environment": {"secret"},
    "descriptors": {"old_descriptor"},
    "limits": {"large_file", "many_descriptors"},
    "network": {"tcp"},
    "landlock": {"write_outside", "read_parent", "run_own"},
    "landlock_read": {"read_hidden"},
    "seccomp": {"udp", "tcp", "path_socket", "path_datagram", "chmod", "chmod_open", "chown", "utime", "xattr"},
}
ONLY_INTERPRETING = {"fork", "run_installed", "signal_parent"}


def entered(role, *broken, secret=False):
    """What `attempts.py` reports from inside the sandbox of a role."""
    script = Path(__file__).with_name("attempts.py")
    with tempfile.TemporaryDirectory() as cache, socket.create_server(("127.0.0.1", 0)) as listener:
        Path(sandbox.log_path(cache, role)).write_text("complaints")
        listeners = [socket.socket(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        for listening, name in zip(listeners, ("listener", "datagrams"), strict=True):
            listening.bind(f"{cache}/{name}")
        listeners[0].listen()
        environment = sandbox.scrub_environment(cache) | ({"PLANTED_BY_THE_TEST": "seen"} if secret else {})
        port = str(listener.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(script), role, cache, port, *broken], env=environment, cwd=script.parents[3],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    for listening in listeners:
        listening.close()
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("role", sandbox.POLICIES)
def test_a_layer_that_is_named_holds(role):
    report = entered(role)
    confined = sandbox.POLICIES[role].confined
    assert set(report["layers"]) >= COMMON
    assert set(report["layers"]) | set(report["missing"]) == COMMON | (CONFINING if confined else {"seccomp"})
    assert all(report["missing"].values())
    done = {act for act, result in report["attempts"].items() if result == "done"}
    assert done >= WORK
    if not confined:
        assert done >= {"run_installed", "fork", "tcp"}
        return
    for layer in report["layers"]:
        assert not done & FORBIDDEN.get(layer, set()), layer
    if role == "evaluate" and "seccomp" in report["layers"]:
        assert not done & ONLY_INTERPRETING
    if role == "compile":
        assert done >= {"fork", "run_installed"}


@pytest.mark.parametrize(
    "layer", ["network", "landlock", "seccomp", "descriptors", "limits", "session", "no_new_privs"]
)
def test_a_layer_that_only_claims_to_hold_is_not_named(layer):
    report = entered("evaluate", layer)
    assert report["missing"][layer]
    assert layer not in report["layers"]


def test_a_visible_secret_is_not_called_scrubbed():
    report = entered("evaluate", secret=True)
    assert "PLANTED_BY_THE_TEST" in report["missing"]["environment"]


@pytest.mark.parametrize(("broken", "why"), [("network", "unshare: EPERM"), ("landlock", "landlock: ENOSYS")])
def test_a_layer_that_is_refused_is_missing_with_the_reason(broken, why):
    report = entered("evaluate", f"refused:{broken}")
    assert report["missing"][broken] == why
    assert set(report["layers"]) >= COMMON


def test_environment_keeps_no_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment = sandbox.scrub_environment("/cache")
    assert "secret" not in environment.values()
    assert "seen" not in environment.values()
    assert environment["HOME"] == "/cache"
    assert "PATH" in environment


def test_a_worker_keeps_the_bytecode_of_what_it_imports_before_any_candidate(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    with tempfile.TemporaryDirectory() as cache:
        source = workers.WorkerSource("compile", cache, fork=True)
        source.start().kill()
        source.close()
    assert list(tmp_path.rglob("roles/compile.*.pyc"))


def test_doctor_names_a_missing_layer(monkeypatch):
    monkeypatch.setattr(pool.Pool, "layers", ("session",))
    monkeypatch.setattr(pool.Pool, "missing", (("network", "unshare: EPERM"),))
    row = run_doctor._worker("evaluate")
    assert row["works"] == "part"
    assert "OFF: network (unshare: EPERM)" in row["meaning"]


# ---------------------------------------------------------------- Landlock's grants


@given(hidden=st.sets(st.sampled_from(["a", "a/b", "a/b/c", "d", "d/e"]), max_size=3))
def test_entries_cover_all_but_the_hidden(hidden):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("a/b/c/x", "a/b/y", "a/z", "d/e/v", "d/w", "u"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
        granted = [Path(p) for p in landlock.list_entries([folder], [root / h for h in hidden])]
        for file in filter(Path.is_file, root.rglob("*")):
            shut = any((root / h) in file.parents for h in hidden)
            assert shut != any(file == g or g in file.parents for g in granted)


def test_a_root_inside_a_hidden_folder_is_granted(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "other").mkdir()
    assert landlock.list_entries([str(tmp_path / "task")], [str(tmp_path)]) == (str((tmp_path / "task").resolve()),)


# ---------------------------------------------------------------- the filter, run by hand


def decision(machine, groups, number, *args, audit=None, process=1000):
    """What the filter answers to a system call: 0 for allowed, else an errno."""
    data = struct.pack("=iIQ6Q", number, audit or seccomp._AUDIT[machine], 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    steps = [struct.unpack("=HBBI", s) for s in seccomp.build_program(machine, groups, process)]
    at = accumulator = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return 0 if value == 0x7FFF0000 else value & 0xFFFF
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += yes if test else no


MACHINES = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
STRICT = sandbox.POLICIES["evaluate"].denied
COLUMN = {"x86_64": 0, "aarch64": 1}


@MACHINES
def test_filter_denies_what_it_names(machine):
    column = COLUMN[machine]
    for table in seccomp._GROUP_CALLS.values():
        for name, numbers in table.items():
            if numbers[column] is not None:
                assert decision(machine, STRICT, numbers[column]) == errno.EPERM, name


@MACHINES
def test_filter_reads_arguments(machine):
    column = COLUMN[machine]
    ask = lambda call, *args: decision(machine, STRICT, call[column], *args)  # noqa: E731
    assert ask(seccomp._CLONE3) == errno.ENOSYS
    assert ask(seccomp._CLONE, 0x00010000 | 0x100) == 0  # a thread
    assert ask(seccomp._CLONE, 17) == errno.EPERM  # a process
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_UNIX):
        assert ask(seccomp._SOCKETS["socket"], family) == errno.EPERM
    assert ask(seccomp._SOCKETPAIR, socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) == 0
    assert ask(seccomp._SOCKETPAIR, socket.AF_UNIX, socket.SOCK_DGRAM) == errno.EPERM  # it could send to any path
    for name in ("kill", "tgkill", "prlimit64"):
        assert ask(seccomp._OWN_PROCESS[name], 1000) == 0
        assert ask(seccomp._OWN_PROCESS[name], 999) == errno.EPERM
    assert ask(seccomp._OWN_PROCESS["kill"], 2**32 - 1) == errno.EPERM  # -1: everybody
    assert ask(seccomp._OWN_PROCESS["prlimit64"], 0) == 0  # 0: itself


@MACHINES
def test_filter_denies_other_instruction_sets(machine):
    assert decision(machine, STRICT, 1, audit=0x40000003) == errno.EPERM
    if machine == "x86_64":
        assert decision(machine, STRICT, 0x40000000 | 1) == errno.EPERM


@given(number=st.integers(0, 460), groups=st.sets(st.sampled_from(seccomp.GROUPS)))
def test_filter_allows_the_rest(number, groups):
    named = {n[0] for table in seccomp._GROUP_CALLS.values() for n in table.values()}
    special = {c[0] for c in (seccomp._CLONE, seccomp._CLONE3, seccomp._SOCKETPAIR, seccomp._TKILL)}
    special |= {c[0] for c in seccomp._OWN_PROCESS.values()}
    if number not in named | special:
        assert decision("x86_64", tuple(groups), number) == 0


@pytest.mark.parametrize("role", [r for r, p in sandbox.POLICIES.items() if "programs" not in p.denied])
def test_roles_that_start_programs_may(role):
    groups = sandbox.POLICIES[role].denied
    for call in (seccomp._CLONE, seccomp._CLONE3, seccomp._PROGRAMS["execve"], seccomp._PROGRAMS["vfork"]):
        assert decision("x86_64", groups, call[0], 17) == 0


def test_memory_of_a_process_is_seen():
    assert sandbox.resident_bytes(os.getpid()) > 1 << 20
    assert sandbox.resident_bytes(2**22 + 1) == 0


def test_memory_is_counted_with_what_a_process_has_started():
    filling = "import sys; x = bytearray(300 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", filling], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert sandbox.resident_bytes(os.getpid()) > sandbox.resident_bytes(child.pid) + (10 << 20) > 300 << 20
        child.stdin.close()
    assert sandbox.resident_bytes(child.pid) == 0
