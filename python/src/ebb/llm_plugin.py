"""Models of ebb for the command-line tool `llm` (`pip install './python[llm]'` in a checkout).

    llm -m ebb:pebble "First Ada gets three. What does Ada have?"
    llm -m ebb:SmolLM2-135M-Instruct.Q4_1 -o t0 30% -o t1 file "Why do tides ebb?"
    llm -m ebb -o model /models/reasoner.gguf -o memory 2GiB "Why do tides ebb?"

`llm models` lists "ebb:pebble" and the files that `ebb pull` downloaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

import llm
from llm.parts import StreamEvent, TextPart
from pydantic import Field

from .engine import Model, Session
from .memory import fit
from .model_files import find_model

#: Options of the generation; the others open the session.
_GENERATION = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "thinking_budget", "think")


def downloaded() -> dict[str, str]:
    """The GGUF files in the cache of `ebb pull` and in that of the hub, by name without ".gguf"."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or cache / "huggingface") / "hub"
    files = [*(cache / "ebb").glob("*.gguf"), *Path(hub).glob("models--*/snapshots/*/*.gguf")]
    # A model in several files is loaded by the first of them.
    return {file.stem: str(file) for file in sorted(files)
            if "-of-" not in file.stem or "-00001-of-" in file.stem}


class EbbModel(llm.Model):
    can_stream = True

    class Options(llm.Options):
        max_tokens: int | None = Field(None, description="Most tokens of the answer")
        temperature: float | None = Field(None, description="0 always takes the likeliest token")
        top_k: int | None = Field(None, description="Sample among this many tokens")
        top_p: float | None = Field(None, description="Sample among tokens of this probability together")
        min_p: float | None = Field(None, description="Least probability, as a share of the highest")
        seed: int | None = Field(None, description="Seed of sampling")
        thinking_budget: int | None = Field(None, description="Most tokens of the thought")
        think: bool | None = Field(None, description="False: ask the template for no thought")
        model: str | None = Field(None, description="GGUF file, for the model \"ebb\"")
        memory: str | None = Field(None, description="Choose tiers that fit: 2GiB, weights included")
        threads: int | None = Field(None, description="Compute threads")
        context: int | None = Field(None, description="Tokens that the conversation may have")
        kv_type: str | None = Field(None, description="f16, bf16, f32, q8, q4, q3 or q2")
        policy: str | None = Field(None, description="Which rows stay: h2o, attention, lag_kv, ...")
        budget: str | None = Field(None, description="How many of them: 25%, 1024")
        t0: str | None = Field(None, description="Share of the rows in fast memory: 30%")
        t1: str | None = Field(None, description="Capacity memory: none, host or file")
        t2: str | None = Field(None, description="Compressed memory: 50%:int8")
        evict: str | None = Field(None, description="Share of the rows that is evicted: 10%")
        lossless: bool | None = Field(None, description="The policy only drafts; the text is the full cache's")

    def __init__(self, model_id: str, file: str | None) -> None:
        self.model_id = model_id
        self.file = file
        self._loaded: tuple[str, Model] | None = None
        self._last: tuple[dict[str, Any], list[dict[str, str]], Session] | None = None

    def _session(self, options: dict[str, Any], said: list[dict[str, str]]) -> tuple[Session, list[dict[str, str]]]:
        """A session, and the messages that it has not read. Continues the last session if it can."""
        if self._last is not None:
            last, read, session = self._last
            if last == options and said[: len(read)] == read and len(said) > len(read):
                return session, said[len(read) :]
        self._last = None
        named = options.get("model")
        if (named is None) == (self.file is None):
            raise llm.ModelError("-m ebb needs -o model FILE; -m ebb:NAME takes no -o model")
        file = find_model(self.file if named is None else named)
        if self._loaded is None or self._loaded[0] != file:
            self._loaded = file, Model(file)
        model = self._loaded[1]
        opened = {key: value for key, value in options.items() if key not in ("model", "memory")}
        if "memory" in options:
            opened.update(fit(model, options["memory"]).options)
        return model.session(**opened), said

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[StreamEvent]:
        options = prompt.options.model_dump(exclude_none=True)
        generation = {key: options.pop(key) for key in _GENERATION if key in options}
        said = [{"role": message.role,
                 "content": "".join(part.text for part in message.parts if isinstance(part, TextPart))}
                for message in prompt.messages]
        session, unread = self._session(options, said)
        before = len(session.tokens)
        answer = session.chat(unread, **generation)
        began, content = None, ""
        for token in answer:
            kind, text = "reasoning" if token.is_thought else "text", token.text
            if token.is_thought:
                text = text.replace("<think>", "").replace("</think>", "")
            if kind != began:  # as Result.content, which begins without spaces
                text = text.lstrip()
            if text:
                began = kind
                content += text if kind == "text" else ""
                yield StreamEvent(type=kind, chunk=text)
        result = answer.result
        if result.error:
            raise llm.ModelError(result.error)
        self._last = options, [*said, {"role": "assistant", "content": content}], session
        read = len(session.tokens) - before - result.generated_tokens
        response.set_usage(input=max(read, 0), output=result.generated_tokens,
                           details={"thought_tokens": result.thought_tokens})
        response.response_json = {"finish_reason": result.finish_reason, "memory": session.memory["page_bytes"]}


@llm.hookimpl
def register_models(register: Any) -> None:
    register(EbbModel("ebb", None))
    register(EbbModel("ebb:pebble", "pebble"))
    for name, file in downloaded().items():
        register(EbbModel(f"ebb:{name}", file))
