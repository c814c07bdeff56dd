"""What is installed: stubs, docstrings, and the commands of docs/user/python.md."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ebb

PAGE = Path(__file__).parents[2] / "docs/user/python.md"


def test_stubs_have_what_the_module_has():
    package = Path(ebb.__file__).parent
    assert (package / "py.typed").exists()
    tree = ast.parse((package / "_ebb.pyi").read_text())
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert names >= {name for name in dir(ebb._ebb) if not name.startswith("_")}
    step = next(node for node in tree.body if getattr(node, "name", "") == "Step")
    assert any("-> int" in ast.unparse(node) for node in step.body)


@pytest.mark.parametrize("name", [n for n in ebb.__all__ if not n.startswith("_")])
def test_every_public_name_says_what_it_is(name):
    thing = getattr(ebb, name)
    assert inspect.getdoc(thing), name
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if member.startswith("_") or not callable(value):
                continue
            own = issubclass(thing, ebb.Scorer) and thing is not ebb.Scorer
            assert own or inspect.getdoc(value) or member == "load_state", f"{name}.{member}"


def test_version_and_lists():
    assert re.fullmatch(r"\d+\.\d+\.\d+", ebb.__version__)
    assert {"full", "h2o", "attention", "lag_kv"} <= {p["name"] for p in ebb.policies()}
    assert {"attention", "lag_key", "recency"} <= {s["name"] for s in ebb.scorers()}
    assert ebb.available_threads() >= 1


def test_the_citation_is_of_this_version():
    text = (PAGE.parents[2] / "CITATION.cff").read_text()
    assert f"version: {ebb.__version__}\n" in text and "cff-version: 1.2.0" in text


def test_the_reference_has_every_public_name():
    script = PAGE.parents[2] / "scripts/python_api"
    text = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True).stdout
    bound = {"ModelShape", "Step", "Facts", "available_threads", "policies", "scorers", "__version__"}
    for name in set(ebb.__all__) - bound:
        assert f"\n## {name}\n" in text or f"\n## ebb.{name}\n" in text, name
    assert "## ebb.plots.accuracy" in text and "### Session.generate" in text and text.count("```") % 2 == 0


@pytest.mark.parametrize("notebook", sorted((PAGE.parents[2] / "python/notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_stored_with_their_outputs(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    kinds = {kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {"text": 0})}
    assert {"text", "image/png", "text/html"} <= kinds
    assert not any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))


def test_no_text_names_the_package_of_another_project():
    for path in Path(ebb.__file__).parent.glob("*.py"):
        assert "pip install ebb" not in path.read_text(), path


def test_the_page_for_users_runs(capsys, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    first = re.search(r"python3 - <<'PYTHON'\n(.*?)\nPYTHON", text, re.S).group(1)
    names = {}
    exec(first, names)
    assert "The answer is seven" in capsys.readouterr().out
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 2
    for block in blocks:
        names["ebb"] = ebb
        exec(block.replace("problems=100", "problems=4").replace('budget="25%")', 'budget="25%", window=16)'), names)
    assert "Peak" in names and len(names["answers"]) == 4 * 4


#: Runs Python without the compiled module.
WITHOUT_MODULE = "import sys; sys.modules['ebb._ebb'] = None; "


def without_module(code, *arguments):
    return subprocess.run([sys.executable, "-c", WITHOUT_MODULE + code, *arguments], capture_output=True, text=True)


def test_reports_need_no_compiled_module(tmp_path, program):
    profile = subprocess.run([program.with_name("ebb-lab"), "profile", "--json", "-m", "pebble", "-n", "4", "-p", "The tide"],
                             capture_output=True, text=True, check=True).stdout
    (tmp_path / "profile.json").write_text(profile)
    main = "import runpy; runpy.run_module('ebb.report', run_name='__main__')"
    end = without_module(main, "profile", str(tmp_path / "profile.json"), "--out", str(tmp_path / "profile.html"))
    assert end.returncode == 0, end.stderr
    assert "<svg" in (tmp_path / "profile.html").read_text()
    for command in ("summary", "fronts", "margins"):
        end = without_module(main, command, "--help")
        assert end.returncode == 0, end.stderr


def test_without_the_compiled_module_names_say_so():
    end = without_module("import ebb; ebb.Model")
    assert "ImportError: ebb.Model needs the compiled module: pip install ./python" in end.stderr
    end = without_module("import ebb; print(hasattr(ebb, 'nothing'))")
    assert end.stdout == "False\n", end.stderr


def test_the_facts_of_policies_are_those_of_the_module():
    from ebb.policy_facts import percent_base_of, scorer_of

    assert [(name, scorer_of(name), percent_base_of(name)) for name in json.loads(
        (Path(ebb.__file__).parent / "policies.json").read_text())] == [
            (info["name"], info["scorer"], info["percent_of"]) for info in ebb.policies()]
