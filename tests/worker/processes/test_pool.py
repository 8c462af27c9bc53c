"""Workers that die or hang are replaced, and none outlives its driver."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from kernelsearch.compile.build import check_binary
from kernelsearch.core.errors import TaskError, WorkerError
from kernelsearch.core.types import Word
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.messages.channel import Channel, Hello
from kernelsearch.worker.processes import workers
from kernelsearch.worker.processes.handle import ProcessHandle
from kernelsearch.worker.processes.pool import Pool, Workplace, ask_trusted
from kernelsearch.worker.processes.workers import Worker, WorkerDied, WorkerHung, WorkerSource

GOOD = (
    "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    "def k(x_ptr, N: tl.constexpr):\n    tl.store(x_ptr, N)\n"
)
SPEC = Specialisation("k", (("x_ptr", "*fp32"), ("N", "constexpr")), (("N", 4),), ("x_ptr",), (("num_warps", 1),))


def job(code=GOOD, name="k"):
    """A compile job. What the code does at its top happens in the worker (in a search the gate has passed it)."""
    return jobs.Compile(code, name, (SPEC,), target_by_name("h100"))


@pytest.fixture(scope="module")
def place():
    with Workplace() as place:
        yield place


@pytest.fixture(scope="module")
def compilers(place):
    return place.pool("compile", 1)


def gone(pid, within=5.0):
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not running(pid):
            return True
        time.sleep(0.02)
    return False


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_of(pool):
    with pool.lease() as worker:
        return worker.pid


def works(pool):
    answer = pool.ask(job(), 60)
    return answer.verdict is None and answer.binaries[0].name == "k"


def test_a_worker_serves_many_jobs(compilers):
    first = pid_of(compilers)
    assert works(compilers) and works(compilers)
    assert pid_of(compilers) == first != os.getpid()
    assert {"environment", "descriptors", "limits"} <= set(compilers.layers)


def test_killed_from_outside_during_a_job(compilers):
    endless = job("while True: pass\n" + GOOD)
    with compilers.lease(endless) as worker:
        threading.Timer(0.3, os.kill, (worker.pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerDied, match="its process ended"):
            worker.ask(endless, 30)
    assert gone(worker.pid)
    assert works(compilers) and pid_of(compilers) != worker.pid


def test_a_question_whose_worker_somebody_killed_is_asked_again(compilers):
    killed = []

    def kill():
        killed.extend(worker.pid for worker in compilers._leased)
        os.kill(killed[0], signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    assert compilers.ask(job("import time; time.sleep(1.5)\n" + GOOD), 30).verdict is None
    assert gone(killed[0]) and pid_of(compilers) != killed[0]


def test_killed_between_jobs(compilers):
    pid = pid_of(compilers)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid) and works(compilers)


@pytest.mark.parametrize("code", [
    "while True: pass\n",
    "import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: pass\n",
    "import os\nif os.fork() == 0:\n    while True: pass\nwhile True: pass\n",
], ids=["busy", "deaf", "forked"])  # fmt: skip
def test_a_hang_is_killed(compilers, code, monkeypatch):
    """By its own time: the clock's limit, which a busy machine would reach first, is put far away."""
    monkeypatch.setattr(workers, "_LEAST_PROCESSOR", 0.001)
    pid = pid_of(compilers)
    with pytest.raises(WorkerHung, match="no answer within 0.3 s"):
        compilers.ask(job(code + GOOD), 0.3)
    assert gone(pid) and all(gone(other) for other in members(pid))
    assert works(compilers)


def members(group):
    """The running processes of a process group."""
    running_members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[2]) == group and fields[0] not in ("Z", "X"):
                running_members.append(int(entry.name))
    return running_members


@pytest.mark.parametrize("code", [
    "import os; os._exit(3)\n", "import ctypes; ctypes.string_at(0)\n", "raise SystemExit(0)\n",
], ids=["exit", "segfault", "SystemExit"])  # fmt: skip
def test_a_crash_is_said_and_the_next_job_is_served(compilers, code):
    with pytest.raises(WorkerDied):
        compilers.ask(job(code + GOOD), 30)
    assert works(compilers)


