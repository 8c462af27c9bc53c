"""Bad input: one clear line on stderr, nothing on stdout, exit code 2, and nothing lost that was stored."""

import os
import subprocess
import sys

import pytest
from good_task import GOOD, KERNEL, REFERENCE, one_line

import databases
from kernelsearch.record.store import Store

FILES = {
    "not_python": ("def (:\n", r"not Python|syntax"),
    "not_text": ("\0\1\2", r"not Python|null|text"),
    "no_reference": (GOOD.replace(REFERENCE, ""), r"has no reference.*def reference\(x\)"),
    "no_kernel": (GOOD.replace(KERNEL, "").replace(
        "double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128, num_warps=4)", "y.copy_(x * 2)")
        .replace("return x * 2", "return torch.linalg.svd(x)[1]"), r"library calls only.*has no kernel: add one"),
    "launcher_fails": (GOOD.replace("    y = torch.empty_like(x)", "    y = torch.no_such(x)"),
                       r"launcher fails.*no_such"),
    "reference_fails": (GOOD.replace("return x * 2\n", "return x.no_such()\n"), r"reference fails.*no_such"),
    "other_shape": (GOOD.replace("reference(x): return x * 2", "reference(x): return x.sum(-1)"), r"shape"),
    "other_count": (GOOD.replace("reference(x): return x * 2", "reference(x): return x * 2, x"), r"2 .*1|1 .*2"),
    "inputs_do_not_fit": (GOOD.replace("[torch.randn(rows, cols)]", "[torch.randn(rows, cols)] * 3"), r"3|argument"),
    "empty_space": (GOOD.replace('{"num_warps": [1, 2, 4]}', "{}").replace("SPACE = {}", 'SPACE = {"num_warps": []}'),
                    r"SPACE"),
    "impossible_space": (GOOD.replace("[1, 2, 4]", "[3, 5]"), r"SPACE is impossible: num_warps"),
    "space_is_no_dict": (GOOD.replace('{"num_warps": [1, 2, 4]}', "[1, 2]"), r"SPACE"),
    "ends_the_program": (GOOD + "raise SystemExit(3)\n", r"ends the program when it is imported \(exit 3\).*__main__"),
    "tolerance_is_no_number": (GOOD + 'TOLERANCE = "low"\n', r"TOLERANCE must be a number above 0"),
    "unknown_precision": (GOOD + 'PRECISION = "low"\n', r"PRECISION must be one of ieee, .*not 'low'"),
    "mutates_no_input": (GOOD + 'MUTATES = ("q",)\n', r"MUTATES names 'q', which is no input; they are x"),
    "mutates_nothing": (GOOD + 'MUTATES = ("x",)\n', r"MUTATES names x, which the reference leaves as .*x\.copy_"),
    "unknown_domain": (GOOD + 'DOMAIN = {"x": "small"}\n', r"a domain is one of positive.*not 'small'"),
    "domain_of_no_input": (GOOD + 'DOMAIN = {"q": "positive"}\n', r"DOMAIN names 'q', which is no input"),
    "reference_launches": (GOOD.replace("return x * 2\n", "return double(x)\n"),
                           r"the reference launches double_kernel: it defines the answer, so use PyTorch alone"),
    "impossible_shape": (GOOD.replace("TEST_SHAPES = [", "TEST_SHAPES = [dict(rows=-1, cols=3), "),
                         r"get_inputs\(rows=-1, cols=3\) fails: RuntimeError.*\(line \d+\)"),
    "fails_when_judged": (GOOD.replace("return x * 2\n", "assert x.max() < 8, 'too large'; return x * 2\n"),
                          r"the reference fails at rows=3 cols=50 with inputs \([^)]+\): "
                          r"AssertionError: too large \(line \d+\)"),
    "trivial_answer": (GOOD.replace("return x * 2\n", "return x * 0\n"), r"cannot be judged: zeros"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_task_file(run, tmp_path, name):
    text, said = FILES[name]
    (tmp_path / f"{name}.py").write_text(text)
    lines = one_line(run("optimize", f"{name}.py", "--trials", 2, "--quiet"), said)
    assert lines[0].startswith("kernelsearch: ") and len(lines[0]) < 600
    assert len(lines) == 1 or all(line.startswith("    ") for line in lines[1:]), lines  # lines to add to the file


def test_a_wrong_seed_says_on_which_shape_and_by_how_much(run, tmp_path):
    (tmp_path / "wrong.py").write_text(GOOD.replace("other=0.0) * 2", "other=0.0) * 2.001"))
    line, *_ = one_line(run("optimize", "wrong.py", "--trials", 3, "--quiet"), "itself rejected on")
    assert "rows=3 cols=50" in line and "reject-wrong" in line and "times what is allowed" in line
    with Store.open("kernelsearch.db", write=False) as store:  # the row of the seed says it too
        (row,) = store.load_trials(store.load_runs()[0].id)
        assert row.outcome.verdict.word == "reject-wrong"


@pytest.mark.parametrize("options, said", [
    (["absent.py"], "no such file: absent.py"),
    (["good.py", "--strategy", "evolv"], "unknown strategy 'evolv'.*evolve.*tpe"),
    (["good.py", "--strategy", "./mine.py"], "no strategy file ./mine.py"),
    (["good.py", "--target", "h1000"], "unknown target 'h1000'.*h100"),
    (["good.py", "--proposer", "poet"], "unknown proposer 'poet'.*edits"),
    (["good.py", "--shape", "rows=9999"], "no shape is meant by --shape 'rows=9999'; the shapes are 0: rows=8"),
    (["good.py", "--trials", "0"], "trials.*0 is not in the range x>=1"),
    (["good.py", "--trials", "-5"], "trials.*-5 is not in the range"),
    (["good.py", "--trials", "many"], "trials.*not a valid integer"),
    (["good.py", "--window", "0"], "window"),
    (["good.py", "--budget-seconds", "-1"], "budget-seconds"),
    (["good.py", "--resume"], "no unfinished run of good"),
    (["good.py", "--no-such-option"], "no such option"),
    (["."], "is a directory"),
    (["good.py", "--db", "."], "is a folder"),
    (["good.py", "--db", "no/such/folder/x.db"], "its folder does not exist"),
    (["good.py", "--db", "good.py/x.db"], "folder does not exist|read-only|not a directory"),
    (["good.py", "--db", "good.py"], "is not a SQLite database"),
    (["good.py", "--out", "no/such/folder/best.py"], "best.py cannot be written: its folder does not exist"),
    (["good.py", "--out", "."], "cannot be written: it is a folder"),
    (["good.py", "--out", "good.py"], "good.py is the task itself: name another file for --out"),
    (["good.py", "--out", "good.py/best.py"], "best.py cannot be written: its folder does not exist"),
    (["good.py", "--out", "/proc/version"], "version cannot be written"),
    (["good.py", "--record", "no/such/folder/answers"], "answers cannot be written: its folder does not exist"),
    (["good.py", "--shape", "8"], "no shape is meant by --shape '8'"),
    ([], "name a TASK.py, or give --hours"),
], ids=lambda o: " ".join(o) if isinstance(o, list) else "")  # fmt: skip
def test_option(run, good, options, said):
    one_line(run("optimize", *options, *([] if "--trials" in options else ["--trials", "2"]), "--quiet"), said)
    assert good.read_text() == GOOD


@pytest.mark.parametrize("command, said", [
    (["leaderboard"], "no database at kernelsearch.db"), (["show", "best"], "no database"),
    (["leaderboard", "--db", "."], "is a folder: name a file"),
    (["lineage", "best"], "no database"),
    (["new", "softmaxx"], "softmaxx.*there are attention"), (["verify", "absent.py", "k.py"], "no such file"),
    (["verify", "good.py", "absent.py"], "no such file: absent.py"), (["nothing"], "no such command"),
], ids=lambda c: " ".join(c) if isinstance(c, list) else "")  # fmt: skip
def test_other_commands(run, good, command, said):
    one_line(run(*command), said)


@pytest.fixture
def stored(run, good, tmp_path):
    """A database with one finished run of two trials."""
    assert run("optimize", "good.py", "--trials", 2, "--quiet").code == 0
    return tmp_path / "kernelsearch.db"


def rows(database):
    with Store.open(str(database), write=False) as store:
        return [store.load_trials(r.id) for r in store.load_runs()]


@pytest.mark.slow
def test_databases_that_cannot_be_used_keep_what_they_hold(run, stored):
    before = rows(stored)
    one_line(run("show", "feedfacefeedface"), "feedfacefeedface")
    one_line(run("show", "best", "--task", "goods"), "has no task 'goods': did you mean good?")
    one_line(run("lineage", "feedfacefeedface"), "feedfacefeedface")
    one_line(run("optimize", "good.py", "--trials", 2, "--resume", "--quiet"), "no unfinished run")
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom kernelsearch.record.store import Store\n"
         "with Store.open('kernelsearch.db') as s:\n    s.claim_run(1)\n    print(flush=True)\n    sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    holder.stdout.readline()
    one_line(
        run("optimize", "good.py", "--trials", 3, "--resume"), rf"run 1 of .* is being written by process {holder.pid}"
    )
    assert run("leaderboard").code == 0  # readers are not in the way of a writer
    holder.communicate()
    assert rows(stored) == before
    databases.make_newer(stored)
    one_line(run("optimize", "good.py", "--trials", 2, "--quiet"), "newer kernelsearch.*m999_from_the_future.*upgrade")
    one_line(run("leaderboard"), "newer kernelsearch")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(run, stored):
    """Refused by permissions where this user can be refused, else under a file that is no folder."""
    folder = stored.parent / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    where = folder / "x.db" if os.geteuid() else "/proc/version/x.db"
    one_line(
        run("optimize", "good.py", "--trials", 2, "--quiet", "--db", where),
        "read-only|does not exist|not a directory|cannot be",
    )
    where = folder / "best.py" if os.geteuid() else "/proc/self/best.py"
    done = run("optimize", "good.py", "--trials", 2, "--quiet", "--out", where)
    assert done.code == 2 and "best.py" in done.err
    folder.chmod(0o755)


@pytest.mark.slow
def test_no_disk_space(run, stored):
    """The file may not grow past a limit, in a process of its own: that acts as a full disk does."""
    before = rows(stored)
    code = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({stored.stat().st_size + 4096}, resource.RLIM_INFINITY))\n"
        "from kernelsearch.cli import main\nmain(['optimize', 'good.py', '--trials', '40', '--quiet', '--seed', '1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=stored.parent, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "kernelsearch.db cannot grow: no disk space" in done.stderr and "stored rows are safe" in done.stderr
    assert before[0] in rows(stored)
