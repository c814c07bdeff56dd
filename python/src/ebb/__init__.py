"""ebb: reasoning models whose key-value cache lives in a memory hierarchy, and policies for it.

    import ebb

    model = ebb.Model("model.gguf")
    session = model.session(t0="30%", t1="file")
    for token in session.generate("The tide ebbs because", max_tokens=200):
        print(token, end="", flush=True)
    print(session.memory["page_bytes"])
"""

from typing import TYPE_CHECKING, Any

try:
    from ._ebb import Facts, ModelShape, Step, __version__, available_threads, policies, scorers
    from .engine import Engine, Model, Rows, Session
    from .errors import (
        Corrupt,
        Error,
        InvalidArgument,
        IoError,
        LimitReached,
        NotFound,
        ScorerError,
        SessionFailed,
        Unsupported,
        ViewExpired,
        ViewKept,
    )
    from .generation import Generation, Move, Result, Token
    from .lab import PebbleProblem, Problem, Verdict, eval, judge, pebble_problem, summarize
    from .memory import Fit, fit, fit_table
    from .model_files import find_model
    from .study import Estimate, Fidelity, Importance, fidelity, importance, profile
    from .verdicts import judge_answers
    from .scorer import Attention, AttentionLog, LagKey, Needs, Placement, Scorer
except ModuleNotFoundError as _error:
    if _error.name != "ebb._ebb":
        raise
    # Without the compiled module, in a checkout of the sources, ebb.report and the modules that it needs run.
    if not TYPE_CHECKING:  # checkers would take any name for one of the module

        def __getattr__(name: str) -> Any:
            if name in __all__:
                raise ImportError(f"ebb.{name} needs the compiled module: pip install ./python", name="ebb._ebb")
            raise AttributeError(f"module 'ebb' has no attribute {name!r}")


__all__ = [
    "Attention", "AttentionLog", "Corrupt", "Engine", "Error", "Estimate", "Facts", "Fidelity", "Fit", "Generation", "Importance", "InvalidArgument",
    "IoError", "LagKey", "LimitReached", "Model", "ModelShape", "Move", "Needs", "NotFound",
    "PebbleProblem", "Placement", "Problem", "Result", "Rows", "Scorer", "ScorerError", "Session", "SessionFailed", "Step", "Token",
    "Unsupported", "Verdict", "ViewExpired", "ViewKept", "__version__", "available_threads", "eval",
    "fidelity", "find_model", "fit", "fit_table", "importance", "judge", "judge_answers",
    "pebble_problem", "policies", "profile", "scorers", "summarize",
]
