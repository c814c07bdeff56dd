"""docs/figures/results-real.md from what scripts/results_real ran."""

import json
import pathlib
import random
import statistics
import sys

from results_page import Importance, read, table, wrapped

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "training/dms"))
from paired import mcnemar  # noqa: E402


def records_of(path):
    """The objects of a file of lines; none where it is not there."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def paired_p(one, other):
    """(p, won, lost) over the problems of both."""
    both = one.keys() & other.keys()
    won = sum(one[p] and not other[p] for p in both)
    lost = sum(other[p] and not one[p] for p in both)
    return mcnemar(won, lost), won, lost


# What is the same in all runs but those that say otherwise (scripts/results_real).
USUAL = "window=32 interval=16"
# What tiers do by themselves.
OWN = "window=128 interval=64"
# Layers times kv heads.
STREAMS = {"1.5B": 28 * 2, "0.5B": 24 * 2}


def name_of(record):
    options = record["options"].replace(USUAL, "").strip()
    if record["tiers"] and "window=" not in record["options"]:
        options = f"{options} {OWN}".strip()
    # Where the tiers place rows, the scorer says all; runs of older versions call them `full`.
    policy = "" if options.startswith("scorer=") else record["policy"]
    return " ".join(part for part in (policy, record["budget"], options, record["tiers"]) if part)


HEAD = ["setting", "n", "right", "accuracy, % (95 %)", "won : lost, p", "of full", "tokens", "evicted, %", "peak rows, of full",
        "peak bytes, of full", "reads, of full", "s an answer"]

# Policies whose budget, as published, the prompt counts in, and that let it go.
PROMPT_IN_BUDGET = ["h2o", "tova", "rkv", "lazy_eviction", "vatp", "streaming", "streaming_rerotated"]

# Title, what is compared, runs, the run and setting that is the full cache.
PARTS = [
    ("GSM8K: the full cache, and what costs no row", ["full", "shares", "compressed", "compressed-128", "compressed-4"],
     "`t0=30%` keeps the rest in a file; `t2` compresses every row that is not protected. 5 % evicted beside it is the paper's "
     "condition for an 8-bit tier that collapses."),
    ("GSM8K: a compressed cache (`--kv-type q4`, `q3`)", ["kv-types"],
     "ebb compresses all rows of prompts and answers except the first 64 and the newest 65 to 128. The machine was a "
     "Xeon without AMX that also ran other programs."),
    ("GSM8K: evicted shares (\"Not All Thoughts Need HBM\", Table 3, Fig. 2)", ["evicted", "evicted-keys", "hierarchy"],
     "Shares are of the rows ever unprotected, that is, generated and more than a window ago; `evicted` is what that was of all "
     "rows at the end. The hierarchy keeps half of the others in T1, which is exact."),
    ("GSM8K: where rows lie by how many are evicted (\"Not All Thoughts Need HBM\", Table 4)", ["grid"], "The rest lies in T1, in memory."),
    ("GSM8K: shares by other scores; windows and intervals (Tables 15, 16)", ["scorers"],
     "The prompt stays whatever scores. A longer window leaves fewer rows to evict a tenth of, too."),
    ("GSM8K: policies at half of the rows", ["policies-half"],
     "What half is of differs by policy, as its source has it (`ebb run --list-policies`), and `evicted` says what it came to. "
     "h2o, tova, rkv, lazy_eviction, vatp and streaming let the prompt go as well, as published; `scorer=` evicts by a policy's "
     "scores half of the rows ever unprotected, so that the prompt stays. `quest` frees nothing and reads less."),
    ("GSM8K: fixed numbers of rows (Tables 2, 17)", ["rows"],
     "Budgets are rows of each kv head, the prompt's too, which all of these but `quest` let go. `quest` frees nothing and reads less."),
    ("GSM8K: lossless", ["alone", "lossless"],
     "Each problem by itself, as lossless settings are, in one thread. The policy drafts with a quarter of the rows, all rows "
     "verify, so that rows of both count and seconds are what exactness costs here."),
    ("MATH-500", ["math", "math-others"], "Its first problems, at most 1,024 tokens an answer."),
    ("MATH-500: a compressed cache (`--kv-type q4`, `q3`)", ["kv-types-math"], "Its first problems, at most 1,024 tokens an answer."),
    ("AIME 2024", ["aime"], "All 30 problems, at most 1,024 tokens an answer."),
]
# The full cache of a task is the first setting of this run.
FULL = {"kv-types": "kv-types", "kv-types-math": "kv-types-math", "alone": "alone", "lossless": "alone", "math": "math",
        "math-others": "math", "aime": "aime"}


def seconds_of(folder):
    """{setting: mean seconds of an answer}"""
    of = {}
    for record in records_of(folder / "times.jsonl"):
        of.setdefault(record["setting"], []).append(record["seconds"])
    return {setting: sum(seconds) / len(seconds) for setting, seconds in of.items()}


def by_problem(folder, setting):
    """The answers under a setting, with the verdicts of math-verify where the run was judged."""
    verdicts = {(one["setting"], one["problem"]): one for one in records_of(folder / "verdicts.jsonl")}
    return {record["problem"]: record | verdicts.get((setting, record["problem"]), {})
            for record in records_of(folder / "results.jsonl") if record["setting"] == setting}


def share_of(here, full, key):
    """A sum over the same problems, as a share of the full cache's."""
    both = here.keys() & full.keys()
    of_full = sum(full[problem][key] for problem in both)
    return f"{sum(here[problem][key] for problem in both) / of_full:.2f}" if of_full else "-"


