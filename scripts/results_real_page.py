"""docs/figures/results-real.md from what scripts/results_real ran."""

import json
import pathlib
import sys

from results_page import read, table

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "training/dms"))
from paired import mcnemar  # noqa: E402


def records_of(path):
    """The objects of a file of lines; none where it is not there."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def right_by_problem(folder):
    """[setting]: {problem: whether it was right}"""
    table_of = []
    for record in records_of(folder / "results.jsonl"):
        while len(table_of) <= record["setting"]:
            table_of.append({})
        table_of[record["setting"]][record["problem"]] = record["correct"]
    return table_of


def paired_p(one, other):
    """(p, won, lost) over the problems of both."""
    both = one.keys() & other.keys()
    won = sum(one[p] and not other[p] for p in both)
    lost = sum(other[p] and not one[p] for p in both)
    return mcnemar(won, lost), won, lost


def name_of(record):
    return " ".join(part for part in (record["policy"], record["budget"], record["tiers"], record["options"])
                    if part)


HEAD = ["setting", "n", "right", "accuracy, % (95 %)", "won : lost, p", "of full", "tokens", "peak rows", "peak MiB",
        "s an answer"]

# Title, what is compared, runs, the run and setting that is the full cache.
PARTS = [
    ("GSM8K: the full cache, and what costs no row", ["full", "shares", "compressed"],
     "Nothing is evicted. `t0=30%` keeps the rest in a file; `t2` compresses every row that is not protected."),
    ("GSM8K: evicted shares (\"Not All Thoughts Need HBM\", Table 3, Fig. 2)",
     ["evicted", "evicted-random", "hierarchy"],
     "Shares are of the rows ever generated. The hierarchy keeps half of the others in T1, which is exact."),
    ("GSM8K: windows and intervals (Tables 15, 16)", ["windows", "intervals"],
     "The hierarchy with a tenth evicted; 128 protected rows and decisions every 64 steps where nothing else is said."),
    ("GSM8K: policies at half of the rows", ["policies-half", "lazy"],
     "What half is of differs by policy, as its source has it (`ebb run --list-policies`)."),
    ("GSM8K: fixed numbers of rows (Tables 2, 17)", ["rows"], "Budgets are rows of each kv head."),
    ("MATH-500", ["math", "math-policies"], "Its first problems, at most 1,024 tokens an answer."),
    ("AIME 2024", ["aime"], "All 30 problems, at most 2,048 tokens an answer."),
]
# The full cache of a task is the first setting of this run.
FULL = {"math": "math", "math-policies": None, "aime": "aime"}


def seconds_of(folder):
    """{setting: mean seconds of an answer}"""
    of = {}
    for record in records_of(folder / "times.jsonl"):
        of.setdefault(record["setting"], []).append(record["seconds"])
    return {setting: sum(seconds) / len(seconds) for setting, seconds in of.items()}


def rows_of(out, run):
    records = read(out / run / "summary.json")
    full_run = FULL.get(run, "full")
    full = right_by_problem(out / full_run)[:1] if full_run else []
    full_records = read(out / full_run / "summary.json") if full_run else []
    seconds = seconds_of(out / run)
    rows = []
    for setting, (record, right) in enumerate(zip(records, right_by_problem(out / run))):
        of_full = won_lost = "-"
        is_full = run == full_run and setting == 0
        if full and full_records and not is_full:
            p, won, lost = paired_p(right, full[0])
            won_lost = f"{won} : {lost}, {p:.2g}"
            same = [full[0][problem] for problem in right if problem in full[0]]
            if sum(same):
                of_full = f"{sum(right.values()) / len(right) / (sum(same) / len(same)):.2f}"
        rows.append([name_of(record), record["n"], record["correct"],
                     f"{100 * record['accuracy']:.0f} ({100 * record['ci_low']:.0f} to {100 * record['ci_high']:.0f})",
                     won_lost, of_full, f"{record['generated_tokens']:.0f}", f"{record['peak_tokens']:.0f}",
                     f"{record['peak_kv_bytes'] / 2**20:.1f}",
                     f"{seconds[setting]:.1f}" if setting in seconds else "-"])
    return rows


def write(out, path):
    grids = [read(file) for file in sorted(out.glob("*/grid.json"))]
    parts = ["# Results on a real model: the tables", "",
             "Written by `scripts/results_real`.", ""]
    models = sorted({grid["model"] for grid in grids})
    if models:
        batches = " and ".join(sorted({str(grid["batch"]) for grid in grids}))
        parts += [f"Model: {', '.join(models)}. Greedy answers, in batches of {batches}.", ""]
    parts += ["Intervals are Clopper and Pearson's. `won : lost` are the problems that this setting alone, or the full "
              "cache alone, got right; p is McNemar's exact test over these, of each row by itself: of 20 rows that "
              "change nothing one falls below 0.05. `of full` is the accuracy over that of the full cache on the same "
              "problems. Tokens, peak rows and MiB are means over answers; seconds share a batch's time among its "
              "problems.", ""]
    for title, runs, text in PARTS:
        rows = [row for run in runs for row in rows_of(out, run)]
        if rows:
            parts += [f"## {title}", "", text, "", table(HEAD, rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")