@pytest.mark.parametrize("code, reason", [
    ("raise ValueError('mine')\n", "mine"), ("x = [0] * (1 << 62)\n", "out of memory|MemoryError"),
    ("1/0\n", "division"),
])  # fmt: skip
def test_what_code_raises_is_a_verdict(compilers, code, reason):
    verdict = compilers.ask(job(code + GOOD), 30).verdict
    pid = pid_of(compilers)
    assert compilers.ask(job(code + GOOD), 30).verdict == verdict
    assert verdict.word is Word.COMPILE
    assert re.search(reason, verdict.reason)
    assert "memory" in reason or pid_of(compilers) == pid


def test_the_nursery_is_replaced_too(place):
    pool = place.pool("compile", 1)
    assert works(pool)
    pool.source.nursery.kill()
    pool.source.nursery.wait()
    with pool.lease() as worker:
        worker.kill()
    assert works(pool)


def test_many_threads_share_a_pool(place):
    pool = place.pool("compile", 2)
    results = []
    threads = [threading.Thread(target=lambda: results.append(works(pool))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6


def test_a_trusted_workers_failure_is_the_error_that_it_names(place, tmp_path):
    class Answers(Pool):
        def __init__(self, answer):
            self.answer, self.source = answer, WorkerSource("judge", str(tmp_path), fork=True)

        def ask(self, job, timeout):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    with pytest.raises(TaskError, match="a sentence"):
        ask_trusted(Answers(jobs.JobFailure("a sentence", "TaskError")), None, 1)
    with pytest.raises(WorkerError, match="a sentence"):
        ask_trusted(Answers(jobs.JobFailure("a sentence", "NoSuchError")), None, 1)
    with pytest.raises(WorkerError, match="the judge worker failed: hm"):
        ask_trusted(Answers(WorkerHung("hm")), None, 1)
    assert ask_trusted(Answers(5), None, 1) == 5
    with pytest.raises(TaskError, match="^its reference is slow$"):
        ask_trusted(Answers(WorkerHung("hm")), None, 1, "its reference is slow")
    with pytest.raises(WorkerError, match="the judge worker failed: gone"):
        ask_trusted(Answers(WorkerDied("gone")), None, 1, "its reference is slow")


def test_a_worker_that_cannot_start_says_why(tmp_path):
    source = WorkerSource("no such role", str(tmp_path), fork=True)
    with pytest.raises(WorkerError, match="could not start.*KeyError"):
        source.start()
    source.close()


DRIVER = """
import sys, threading, time
sys.path.insert(0, {tests!r})
from test_pool import job, GOOD
from kernelsearch.worker.processes.pool import Workplace
place = Workplace()
idle, busy = place.pool("compile", 1), place.pool("compile", 2)
with idle.lease() as one, busy.lease() as two:
    print(one.pid, two.pid, idle.source.nursery.pid, busy.source.nursery.pid, flush=True)
for code in {codes!r}:
    threading.Thread(target=busy.ask, args=(job(code + GOOD), 600), daemon=True).start()
time.sleep(0.3)
print(place.cache, flush=True)
time.sleep(600)
"""


def driven(*codes):
    """A process whose two compilers run these codes, and end never."""
    code = DRIVER.format(tests=str(Path(__file__).parent), codes=codes)
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)


def test_no_worker_outlives_a_killed_driver():
    driver = driven("while True: pass\n", "import time; time.sleep(600)\n")
    pids = [int(p) for p in driver.stdout.readline().split()]
    driver.stdout.readline()
    assert len(pids) == 4 and all(map(running, pids))
    children = [int(p) for n in pids[2:] for p in Path(f"/proc/{n}/task/{n}/children").read_text().split()]
    assert len(children) == 5  # an idle worker, two in the middle of a job, and a standby of each nursery
    driver.kill()
    driver.wait()
    assert all(gone(pid) for pid in {*pids, *children})


@pytest.mark.parametrize(
    "code", ["x = 3 ** 10**10\n", "import subprocess\nsubprocess.run(['sleep', '600'])\n"], ids=["computes", "started"]
)
def test_no_worker_outlives_a_killed_driver_whatever_it_does(code):
    """One computes in C and lets no thread run; another waits for a program that it has started, as for ptxas."""
    driver = driven(code, code)
    nurseries = driver.stdout.readline().split()[2:]
    driver.stdout.readline()
    serving = [p for n in nurseries for p in children_of(n)]
    programs = []
    while len(programs) < 2 * ("subprocess" in code):
        programs = [p for w in serving for p in children_of(w)]
    driver.kill()
    driver.wait()
    assert all(gone(int(pid)) for pid in {*nurseries, *serving, *programs})


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.slow
def test_no_worker_runs_what_lies_in_the_current_folder(tmp_path, monkeypatch):
    """Such a file may bear the name of any module of Python's own."""
    for name in ("inspect", "ast", "triton", "socket"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", os.environ.get("PYTHONPATH", "")]))
    with Workplace() as place:
        assert works(place.pool("compile", 1))
        for role in ("judge", "evaluate"):
            pid_of(place.pool(role, 1))
    assert not (tmp_path / "executed").exists()


def test_a_killed_nursery_costs_no_import(place):
    pool = place.pool("compile", 1)
    worker = pid_of(pool)
    first, waiting = pool.source.nursery.pid, pool.source.standby_pid
    pool.source.nursery.kill()
    assert gone(worker)  # with its parent
    assert pool.ask(job(GOOD), 30).binaries
    assert pool.source.nursery is None and pool.source.standby_pid not in (first, waiting) and running(waiting)


def test_a_full_disk_is_nobodys_verdict(place):
    """The fault of the machine goes up as one sentence, after a fresh worker has found it too."""
    full = "raise __import__('builtins').OSError(28, 'No space left on device')\n"
    pool = place.pool("compile", 1)
    with pytest.raises(WorkerError, match="no disk space is left in .* set TMPDIR"):
        pool.ask(job(full + GOOD), 30)
    assert pool.ask(job(GOOD), 30).binaries


def test_closing_leaves_nothing(tmp_path):
    with Workplace() as place:
        pool = place.pool("compile", 1)
        pids = [pid_of(pool), pool.source.nursery.pid]
        assert Path(place.cache).is_dir()
    assert all(gone(pid) for pid in pids) and not Path(place.cache).exists()


def test_a_borrowed_workplace_has_all_that_a_workplace_has(borrowing, nurseries):
    from kernelsearch.trial import bench

    real, borrowed = nurseries.place, bench.Workplace(("/readable",))
    public = {name for name in (*vars(real), *dir(type(real))) if not name.startswith("_")}
    assert public - {"close"} and {name for name in public if not hasattr(borrowed, name)} == set()


def test_compilers_step_back_for_what_waits_for_the_gpu(nurseries):
    from kernelsearch.worker.roles import compile as compiler

    place = nurseries.place
    nice = {}
    for role in ("compile", "judge"):
        with place.pool(role, 1).lease() as worker:
            nice[role] = os.getpriority(os.PRIO_PROCESS, worker.pid)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == {"compile": min(19, own + compiler.LIMITS.nice), "judge": own}


POISON = """import triton, os
from triton.compiler import compiler as c
real = c.compile
for module in (triton, c):
    module.compile = lambda *args, **options: (_ for _ in ()).throw(RuntimeError("poisoned"))
open(os.path.join(os.environ["HOME"], "left"), "w").write("here")
"""
LOOKS = """import os
if os.path.exists(os.path.join(os.environ["HOME"], "left")):
    raise ValueError("a file was left")
"""


def test_nothing_that_a_candidate_does_to_its_worker_reaches_the_next(compilers):
    assert compilers.ask(job(POISON + GOOD), 30).verdict.reason == "poisoned"
    first = pid_of(compilers)
    assert compilers.ask(job(POISON + GOOD), 30).verdict.reason == "poisoned" and pid_of(compilers) == first
    assert compilers.ask(job(LOOKS + GOOD), 30).verdict is None
    assert gone(first) and pid_of(compilers) != first
    with compilers.lease() as worker, pytest.raises(WorkerError, match="was asked for another"):
        worker.ask(job(GOOD), 30)


def test_the_worker_that_knows_a_source_gets_its_next_job(place):
    pool = place.pool("compile", 2)
    codes = [job(f"# {i}\n" + GOOD) for i in range(2)]
    pids = []
    for one in codes:
        with pool.lease(one) as worker:
            assert worker.ask(one, 30).verdict is None
            pids.append(worker.pid)
    for _ in range(2):
        for one, pid in zip(codes, pids, strict=True):
            with pool.lease(one) as worker:
                assert worker.pid == pid
    pool.close()


def test_a_killed_worker_is_never_a_stranger_with_its_id(tmp_path):
    """The system gives ids anew; a worker is not its driver's child, so nothing keeps its id."""
    for modern in (True, False):
        ours, theirs = socket.socketpair()
        first, stranger = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2))
        Channel(theirs).send(Hello(first.pid))
        worker = Worker(Channel(ours), SimpleNamespace(role="compile", cache=str(tmp_path), complaint=lambda: ""))
        first.kill()
        first.wait()
        worker.pid = worker.handle.process = stranger.pid
        with mock.patch.object(signal, "pidfd_send_signal", signal.pidfd_send_signal if modern else before_linux_6_9):
            worker.kill()
        time.sleep(0.1)
        assert stranger.poll() is None
        stranger.kill()
        stranger.wait()
        theirs.close()