def evicted_percent(here, streams):
    rows = sum(streams * (record["prompt_tokens"] + record["generated_tokens"]) for record in here.values())
    return f"{100 * sum(record['rows_evicted'] for record in here.values()) / rows:.0f}" if rows else "-"


def folder_of(out, run):
    """What there is of a run so far where it was stopped."""
    return out / run if (out / run / "summary.json").exists() else out / "unfinished" / run


def with_policies(out):
    """The folder whose answers tell how right policies are at half: a card's, unless they were asked here too."""
    return out if (out / "policies-half.json").exists() else out.with_name(out.name + "-cuda")


def rows_of(out, run):
    folder = folder_of(out, run)
    full_run = FULL.get(run, "full")
    full = by_problem(folder_of(out, full_run), 0)
    seconds = seconds_of(folder)
    streams = next((count for name, count in STREAMS.items() for grid in [read(folder / "grid.json")]
                    if grid and name in grid["model"]), 0)
    rows = []
    for setting, record in enumerate(read(folder / "summary.json")):
        here = by_problem(folder, setting)
        won_lost = of_full = "-"
        if full and not (run == full_run and setting == 0):
            p, won, lost = paired_p({problem: record["correct"] for problem, record in here.items()},
                                    {problem: record["correct"] for problem, record in full.items()})
            won_lost = f"{won} : {lost}, {p:.2g}"
            of_full = share_of(here, full, "correct")
        rows.append([name_of(record), record["n"], record["correct"],
                     f"{100 * record['accuracy']:.0f} ({100 * record['ci_low']:.0f} to {100 * record['ci_high']:.0f})",
                     won_lost, of_full, f"{record['generated_tokens']:.0f}", evicted_percent(here, streams),
                     share_of(here, full, "peak_tokens"), share_of(here, full, "peak_kv_bytes"),
                     share_of(here, full, "kv_reads"), f"{seconds[setting]:.1f}" if setting in seconds else "-"])
    return rows


# What changes no answer, problem by problem, and the full cache beside it.
EXACT = {"shares": ("full", "with T0 at 30 % and the rest in a file"), "lossless": ("alone", "of lossless generation")}


def same_as_full(out, run):
    def told(of):
        return {record["problem"]: (record["extracted"], record["generated_tokens"])
                for record in records_of(folder_of(out, of) / "results.jsonl")}
    full_run, what = EXACT[run]
    full, other = told(full_run), told(run)
    both = full.keys() & other.keys()
    if not both:
        return []
    num = sum(full[problem] != other[problem] for problem in both)
    return [wrapped(f"""Of {len(both)} answers {what} {num} differ from the full cache's in what they say or in
length."""), ""]


def same_in_columns(out):
    """Of the grid's answers those that where rows lie changed."""
    by_cell, shares = {}, set()
    for record in records_of(folder_of(out, "grid") / "results.jsonl"):
        t0, *_, evicted = record["tiers"].split(" ")
        by_cell.setdefault((evicted, record["problem"]), []).append(record["text"])
        shares.add(t0)
    whole = [texts for texts in by_cell.values() if len(texts) == len(shares)]
    differ = sum(len(set(texts)) > 1 for texts in whole)
    return [wrapped(f"""Of {len(whole)} answers, each with {", ".join(sorted(shares))}, {differ} differ in their text between
these."""), ""] if whole else []


