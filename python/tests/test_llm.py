"""The plugin of the command-line tool `llm`."""

import json
import os
import subprocess
import sys

import pytest

from conftest import PUZZLE

pytest.importorskip("llm")


@pytest.fixture
def llm(tmp_path):
    def run(*arguments, check=True):
        return subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, check=check,
                              env={**os.environ, "LLM_USER_PATH": str(tmp_path)}, input="")

    return run


@pytest.fixture(scope="module")
def expected(model):
    return model.session().chat(PUZZLE, temperature=0).run()


def test_answers_and_options(llm, expected, tmp_path):
    from ebb.engine import find_model

    assert "ebb:pebble" in llm("models").stdout
    greedy = ["-m", "ebb:pebble", "-o", "temperature", "0"]
    streamed = llm("prompt", *greedy, PUZZLE)
    assert streamed.stdout.strip() == expected.content.strip()
    tiers = ["-o", "t0", "20%", "-o", "t1", f"file:{tmp_path}"]
    assert llm("prompt", "--no-stream", *greedy, *tiers, PUZZLE).stdout == streamed.stdout
    fitted = llm("prompt", "-m", "ebb", "-o", "model", find_model("pebble"), "-o", "memory", "1GiB", "-o",
                 "temperature", "0", PUZZLE)
    assert fitted.stdout == streamed.stdout
    short = llm("prompt", *greedy, "-o", "max_tokens", "4", PUZZLE).stdout
    assert len(short) < len(streamed.stdout)
    logged = json.loads(llm("logs", "-n", "4", "--json").stdout)[0]
    assert logged["output_tokens"] == expected.generated_tokens and logged["input_tokens"] > 10


def test_wrong_options_are_refused(llm):
    for options, message in ([["-m", "ebb"], "-o model"], [["-m", "ebb:pebble", "-o", "policy", "none_such"], "none_such"],
                             [["-m", "ebb:pebble", "-o", "t0", "many"], "T0"]):
        failed = llm("prompt", *options, "hello", check=False)
        assert failed.returncode != 0 and message in failed.stderr


def test_tokens_come_one_by_one_and_a_conversation_goes_on(expected):
    import llm as tool

    model = tool.get_model("ebb:pebble")
    talk = model.conversation()
    events = list(talk.prompt(PUZZLE, temperature=0).stream_events())
    text, thought = ("".join(e.chunk for e in events if e.type == kind) for kind in ("text", "reasoning"))
    assert text == expected.content and thought.strip() == expected.reasoning_content.strip()
    assert len(events) > 0.8 * expected.generated_tokens > 10
    session = model._last[2]
    read = len(session.tokens)
    second = talk.prompt("What does Ada have?", temperature=0)
    second.text()
    assert model._last[2] is session and len(session.tokens) > read
    assert [m["role"] for m in session.messages] == ["user", "assistant"] * 2
    # Other options need another session, which reads the conversation.
    talk.prompt("And what does Ben have?", temperature=0, threads=1).text()
    assert model._last[2] is not session
    assert [m["role"] for m in model._last[2].messages] == ["user", "assistant"] * 3


def test_downloaded_files_are_models(monkeypatch, tmp_path):
    from ebb.llm_plugin import downloaded

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    snapshot = tmp_path / "huggingface/hub/models--org--name-GGUF/snapshots/abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "ebb").mkdir()
    for file in (tmp_path / "ebb/small.gguf", snapshot / "large-00001-of-00002.gguf",
                 snapshot / "large-00002-of-00002.gguf"):
        file.touch()
    assert sorted(downloaded()) == ["large-00001-of-00002", "small"]