def before_linux_6_9(descriptor, number, siginfo=None, flags=0, send=signal.pidfd_send_signal):
    if flags:
        raise OSError(22, "Invalid argument")
    return send(descriptor, number)


@pytest.mark.parametrize("modern", [True, False])
def test_a_kill_reaches_the_whole_group(modern, tmp_path):
    process = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    handle = ProcessHandle(process.pid)
    while len(members(process.pid)) < 3:
        time.sleep(0.01)
    with mock.patch.object(signal, "pidfd_send_signal", signal.pidfd_send_signal if modern else before_linux_6_9):
        handle.kill()
    assert process.wait(5) == -signal.SIGKILL
    assert all(gone(pid) for pid in members(process.pid))
    handle.close()
    handle.kill()


def test_a_compilers_limit_counts_its_own_processes_and_not_the_clock(compilers, monkeypatch):
    """ptxas runs as a child of the compiler. Its time counts while it runs and after; waiting counts as a tenth."""
    slept = "__import__('time').sleep(0.8)\n"
    assert compilers.ask(job(slept + GOOD), 0.5).verdict is None
    spin = "while True: pass"
    monkeypatch.setattr(workers, "_LEAST_PROCESSOR", 0.001)  # the clock's own limit is far away
    for started in (
        f"subprocess.run([sys.executable, '-c', {spin!r}])",
        "[subprocess.run([sys.executable, '-c', 'for i in range(3000000): pass']) for _ in range(99)]",
    ):
        with pytest.raises(WorkerHung, match="no answer within 0.5 s"):
            compilers.ask(job(f"import subprocess, sys\n{started}\n" + GOOD), 0.5)