def ranks(values):
    """From 1, ties share their mean."""
    order = sorted(values)
    return [(order.index(v) + 1 + len(order) - order[::-1].index(v)) / 2 for v in values]


# What fidelity tells of a policy, the less the better.
MEASURES = [("mean KL", lambda r: r["mean_kl"]), ("the share of other likeliest tokens", lambda r: -r["top1"]),
               ("perplexity", lambda r: r["perplexity"])]


def correlation(records, accuracy, of):
    """Spearman's, and how often lots are as far from none, of 10,000."""
    ours, right = ranks([of(r) for r in records]), ranks([accuracy[r["policy"]] for r in records])
    rho = statistics.correlation(ours, right)
    lots = random.Random(0)
    as_far = sum(abs(statistics.correlation(ours, lots.sample(right, len(right)))) >= abs(rho) - 1e-9 for _ in range(10000))
    return f"{rho:+.2f} (p {as_far / 10000:.2g})"


def fidelity(out):
    by = {}
    for run in ("fidelity", "fidelity-others"):
        for record in records_of(out / run / "fidelity.jsonl"):
            by.setdefault(record["budget"], []).append(record)
    if "50%" not in by or "7MiB" not in by:
        return []
    accuracy = {record["policy"]: record["accuracy"]
                for record in read(folder_of(with_policies(out), "policies-half") / "summary.json")}

    def rows_at(budget):
        rows = []
        for r in sorted(by[budget], key=lambda r: r["mean_kl"]):
            low, high = r["intervals"]["mean_kl"]
            rows.append([f"`{r['policy']}`", f"{r['mean_kl']:.3g} ({low:.2g} to {high:.2g})", f"{100 * r['top1']:.1f}",
                         f"{r['perplexity'] / r['perplexity_full']:.3f}", f"{r['kv_bytes'] / 2**20:.1f}"])
        return rows

    first = by["50%"][0]
    parts = ["## Fidelity: how far next tokens are from the full cache's", "", wrapped(
        f"""Teacher-forced on the model's own right solutions, the longest, behind each other, in windows of
{first['window_tokens']} tokens ({first['windows']} of them), the first 64 of each its prompt. KL in nats, mean over {first['tokens']} tokens, with a block
bootstrap's 95 %. Perplexity over the full cache's is what language modelling would show."""), ""]
    head = ["policy", "mean KL (95 %)", "same likeliest token, %", "perplexity, of full", "pages, MiB"]
    parts += ["At half of the rows, with the accuracy of all problems that were asked of the policy so beside it (on a card, whose "
              "answers are about as often right):", "",
              table([*head, "right, %"],
                    [[*row, f"{100 * accuracy[row[0].strip('`')]:.0f}" if row[0].strip("`") in accuracy else "-"]
                     for row in rows_at("50%")])]
    both = [r for r in by["50%"] if r["policy"] in accuracy]
    keep_prompt = [r for r in both if r["policy"] not in PROMPT_IN_BUDGET]
    if len(keep_prompt) > 2:
        parts += [wrapped(f"""Spearman's correlation of accuracy, over the {len(both)} policies that have one and over the {len(keep_prompt)} of
them that keep the prompt: """ + ", ".join(f"{correlation(both, accuracy, of)} and {correlation(keep_prompt, accuracy, of)} with {what}"
                                       for what, of in MEASURES) + "."), ""]
    return [*parts, "At 7 MiB for the rows, which is 256 of each kv head, what a policy protects included:", "",
            table(head, rows_at("7MiB"))]


def importance(out):
    record = read(out / "importance/summary.json")
    if not record:
        return []
    of = Importance(record)
    more, surely = of.num_smoother()
    return ["## Which tokens of a thought matter (\"EpiKV\", 4.2, App. C)", "", wrapped(
        f"""Labels by occlusion, 32 tokens at a time, {record['labelled']} of {record['problems']} thoughts ({record['wrong']}
answered wrongly, {record['not repeated']} not the same again from the boundary on, which is the box):
{100 * record['important_share']:.1f} % of the tokens matter to the answer. {of.about_correlations()}"""), "",
            of.signals(), "Scorers, as their scores stand at the boundary, best first:", "", of.scorers(),
            wrapped(f"""A rolling mean over 64 tokens is further from zero than the raw signal for {more} of {len(of.families)}
signals, for {surely} of them beyond both intervals; it follows the position, as the labels do. """ + of.bands_and_places()), ""]


