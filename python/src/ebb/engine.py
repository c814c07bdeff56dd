"""Models, engines and sessions."""

from __future__ import annotations

import html
import os
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from . import _ebb
from ._ebb import ModelShape
from .errors import InvalidArgument
from .generation import Generation
from .model_files import find_model
from .options import (ENGINE_OPTIONS, TIERS, GenerateOptions, ModelSessionOptions, SessionOptions, check_factory,
                      check_names, generate_options, given)
from .scorer import Placement, Scorer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack


class Model:
    """The weights, the tokenizer and the chat template of a GGUF file.

    Any number of engines and threads may share one.

        model = ebb.Model("SmolLM2-135M-Instruct.Q4_1.gguf")
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        adapter: str = "",
        dequantize: bool = False,
        context: int = 0,
        chat_template: str = "",
        mtp: bool = False,
        target: Model | None = None,
    ) -> None:
        """Maps the file.

        Args:
            path: a GGUF file, or a name that `find_model()` knows: "pebble", "qwen2.5-coder-0.5b", "hf:ORG/REPO".
            adapter: a GGUF file that makes the model mark rows.
            dequantize: hold the weights as F32, for studies of exactness.
            context: the longest text that sessions will hold, in tokens; 0: as long as the model
                was trained for. Models with two sets of RoPE factors (Phi-3, Phi-4) take the short
                ones if it fits their original context.
            chat_template: the Jinja source of a chat template in place of the file's own, or
                "chatml".
            mtp: load the file's layer for multi-token prediction, if it has one, as a source of guesses
                (`speculate` of `Engine.session()`).
            target: the model for which the file guesses, if it holds a head (EAGLE-3, DFlash, Gemma 4's
                assistant).
        """
        #: The file.
        self.path = find_model(path)
        self._dequantize = dequantize
        self._core = _ebb.Model.load(
            self.path, adapter, dequantize, context, chat_template, mtp, target._core if target is not None else None
        )

    @property
    def shape(self) -> ModelShape:
        return self._core.shape

    @property
    def description(self) -> str:
        """Name, architecture and format: "SmolLM2 135M Instruct, llama, Q4_1"."""
        return self._core.description

    @property
    def family(self) -> str:
        """The architecture as the file names it: "llama"."""
        return self._core.family

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as held in memory."""
        return self._core.weight_bytes

    @property
    def fingerprint(self) -> int:
        return self._core.fingerprint

    @property
    def chat_template(self) -> str:
        """The Jinja source of the file's chat template; "": it has none."""
        return self._core.chat_template

    def tokenize(self, text: str, *, add_bos: bool = True, specials: bool = True) -> list[int]:
        """The tokens of a text. specials: whether "<|im_start|>" in it is one token."""
        return self._core.tokenize(text, add_bos, specials)

    def detokenize(self, tokens: Sequence[int], *, specials: bool = False) -> str:
        """The text of tokens. specials: show control tokens."""
        return self._core.detokenize([int(t) for t in tokens], specials)

    def session(self, **options: Unpack[ModelSessionOptions]) -> Session:
        """A session in an engine of its own: options of `Engine` and of `Engine.session()`."""
        engine, opened = engine_for(self, {"speculate": "auto"} | dict(options))
        return Session(engine, engine._core.open(opened), opened)

    def __repr__(self) -> str:
        return f"<ebb.Model {self.description}>"


