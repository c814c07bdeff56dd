"""The folder of `ebb.eval(out=...)`: nothing is lost by kills, Ctrl-C and exceptions, and it is `ebb-lab eval`'s."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import ebb
from ebb import report

pandas = pytest.importorskip("pandas")

PROBLEMS = 24
GRID = dict(problems=PROBLEMS, max_tokens=120, policies=["full", "attention"], budgets=["25%"],
            settings=[{"window": 16, "interval": 16}], workers=2)
SCRIPT = f"""
import sys
import ebb

class Peak(ebb.Scorer):
    needs = ebb.Needs(mass="sum")

    def observe(self, group, positions, mass, keys, values):
        if mass is not None:
            self[group] += mass

grid = {GRID!r}
grid["policies"] = ["full", Peak]
ebb.eval(out=sys.argv[1], resume=True, progress=False, **grid)
"""


def results(folder):
    return (folder / "results.jsonl").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    ebb.eval(out=folder, **GRID)
    return folder


def wait_for_bytes(folder, count, ended):
    """Returns when results.jsonl of `folder` has `count` bytes, or when `ended()`."""
    path = folder / "results.jsonl"
    while not ended() and (not path.exists() or path.stat().st_size < count):
        time.sleep(0.0005)


def kill_at_random(command, folder, seed):
    """Kills `command`, which resumes the run of `folder`, ten times after random numbers of bytes, then lets it end."""
    subprocess.run([*command(folder.with_name("uninterrupted"))], check=True)
    whole = results(folder.with_name("uninterrupted"))
    shares = random.Random(seed)
    killed = 0
    for kill in range(10):
        process = subprocess.Popen(command(folder), stderr=subprocess.PIPE)
        wait_for_bytes(folder, (kill + shares.random()) / 12 * len(whole), lambda: process.poll() is not None)
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL), process.stderr.read()
        killed += process.returncode != 0
        process.stderr.close()
    subprocess.run(command(folder), check=True)
    assert killed > 0
    assert results(folder) == whole
    assert whole.count(b"\n") == 2 * PROBLEMS


def test_ten_kills_in_python_lose_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    kill_at_random(lambda folder: [sys.executable, script, folder], tmp_path / "run", seed=1)


def test_ten_kills_of_the_program_lose_nothing(program, tmp_path):
    grid = tmp_path / "grid.json"
    grid.write_text(json.dumps({key: GRID[key] for key in ("policies", "budgets", "settings")}))

    def command(folder):
        resume = ["--resume"] if (folder / "grid.json").exists() else []
        return [f"{program}-lab", "eval", "--problems", str(PROBLEMS), "-n", "120", "--quiet", "--workers", "2",
                "--grid", grid, "--out", folder, *resume, "--json"]

    kill_at_random(command, tmp_path / "run", seed=2)


def test_a_run_goes_on_where_it_stopped(whole, tmp_path):
    seen = []

    def stop(answer):
        seen.append(answer)
        if len(seen) == 7:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ebb.eval(out=tmp_path / "run", on_answer=stop, **GRID)
    assert results(tmp_path / "run") == b"".join(results(whole).splitlines(True)[:7])
    more = []
    answers = ebb.eval(out=tmp_path / "run", resume=True, on_answer=more.append, **GRID)
    assert results(tmp_path / "run") == results(whole)
    assert len(answers) == 2 * PROBLEMS and len(more) == 2 * PROBLEMS - 7
    assert answers.drop(columns="seconds").to_dict("records") == [json.loads(line) for line in
                                                                  results(whole).splitlines()]


def test_an_exception_of_a_policy_keeps_the_answers_before_it(tmp_path):
    class Fails(ebb.Scorer):
        needs = ebb.Needs(mass="sum")
        sessions = 0

        def begin(self):
            Fails.sessions += 1

        def scores(self, group):
            if Fails.sessions > 6:
                raise ZeroDivisionError("on purpose")
            return self[group]

    options = GRID | dict(policies=["full", ("fails", Fails)], workers=1)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        ebb.eval(out=tmp_path / "run", **options)
    lines = [json.loads(line) for line in results(tmp_path / "run").splitlines()]
    assert PROBLEMS < len(lines) < PROBLEMS + 7
    assert {line["policy"] for line in lines} == {"full", "fails"} and not any("error" in line for line in lines)


def test_ctrl_c_keeps_the_answers_before_it(whole, tmp_path):
    folder = tmp_path / "run"

    def press():
        wait_for_bytes(folder, 4000, lambda: False)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press, daemon=True)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        ebb.eval(out=folder, **GRID | dict(problems=5000))
    presser.join()
    kept = results(folder)
    assert kept.endswith(b"\n") and kept.count(b"\n") > 3


def test_a_folder_holds_one_run(whole):
    with pytest.raises(ebb.InvalidArgument, match="holds a run already"):
        ebb.eval(out=whole, **GRID)
    with pytest.raises(ebb.InvalidArgument, match='"seed" differs'):
        ebb.eval(out=whole, resume=True, **GRID | dict(seed=5))
    with pytest.raises(ebb.InvalidArgument, match="resume"):
        ebb.eval(resume=True, **GRID)
    grid = json.loads((whole / "grid.json").read_text())
    (machine,) = grid["made_by"]
    assert machine["version"] == ebb.__version__ and machine["instructions"].startswith("cpu:")
    assert machine["threads"] == 2 and machine["cpu"] and machine["date"].endswith("Z")


def test_another_machine_warns_and_another_version_is_refused(whole, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("results.jsonl", "times.jsonl"):
        (folder / name).write_bytes((whole / name).read_bytes())
    grid = json.loads((whole / "grid.json").read_text())
    grid["made_by"][0]["cpu"] = "another"
    (folder / "grid.json").write_text(json.dumps(grid))
    with pytest.warns(UserWarning, match="cpu another, here it is"):
        ebb.eval(out=folder, resume=True, **GRID)
    grid["made_by"][0]["version"] = "0.1.0"
    (folder / "grid.json").write_text(json.dumps(grid))
    with pytest.raises(ebb.InvalidArgument, match="version 0.1.0"):
        ebb.eval(out=folder, resume=True, **GRID)
    with pytest.warns(UserWarning):
        ebb.eval(out=folder, resume=True, any_version=True, **GRID)


def test_shards_are_put_together_to_the_same_bytes(whole, tmp_path):
    folders = [tmp_path / str(i) for i in range(3)]
    for i, folder in enumerate(folders):
        ebb.eval(out=folder, shard=f"{i}/3", **GRID)
    assert report.main(["merge", *map(str, folders), "--out", str(tmp_path / "all")]) == 0
    assert results(tmp_path / "all") == results(whole)
    with pytest.raises(ebb.InvalidArgument, match="shard"):
        ebb.eval(shard="3/3", **GRID)


def test_progress_is_drawn_where_it_is_asked_for(capfd):
    ebb.eval(problems=3, max_tokens=20, progress=True)
    assert "3 of 3 answers" in capfd.readouterr().err
    ebb.eval(problems=3, max_tokens=20)
    assert capfd.readouterr().err == ""


def test_a_prompt_and_a_judge_of_ones_own(tmp_path):
    task = tmp_path / "task.jsonl"
    task.write_text("".join(json.dumps(dict(question=f"What is {i} + 1?", answer=f"#### {i + 1}")) + "\n"
                            for i in range(4)))
    asked, judged = [], []

    def prompt(problem):
        asked.append(problem)
        return f"Example: 1 + 1 is 2. {problem.question}"

    def judge(problem, answer):
        judged.append((problem.reference, answer))
        return (problem.reference in "13"), "seen"

    usual = dict(task=f"{task}:gsm8k", problems=0, max_tokens=20, prompt=prompt, prompt_style="raw")
    answers = ebb.eval(out=tmp_path / "run", judge=judge, **usual)
    assert asked[1] == ebb.Problem("line-2", "What is 1 + 1?", "2", "number")
    assert answers.correct.tolist() == [True, False, True, False] and set(answers.extracted) == {"seen"}
    assert sorted(reference for reference, _ in judged) == ["1", "2", "3", "4"]
    plain = ebb.eval(**usual | dict(prompt=None))
    assert (answers.prompt_tokens > plain.prompt_tokens).all()
    # The run is one of this judge and these prompts.
    with pytest.raises(ebb.InvalidArgument, match="judge_code"):
        ebb.eval(out=tmp_path / "run", resume=True, **usual)
    with pytest.raises(ebb.InvalidArgument, match="answer_rules: a judge of your own"):
        ebb.eval(judge=judge, answer_rules="last", **usual)
    with pytest.raises(ebb.InvalidArgument, match="prompts_fingerprint"):
        ebb.eval(out=tmp_path / "run", resume=True, judge=judge, **usual | dict(prompt=lambda problem: "?"))
    with pytest.raises(ZeroDivisionError):
        ebb.eval(problems=1, judge=lambda problem, answer: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ebb.eval(problems=1, prompt=lambda problem: 1 / 0)
    with pytest.raises(TypeError, match="judge.*maybe"):
        ebb.eval(problems=1, max_tokens=9, judge=lambda problem, answer: "maybe")