def profile(out):
    record = read(out / "profile/summary.json")
    if not record:
        return []
    figures = record["figures"]
    captures = figures["importance"]["top_share_captures"]
    recurrence, top_half = figures["recurrence"], figures["top_half"]
    below = dict(zip(recurrence["interval"], recurrence["share_below"]))
    tiers = figures["tiers"]
    steps = [next(i for i, step in enumerate(tiers["step"]) if step >= at) for at in (100, 200, 300, 400, 500)
             if tiers["step"][-1] >= at]
    cost = figures["cost"]
    return ["## What attention looks at, and what a step costs", "", wrapped(
        f"""{len(record['runs'])} problems by `ebb-lab profile`, T0 30 %, the rest in a file, a tenth evicted."""), "", wrapped(
        f"""- Importance ("Not All Thoughts Need HBM", Fig. 1): the top 20 % of the tokens hold
{100 * figures['importance']['top_20_percent']['mean']:.0f} % of all attention, the lower half
{100 * figures['importance']['bottom_50_percent']['mean']:.0f} %; the first of a hundred holds {100 * captures[1]:.0f} %, ten
{100 * captures[10]:.0f} %.
- Overlap of the top 20 % between one step and the next (3.4): {100 * figures['overlap']['mean']:.0f} %.
- Recurrence (LazyEviction, Fig. 3): {100 * recurrence['recurring']:.0f} % of the tokens get {recurrence['active_share']:g} of the
attention again after steps without it; the longest such way is at most {recurrence['percentile_80']} steps for 80 % of the
tokens""" + "".join(f", {at} for {100 * below[at]:.0f} %" for at in (8, 32, 128) if at in below)
        + f""".
- Of the upper half of the tokens, this share is in it still (Fig. 2b): """
        + ", ".join(f"{100 * share:.0f} % {distance} steps later" for distance, share in zip(top_half["distance"], top_half["share"]))
        + f""".
- A step takes {1000 * cost['mean_step_seconds']:.1f} ms: """
        + ", ".join(f"{name.replace('_', ' ')} {1000 * seconds:.2f}" for name, seconds in cost["mean_seconds"].items()) + "."),
            "", "Rows in each tier over time (Fig. 9), of all layers and kv heads, in the longest of these problems:", "",
            table(["step", *tiers["rows"]], [[tiers["step"][i], *(rows[i] for rows in tiers["rows"].values())]
                                             for i in steps])]


def write(out, path):
    grids = [read(file) for file in sorted([*out.glob("*/grid.json"), *out.glob("unfinished/*/grid.json")])]
    parts = ["# Results on a real model: the tables", "",
             "Written by `scripts/results_real`.", ""]
    models = sorted({grid["model"] for grid in grids})
    if models:
        batches = " and ".join(sorted({str(grid["batch"]) for grid in grids if grid["batch"]}))
        machine = out / "machine"
        where = f" on {machine.read_text(encoding='utf-8')}" if machine.exists() else ""
        parts += [wrapped(f"Model: {', '.join(models)}. Greedy answers, in batches of at most {batches}{where}."), ""]
    parts += [wrapped("""The last 32 tokens, four sinks and the prompt are protected, and policies decide every 16 tokens, where nothing
else is said: the papers protect 128 and decide every 64 of thoughts that are four times as long.

Intervals are Clopper and Pearson's. `won : lost` are the problems that this setting alone, or the full cache alone, got right; p is
McNemar's exact test over these, of each row by itself: of rows that change nothing at most one in 20 falls below 0.05, and fewer than
six problems that differ never do. `of full` is a sum over that of the full cache on the same problems; where `n` differs accuracies
do not compare. Tokens are means over answers; seconds share a batch's time among its problems, and compare between runs in one
process alone."""), ""]
    for title, runs, text in PARTS:
        rows = [row for run in runs for row in rows_of(out, run)]
        if rows:
            parts += [f"## {title}", "", text, "", table(HEAD, rows)]
            for run in EXACT.keys() & set(runs):
                parts += same_as_full(out, run)
            if "grid" in runs:
                parts += same_in_columns(out)
    parts += fidelity(out) + importance(out) + profile(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")