def engine_for(model: Model, options: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    """An engine for one session with the options of `Model.session()`, and the session's own options."""
    engine = {key: options.pop(key) for key in ENGINE_OPTIONS if key in options}
    check_names(options, Engine.session)
    tiers = {key: options[key] for key in TIERS if options.get(key) is not None}
    opened = Engine(model, **engine, **tiers, lossless=bool(options.get("lossless")))
    return opened, opened._options({"ledger": True} | options)


class Engine:
    """What sessions share: threads, graphs, the memory of the tiers.

    Sessions of one engine take turns: a step waits for that of another thread. For steps at the same
    time open an engine each.
    """

    def __init__(
        self,
        model: Model,
        *,
        threads: int = 0,
        kv_type: str = "f16",
        kv_cap: str | None = None,
        device: str | None = None,
        prefill_chunk: int = 512,
        t0: str | None = None,
        t1: str | None = None,
        t2: str | None = None,
        t1_read: str | None = None,
        evict: str | None = None,
        evict_of: str | None = None,
        lossless: bool = False,
        draft_model: Model | str | os.PathLike[str] | None = None,
        draft_kv_type: str | None = None,
    ) -> None:
        """Opens an engine.

        Args:
            model: the model.
            threads: compute threads; 0: one per core of the affinity mask, at most the cgroup's quota.
            kv_type: number format of cached rows: "f16", "bf16" or "f32"; "q8", "q4", "q3" or "q2" compresses
                all old rows: t1="none", t2="old:int8" (int4, int3, int2), and is refused together with t0, t1 and t2.
            kv_cap: hard cap on the memory of cached rows, "512MiB": without tiers, or with all old rows in T2.
            device: "cpu", or another one that `ebb device list` names.
            prefill_chunk: tokens of a step that reads a prompt.
            t0, t1, t2, t1_read, evict, evict_of: the tiers that sessions may use, in the words of the
                program: t0="30%", t1="file", t2="50%:int8", evict="10%". See `session()`.
            lossless: sessions may be lossless: T1 keeps every row.
            draft_model: a smaller model with the same vocabulary, or a head for the model (EAGLE-3, DFlash, Gemma 4's
                assistant), or its file or name, which guesses tokens for `Session.generate()`; each session keeps a
                second cache, of this model.
            draft_kv_type: "q8", "q4", "q3" or "q2" compresses the old rows of that cache.
        """
        options = given(locals())
        draft = options.pop("draft_model", None)
        if draft is not None and not isinstance(draft, Model):
            draft = Model(draft, target=model)
        self.model = model
        self._tiers = {key: options[key] for key in TIERS if key in options}
        if _ebb.compresses_rows(kv_type):
            self._tiers["kv_type"] = kv_type
        self._core = _ebb.Engine.create(model._core, options, draft._core if draft is not None else None)

    def __repr__(self) -> str:
        return f"<ebb.Engine of {self.model.description}, {self.threads} threads, {self.attention}>"

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self._core.threads

    @property
    def attention(self) -> str:
        """Which attention kernel runs: "cpu:AVX3"."""
        return self._core.attention

    @property
    def peak_bytes(self) -> dict[str, int]:
        """The largest memory that each tier's pages took, of all sessions together, in bytes; T1 in a
        file counts the file's."""
        return dict(zip(("t0", "t1", "t2"), self._core.peak_bytes()))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        options = given(options)
        for part, base in (("scorer", Scorer), ("placement", Placement)):
            if part in options and not isinstance(options[part], str):
                check_factory(options[part], base, part)
        if "budget" in options:
            options["budget"] = str(options["budget"])
        has_tiers = any(key in options for key in TIERS) or bool(self._tiers)
        if "scorer" in options and "policy" not in options and not has_tiers:
            options["policy"] = "attention"
        return {**self._tiers, **options} if has_tiers else options

    def session(
        self,
        *,
        policy: str | None = None,
        scorer: str | Callable[[], Scorer] | None = None,
        placement: Callable[[], Placement] | None = None,
        budget: str | int | None = None,
        sinks: int | None = None,
        window: int | None = None,
        interval: int | None = None,
        granularity: str | None = None,
        t0: str | None = None,
        t1: str | None = None,
        t1_read: str | None = None,
        read: str | None = None,
        t2: str | None = None,
        evict: str | None = None,
        evict_of: str | None = None,
        lossless: bool = False,
        verify: str | None = None,
        draft_min: int | None = None,
        draft_max: int | None = None,
        context: int = 0,
        past_context: str | None = None,
        speculate: str = "auto",
        seed: int = 0,
        ledger: bool = True,
    ) -> Session:
        """Opens a session: one sequence of tokens with its cache and its policy.

        Args:
            policy: selects the rows to keep: "full", "h2o", "attention", "lag_kv", ...
                (`ebb.policies()`), with parameters as "h2o:heavy=64,recent=64".
            scorer: ranks rows instead of the policy's own scorer: a name (`ebb.scorers()`), or a
                subclass of `ebb.Scorer`. Without a policy, and without tiers, it decides as `attention` does.
            placement: decides instead of the policy's own placement: a subclass of `ebb.Placement`.
            budget: the amount to keep: 1024 rows, "25%", "+512" beyond the protected rows, "64MiB".
            sinks, window: numbers of tokens that are never evicted, the first generated ones and the newest.
            interval: generated tokens between two decisions.
            granularity: unit of a decision: "token" (all layers together), "layer" or "head".
            t0: fast memory: a share of the unprotected full-precision rows ("30%"), or the engine's cap.
            t1: capacity memory, exact, the engine's: "none", "host" or "file[:FOLDER][,SIZE]".
            t1_read: "all", or "select:mass=0.9,rows=N": the rows that a generated token reads.
            read: the same, or "quest:rows=1024,page=16": the pages that Quest chooses.
            t2: compressed memory: "50%:int8" of the unprotected rows that stay, or "old:int4", all old
                rows.
            evict: the share of the unprotected rows to evict: "10%".
            evict_of: the rows that `evict` is a share of: "generated" or "alive".
            lossless: the policy only drafts; the text is the full cache's.
            verify: "exact" or "fast".
            draft_min, draft_max: tokens of a verifying step.
            context: tokens that the sequence may have; 0: the trained context.
            past_context: "refuse" or "rerotate".
            speculate: the source of guesses, of which several are computed in one step where that is faster:
                "lookup", what followed the last tokens when they occurred before; "model", the engine's
                `draft_model`; "eagle3", "assistant" and "dflash", the same if it is such a head; "mtp", the layer of a
                model loaded with `mtp=True`; "auto" (the default), lookup and one of these; "off", none. No
                bit changes.
            seed: for randomized policies.
            ledger: record where each row went, for `Token.moves` and `tiers_over_time()`. Without it
                policies of many groups decide on several threads.
        """
        options = self._options(locals())
        return Session(self, self._core.open(options), options)

    def resume(self, path: str | os.PathLike[str], **options: Unpack[SessionOptions]) -> Session:
        """Resumes the session that `Session.save()` wrote to a file, with the `options` of `session()` that it was
        opened with. It continues bit for bit as the saved one would have."""
        check_names(options, Engine.session)
        opened = self._options(dict(options))
        opened.setdefault("ledger", True)
        opened.setdefault("speculate", "auto")
        core, extra = self._core.resume(os.fspath(path), opened)
        session = Session(self, core, opened)
        if extra:
            session._talk = _ebb.Conversation.decode(extra)
        return session

    def count_needs(
        self, prompt_tokens: int, most_tokens: int, **options: Unpack[SessionOptions]
    ) -> dict[str, int]:
        """The bytes that a session of these options takes of each tier, at most, while it reads
        `prompt_tokens` and has `most_tokens` in all."""
        check_names(options, Engine.session)
        return self._core.count_needs(self._options(dict(options)), prompt_tokens, most_tokens)


class Rows(NamedTuple):
    """Rows of a cache, in order of position.

    Attributes:
        positions: int32 [rows].
        tiers: uint8 [rows]: 0 fast memory, 1 capacity memory, 2 compressed.
        keys: float32 [rows, head_dim], after RoPE, rounded as they are stored.
        values: the same shape and type; None if a value is a part of its key (latent attention).
    """

    positions: NDArray[np.int32]
    tiers: NDArray[np.uint8]
    keys: NDArray[np.float32]
    values: NDArray[np.float32] | None


class _Closed:
    """The core of a session that was closed."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidArgument("the session is closed")


class Session:
    """One sequence: its tokens, its cache, its policy. `Engine.session()` opens one."""

    def __init__(self, engine: Engine, core: Any, options: dict[str, Any]) -> None:
        self.engine = engine
        self._core = core
        self._options = options
        self._talk: Any = None

    def close(self) -> None:
        """Gives the memory of the rows back; the session is then no longer usable."""
        self._core = _Closed()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Tokens so far."""
        return self._core.next_position

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if isinstance(self._core, _Closed):
            return "<ebb.Session, closed>"
        return f"<ebb.Session of {self.engine.model.description}, policy {self.policy}, {len(self)} tokens>"

    def _repr_html_(self) -> str:
        memory = self.memory
        cells = "".join(f"<tr><th>{name}</th><td>{rows}</td><td>{size}</td></tr>" for name, rows, size in
                        zip(("T0", "T1", "T2"), memory["rows"], memory["page_bytes"]))
        return (f"<p>{html.escape(repr(self))}</p><table><tr><th>tier</th><th>rows</th><th>bytes</th></tr>{cells}"
                f"<tr><th>evicted</th><td>{memory['rows_evicted']}</td><td></td></tr></table>")

    # Text

    def prefill(
        self, prompt: str | Sequence[int], *, progress: Callable[[int], None] | None = None
    ) -> None:
        """Reads given text or tokens. progress: called after each chunk with the tokens read so far;
        Ctrl-C, and an exception that it raises, end the reading after a chunk, whose tokens stay."""
        self._core.prefill(_prompt(prompt), progress)

    def log_probabilities(
        self, prompt: str | Sequence[int], *, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """Reads given text or tokens as `prefill()` does, and returns the logarithmic probability of each token after
        those before it: float32 [tokens]. NaN for the first token of an empty session."""
        return self._core.log_probabilities(_prompt(prompt), progress)

    def decode(self, token: int) -> None:
        """Appends one token and computes the logits after it."""
        self._core.decode(token)

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        max_tokens: int = -1,
        min_tokens: int = 0,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        repeat_last_n: int = 64,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        dynatemp_range: float = 0.0,
        dynatemp_exponent: float = 1.0,
        typical_p: float = 1.0,
        top_n_sigma: float = -1.0,
        xtc_probability: float = 0.0,
        xtc_threshold: float = 0.1,
        dry_multiplier: float = 0.0,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_penalty_last_n: int = -1,
        dry_sequence_breakers: Sequence[str] = ("\n", ":", "\"", "*"),
        mirostat: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        samplers: str = "",
        seed: int = 0,
        grammar: str = "",
        stop: str | Sequence[str] = (),
        ignore_eos: bool = False,
        thinking_budget: int = -1,
        progress: Callable[[int], None] | None = None,
    ) -> Generation:
        """Reads a prompt and generates what follows it, token by token.

            for token in session.generate("The tide", max_tokens=100):
                print(token, end="", flush=True)

        Args:
            prompt: text or tokens; None: continues from the session's last token.
            max_tokens: -1: until something else ends it.
            temperature: 0 always takes the likeliest token.
            repeat_penalty: divides the logits of tokens among the last `repeat_last_n` tokens of
                the prompt and the answer; `presence_penalty` is subtracted from them, and
                `frequency_penalty` for each time that they occur there.
            dynatemp_range ... mirostat_eta: the samplers of llama.cpp, under its names; off by default.
            samplers: names with a semicolon between them, "top_k;temperature": the samplers that run, in this
                order; "": llama.cpp's order.
            seed: of sampling.
            grammar: GBNF with a rule "root"; "": none.
            stop: texts that end the answer.
            ignore_eos: end tokens never come.
            progress: as of `prefill()`.
        """
        options = generate_options(locals())
        return Generation(self._core.generate(None if prompt is None else _prompt(prompt), options))

    def chat(
        self,
        message: str | Sequence[dict[str, str]],
        *,
        system: str | None = None,
        think: bool | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """The next turn of a conversation, through the model's chat template; only what is new is
        read. An answer that is generated to its end joins the conversation (`messages`).

            print(session.chat("Why do tides ebb?").run().content)

        Args:
            message: what the user says, or messages {"role": ..., "content": ...}.
            system: the system's message, before the first turn.
            think: False: the template is asked for an answer without a thought.
            options: those of `generate()`.
        """
        check_names(options, Session.generate)
        core_options = generate_options(options)
        if self._talk is None:
            self._talk = _ebb.Conversation()
            if system is not None:
                self._talk.add("system", system)
        if isinstance(message, str):
            message = [{"role": "user", "content": message}]
        said = [(m["role"], m["content"]) for m in message]
        if think is not None:
            core_options["think"] = think
        return Generation(self._core.chat(self._talk, said, core_options))

    @property
    def messages(self) -> list[dict[str, str]]:
        """Those of the conversation so far."""
        return [] if self._talk is None else self._talk.messages

    # State

    def fork(self) -> Session:
        """Returns an independent copy that shares full pages of rows."""
        copy = Session(self.engine, self._core.fork(), self._options)
        if self._talk is not None:
            copy._talk = _ebb.Conversation.decode(self._talk.encode())
        return copy

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the session and its conversation to a file, for `Engine.resume()`."""
        extra = b"" if self._talk is None else self._talk.encode()
        self._core.save(os.fspath(path), extra)

    def truncate(self, end: int) -> None:
        """Forgets every token at position `end` and later. Rows that went do not come back."""
        self._core.truncate(end)

    def set_t0_share(self, share: float) -> None:
        """From now on T0 keeps this share, 0 to 1, of the rows that may leave it. Changes no bit."""
        self._core.set_t0_share(share)

    def park(self) -> None:
        """Moves all rows of T0 to T1 and frees their memory; the session can continue at any time."""
        self._core.park()

    # What there is to see

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All tokens so far, int32 [tokens]."""
        return self._core.tokens

    @property
    def text(self) -> str:
        """Of all tokens, control tokens included."""
        return self.engine.model.detokenize(self.tokens.tolist(), specials=True)

    @property
    def logits(self) -> NDArray[np.float32]:
        """After the last token, a copy: float32 [vocab_size]; empty before the first."""
        return self._core.logits

    @property
    def logits_hash(self) -> int:
        """A hash over all bits of the logits of each step: equal where two caches give the same."""
        return self._core.logits_hash

    @property
    def context(self) -> int:
        """In tokens."""
        return self._core.context

    @property
    def policy(self) -> str:
        """What decides: "attention", "lag_key+scorer=..."."""
        return self._core.policy_name

    @property
    def num_groups(self) -> int:
        """Groups of (layer, kv head) pairs that keep the same tokens."""
        return self._core.num_groups

    def visible_positions(self, group: int = 0) -> NDArray[np.int32]:
        """The positions of the rows that a group has, ascending: int32 [rows]."""
        return self._core.visible_positions(group)

    def tiers(self, group: int = 0) -> NDArray[np.uint8] | None:
        """Where each token of a group lies, by position: uint8 [tokens], 3: evicted. None without a
        ledger."""
        return self._core.tiers_of(group)

    def tiers_over_time(self) -> NDArray[np.int64] | None:
        """Rows, (layer, kv head, token) triples, per tier after every step: int64 [steps, 4]; the last
        column counts evicted ones. None without a ledger."""
        return self._core.rows_by_step()

    def rows(self, layer: int, kv_head: int = 0) -> Rows:
        """Copies of the keys and values that the cache holds of one layer and kv head, from all tiers, as attention
        reads them. Of a lossless session these are the draft's."""
        return Rows(*self._core.rows_of(layer, kv_head))

    @property
    def memory(self) -> dict[str, Any]:
        """What the cache holds and takes: `rows` and `page_bytes` by tier, `rows_evicted`,
        `table_bytes`, `staging_bytes` and moves so far."""
        return self._core.accounting()

    @property
    def last_step(self) -> dict[str, Any]:
        """Work and time of the last step, in seconds, rows and bytes."""
        return self._core.last_step()

    @property
    def lossless_report(self) -> dict[str, int] | None:
        """Drafted and accepted tokens; None unless the session is lossless."""
        return self._core.lossless_report()

    @property
    def speculation_report(self) -> dict[str, Any]:
        """Guessed ("drafted") and "accepted" tokens, "verify_steps" that computed guesses, and as "obstacle" the reason
        why the session guesses none; "" if there is none."""
        return self._core.speculation_report()


def _prompt(prompt: str | Sequence[int]) -> str | list[int]:
    return prompt if isinstance(prompt, str) else [int(token) for token in prompt]