def test_a_compiler_that_only_waits_is_ended(compilers, monkeypatch):
    monkeypatch.setattr(workers, "_ASLEEP_S", 0.5)
    with pytest.raises(WorkerHung):
        compilers.ask(job("import subprocess\nsubprocess.run(['sleep', '1000000'])\n" + GOOD), 60.0)
    assert works(compilers)


def test_an_interpreters_limit_is_of_its_own_time(tmp_path):
    """A busy machine keeps it waiting; that is no slowness of its candidate. One that computes ends at its limit."""
    ours, theirs = socket.socketpair()
    Channel(theirs).send(Hello(2**22 + 1))
    source = SimpleNamespace(role="evaluate", cache=str(tmp_path), complaint=lambda: "")

    def wait(share):
        worker = Worker(Channel(ours), source)
        begun = time.monotonic()
        with mock.patch.object(sandbox, "cpu_seconds", lambda pid: (time.monotonic() - begun) * share):
            return worker.ask(jobs.JudgeTask(), 0.3)

    threading.Timer(1.0, lambda: Channel(theirs).send("late")).start()
    assert wait(0.2) == "late"
    Channel(theirs).send(Hello(2**22 + 1))
    with pytest.raises(WorkerHung, match="no answer within 0.3 s"):
        wait(1.0)
    theirs.close()


def test_a_binary_is_known_by_its_own_bytes_and_not_by_what_is_said_about_it(compilers):
    """Two kernels of one identity share times and verdicts, so a compiler that lies could give away another's."""
    (binary,) = compilers.ask(job(), 30).binaries
    assert check_binary(replace(binary, identity="another's")) == binary
    for cubin in (b"", b"\x7fELF", binary.cubin[:100], None):
        with pytest.raises(ValueError, match="ELF|not a cubin"):
            check_binary(replace(binary, cubin=cubin))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("one\ntwo\n", " (two)"),
        (
            "terminate called\n  what():  CUDA is lost\nException raised from f\nframe #0: a\nframe #1: b\n",
            " (what():  CUDA is lost)",
        ),
        ("frame #0: a\n", " (frame #0: a)"),
        ("", ""),
    ],
)
def test_a_workers_end_is_told_by_what_its_error_says(tmp_path, log, said):
    source = SimpleNamespace(role="seed", cache=str(tmp_path))
    Path(sandbox.log_path(source.cache, source.role)).write_text(log)
    assert WorkerSource.complaint(source) == said
