"""Verdicts on answers in LaTeX (MATH), by the Python package math-verify.

`ebb-lab eval` compares the texts of boxes while it runs. `python3 -m ebb.report judge FOLDER TASK.jsonl` judges the
answers of a run by value and writes verdicts.jsonl next to them, which all other figures of `ebb` then use.
"""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Iterator

from .errors import Corrupt, InvalidArgument, NotFound
from .runs import VERDICTS, Json, Run

if TYPE_CHECKING:
    import pandas



def _math_verify() -> Any:
    try:
        import math_verify
    except ImportError:
        raise NotFound("judging needs the Python package math-verify: pip install './python[lab]' in a checkout of ebb") from None
    # It logs what it cannot parse, and which of its limits a thread cannot have.
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return math_verify


@lru_cache(maxsize=4096)
def _formula(text: str) -> Any:
    return _math_verify().parse(text if "$" in text else f"${text}$")


def same_formula(answer: str, reference: str) -> bool:
    """Whether two formulas denote the same thing; False too where one of them cannot be read."""
    return answer == reference or bool(_math_verify().verify(_formula(reference), _formula(answer)))


def _spoken(text: str) -> str:
    """The text after the thought; all of it where nothing follows the thought."""
    spoken = text.rpartition("</think>")[2]
    return spoken if spoken.strip() else text


def verdict(text: str, reference: str) -> Json:
    """The fields of a record that the judge decides: `correct`, `outcome`, `extracted`, `rule`."""
    spoken = _spoken(text)
    if not spoken.replace("<think>", "").replace("</think>", "").strip():
        return dict(correct=False, outcome="empty", extracted="", rule="none")
    found = _math_verify().parse(spoken)
    if not found:
        return dict(correct=False, outcome="no_answer", extracted="", rule="none")
    correct = bool(_math_verify().verify(_formula(reference), found))
    extracted = next((one for one in reversed(found) if isinstance(one, str)), str(found[0]))
    return dict(correct=correct, outcome="right" if correct else "wrong", extracted=extracted, rule="math_verify")


def references(task: str | Path) -> dict[str, str]:
    """The answers of a file of problems, by the names that `ebb-lab eval` gives problems."""
    try:
        lines = Path(task).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise NotFound(f"cannot read {task}: {error.strerror}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            answer = str(record["answer"])
        except (ValueError, KeyError, TypeError):
            raise Corrupt(f'{task}, line {number}: expected an object with a field "answer"') from None
        named = [record[key] for key in ("unique_id", "id") if key in record]
        name = str(named[0]) if named else f"line-{number}"
        if name in found:
            name += f"#line-{number}"
        found[name] = answer.rsplit("####", 1)[-1].strip()
    return found


def _judged(lines: Iterable[Json], task: str | Path) -> Iterator[Json]:
    expected = references(task)
    for line in lines:
        if line["id"] not in expected:
            raise InvalidArgument(f'an answer is to a problem "{line["id"]}", which {task} does not have')
        yield verdict(line["text"], expected[line["id"]])


def judge_answers(answers: pandas.DataFrame, task: str | Path) -> pandas.DataFrame:
    """The answers of `ebb.eval()` to a file of MATH, with the verdicts of math-verify."""
    verdicts = list(_judged(answers.to_dict("records"), task))
    return answers.assign(**{name: [one[name] for one in verdicts] for name in ("correct", "outcome", "extracted",
                                                                                "rule")})


def judge_run(run: Run, task: str | Path) -> list[Json]:
    """Judges the answers of a run and writes verdicts.jsonl into its folder, a line for each answer."""
    verdicts = [dict(setting=line["setting"], problem=line["problem"], **one)
                for line, one in zip(run.results, _judged(run.results, task))]
    path = Path(run.folder) / VERDICTS
    unfinished = path.with_suffix(".new")
    unfinished.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in verdicts), encoding="utf-8")
    unfinished.replace(path)
    return verdicts
