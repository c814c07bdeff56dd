"""Writes docs/dms-results.md from the figures that experiments leaves.

usage: results_page.py [--figures FOLDER] [--out FILE]

A section whose figures are not in FOLDER (training/dms/figures) stays as FILE has it.
"""

import argparse
import json
import pathlib
import re
import statistics

from paired import mcnemar

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

HEAD = """# What retrofits did

Dynamic Memory Sparsification ("Inference-Time Hyper-Scaling with KV Cache Compression") on pebble, the
small reasoner that the program carries: models that learn which of their rows can go
([how to train one](user/dms.md)). Written by `training/dms/results_page.py` from what
`training/dms/retrofit --experiments` leaves in training/dms/figures; every figure follows from a seed. Settings were chosen on
problems of seed 0; figures are of seed 77, which no training and no choice saw. Accuracies are in %
with exact 95 % intervals; p is McNemar's on the same problems, two-sided.

CR is the compression that was trained for, 1 / (1 - share of rows marked). What is reported beside it was
counted by `ebb eval`: rows at the peak, rows read, and bytes of pages, each as the full cache's over the
policy's, prompt and window included. A retrofit here has steps of 4,096 tokens, AdamW at 5e-4, window 16
and 60 steps a unit of compression unless something else is said; to settle is to hold the compression
while the rate falls to 0, for 150 steps.
"""


ENDING = """## The rate decides

Retrofits to CR 8 by the peak rate of AdamW, one seed each, made while settings were chosen; whole thoughts right,
teacher-forced, of 64 problems of seed 0:

| rate, steps a unit | on the way | settled at CR 8 |
|---|---|---|
| 1e-3, 50 | 41 % at CR 8 | 72 % after 150 steps, and after 600 |
| 1e-3, 100 | KL 0.007 at CR 5, 0.029 at CR 5.5, 0.056 at CR 6: no thought right any more; stopped | - |
| 5e-4, 60 | 78 % at CR 6 | 89 % after 150 steps |

In `ebb eval` the first was right on 150 of 200 problems, the last on 197. At CR 4 settling took the first two to
98 and 92 %, the last to 98 %. On seed 0's first 200 problems `pebble-dms-8` was right on 188
([results.md](results.md)), so on 385 of 400 in all: 96 %.

## What of the paper this is, and what it is not

- Reproduced, on this model: a retrofit of a few hundred steps gives the model's own answers with a quarter and
  an eighth of the rows, freed as they go; the share of rows that stay falls as a text grows (Fig. 6, left).
- Layers (Fig. 6, right): the last of four keeps hardly more than its window, the three before it nearly all that
  stays; heads differ several hundredfold.
- Delayed eviction is what makes short windows work (5.3, Fig. 5): at CR 3 it is right 62 points more often
  than immediate eviction at window 16, and 37 more at 64. At window 4 it fails too (74 %), and 8 points more
  are within chance. At CR 2 and window 64 both are right.
- How much has to move: the query matrices alone are as good as all weights at CR 2. An adapter beside the
  frozen model is right on 86 %, less than the 95 % hoped for: a frozen model cannot learn to copy on what
  it will need within the window.
- A phase at fixed compression, negligible there, is what makes the model right again here: steps are a
  thousand times smaller.
- Data (5.3): with 0.34 million tokens a retrofit by DMS gives half of the thoughts whole, with 0.68 million nine
  tenths. DMC gave none with up to 1.36 million, at the same rate and schedule: rows that merge change what is in
  the cache at once, and 100 steps a unit did not mend that.
- Width bought by compression (5.1): a retrofitted early pebble has more right answers than the model that it comes
  from at the same reads and at the same peak rows, and more than Quest, TOVA and R-KV at theirs. By any right
  answer of all samples the margins over the full cache (4 to 5 points) are beyond chance, by the majority of samples
  (3 to 4 points) they are within it on 100 problems. (An earlier candidate, whose rate fell over 200 steps until
  step 1,500, had 89 % of its single samples right: more than the gate allows.)
- Texts decide: a retrofit teaches on texts, and must do so on such as its model writes. An early pebble that had
  only read thoughts without filler, and writes such, was first retrofitted on thoughts with filler: of single
  samples at CR 2, 4 and 8 it then had 30, 12 and 10 % right, and 74 % with the full cache before.
- Not here: the published models, tasks and scale (models of 1 to 32 B on AIME, MATH-500, GPQA, LiveCodeBench;
  steps of millions of tokens; texts of 8,192), MMLU and the like by likelihood, RULER, DMC in the engine.
"""


def percent(summary):
    low, high = 100 * summary["ci_low"], 100 * summary["ci_high"]
    return f"{100 * summary['accuracy']:.1f} ({low:.1f} to {high:.1f})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def p_value(test):
    return f"{test['p']:.2g} ({test['only_a']} : {test['only_b']})"


def retrofit_row(name, figures):
    full, dms = figures["settings"]
    ratio = figures["compression"]
    return (name, f"{dms['correct']}/{dms['n']}", percent(dms), percent(full),
            f"{ratio['peak']:.2f}", f"{ratio['reads']:.2f}", f"{ratio['pages']:.2f}",
            f"{dms['peak_tokens']:.0f}", p_value(figures["dms_against_pebble"]))


RETROFIT_HEAD = ("model", "right", "`dms`, % (95 %)", "`full` of the same file", "peak rows, times fewer",
                 "reads", "bytes of pages", "peak rows", "p against pebble's full cache (only dms : only pebble)")


def section_a_b(figures):
    by_cr = {int(cr): figure for cr, figure in figures.get("B", {}).items()}
    if "A" in figures:
        by_cr[4] = figures["A"]
    names = {4: "CR 4, `pebble-dms`", 8: "CR 8, `pebble-dms-8`"}
    rows = [retrofit_row(names.get(cr, f"CR {cr}"), by_cr[cr]) for cr in sorted(by_cr)]
    base = next(iter(by_cr.values()))["pebble"]
    return ("## Right answers by compression (A, B)\n\n"
            f"pebble itself with its full cache: {percent(base[0])} %.\n\n"
            + table(RETROFIT_HEAD, rows))


def section_c(figures):
    text = ("## Against policies that need no training, at the same peak rows (C)\n\n"
            "Each policy on pebble had as many rows as the retrofitted model had at its peak, rounded up "
            "(`--budget ROWS --window 16 --interval 16`), on 200 problems. Between two decisions a policy may "
            "hold up to 16 rows more, in its favour.\n\n")
    by_cr = {cr: f for cr, f in figures.items() if cr != "quest"}
    names = sorted({n for f in by_cr.values() for n in f["settings"]} - {"dms"},
                   key=lambda n: (-max((f["settings"].get(n) or {"accuracy": -1})["accuracy"]
                                       for f in by_cr.values()), n))
    rows = []
    for name in ["dms", *names]:
        row = [f"`{name}`"]
        for figure in by_cr.values():
            some = figure["settings"].get(name)
            row += [percent(some), f"{some['peak_tokens']:.0f}"] if some else ["takes no rows", "-"]
        rows.append(row)
    head = ["policy"]
    for figure in by_cr.values():
        head += [f"{figure['budget']} rows: right, %", "peak rows"]
    text += table(head, rows)
    if "8" not in figures:
        text += "\nThe rows of CR 8, and Quest by its reads, were not run yet.\n"
    if "quest" in figures:
        rows = [(f"`quest` {s['budget']}", percent(s), f"{s['kv_reads'] / 1000:.0f}",
                 f"{s['peak_tokens']:.0f}") for s in figures["quest"]]
        rows += [(f"`dms`, CR {cr}", percent(f["settings"]["dms"]),
                  f"{f['settings']['dms']['kv_reads'] / 1000:.0f}",
                  f"{f['settings']['dms']['peak_tokens']:.0f}") for cr, f in by_cr.items()]
        text += "\nQuest frees nothing, and is held against DMS by what it reads:\n\n"
        text += table(("setting", "right, %", "reads, thousand rows", "peak rows"), rows)
    return text


def seeds_of(figures):
    number = len({f["seed"] for f in figures})
    return "one seed of training" if number == 1 else f"{number} seeds of training"


def section_d(figures):
    text = ("## Delayed against immediate eviction (D)\n\n"
            "50 steps a unit to CR 3, settled for 50 steps at CR 2 and 75 at CR 3; "
            f"{seeds_of(figures)}, 200 problems each: answers right in %, mean of the seeds (each); "
            "p over the problems of all seeds.\n\n")
    rows = []
    for window in (4, 16, 64):
        for cr in (2, 3):
            some = [f for f in figures if (f["window"], f["cr"]) == (window, cr)]
            row = [window, cr]
            for way in ("delayed", "immediate"):
                scores = [100 * f[way]["accuracy"] for f in some]
                row.append(f"{statistics.mean(scores):.1f} ("
                           + ", ".join(f"{s:.1f}" for s in scores) + ")")
                row.append(f"{statistics.mean(f[way]['peak_tokens'] for f in some):.0f}")
            only = [sum(f[f"only_{way}"] for f in some) for way in ("delayed", "immediate")]
            row.append(p_value(dict(only_a=only[0], only_b=only[1], p=mcnemar(*only))))
            rows.append(row)
    return text + table(("window", "CR", "delayed", "peak rows", "immediate", "peak rows",
                         "p (only delayed : only immediate)"), rows)


def section_e(figures):
    text = ("## Data: DMS against DMC (E)\n\n"
            "Both to CR 4 at the named steps a unit, then settled for as many steps. Whole thoughts right, every "
            "token teacher-forced, of 64 problems (of seed 0): rows of DMC merge, which ebb does not do.\n\n")
    rows = [(f["method"].upper(), f["steps_per_cr"], f"{f['tokens'] / 1000:.0f}",
             f"{100 * f['check']['right']:.0f}", f"{f['check']['compression_by_peak']:.2f}")
            for f in figures]
    return text + table(("method", "steps a unit", "thousand tokens", "whole thoughts right, %",
                         "peak rows, times fewer"), rows)


def section_f(figures):
    text = ("## Losses and settling (F)\n\n"
            f"25 steps a unit to CR 4, then 75 steps; {seeds_of(figures)}. Whole thoughts right in %, teacher-forced, of 200 "
            "problems: mean (each), and peak rows, times fewer.\n\n")
    rows = []
    for variant in dict.fromkeys(f["variant"] for f in figures):
        some = [f["check"] for f in figures if f["variant"] == variant]
        scores = [100 * c["right"] for c in some]
        rows.append((variant, f"{statistics.mean(scores):.1f} (" +
                     ", ".join(f"{s:.1f}" for s in scores) + ")",
                     ", ".join(f"{c['compression_by_peak']:.2f}" for c in some)))
    return text + table(("variant", "whole thoughts right", "peak rows, times fewer"), rows)


def section_g(figures):
    text = ("## Which rows stay (G)\n\nShare of rows that are not marked, in %, by layer and kv head; and the full "
            "cache's rows over those left, by how many tokens were read:\n\n")
    rows = []
    for cr, check in figures.items():
        rows.append([f"CR {cr}"] + [", ".join(f"{100 * share:.1f}" for share in layer)
                                    for layer in check["by_head"]])
    text += table(["model", *(f"layer {i}" for i in range(len(rows[0]) - 1))], rows) + "\n"
    lengths = next(iter(figures.values()))["by_length"]
    rows = [[f"CR {cr}", *(f"{ratio:.2f}" for ratio in check["by_length"].values())]
            for cr, check in figures.items()]
    return text + table(["model", *(f"{n} tokens" for n in lengths)], rows)


def section_h(figures):
    text = ("## Longer than what was trained on (H)\n\nRetrofits to CR 4 on texts of at most 768 tokens, and on all; "
            "1,000 problems, `dms`, by the tokens of question and answer together.\n\n")
    lengths = ("to 768", "769 to 1024", "above")
    rows = []
    for name, label in zip(figures, ("at most 768", "all")):
        row = [label]
        for length in lengths:
            right, total = figures[name]["by_length"][length]
            row.append(f"{right}/{total} ({100 * right / total:.1f} %)")
        rows.append(row + [f"{figures[name]['settings'][-1]['peak_tokens']:.0f}"])
    return text + table(("trained on texts of", *lengths, "peak rows"), rows)


def section_i(figures):
    text = ("## How much has to move (I)\n\nCR 2, 150 steps of settling, 200 problems: an adapter beside the frozen "
            "model, the query matrices alone, all weights.\n\n")
    return text + table(RETROFIT_HEAD, [retrofit_row(name, f) for name, f in figures.items()])


def section_m(figures):
    text = ("## Marks and the types of weights (M)\n\nShare of the marks that turn when matrices of `pebble-dms` are "
            f"rounded from F16, of {figures['as it is']['marks']:,} marks on 100 texts, and whole thoughts right, "
            "teacher-forced.\n\n")
    rows = [("F16", "0", "-", f"{100 * figures['as it is']['all']['right']:.0f}")]
    for kind, some in figures.items():
        if kind != "as it is":
            rows.append((kind, f"{100 * some['all']['flipped']:.3f}",
                         f"{100 * some['attn_q alone']['flipped']:.3f}",
                         f"{100 * some['all']['right']:.0f}"))
    return text + table(("type", "turned, %: all matrices", "attn_q alone", "right, %: all"), rows)


def margin_text(margin):
    """Points, with their interval; how many resamples have no common costs."""
    if margin["margin"] is None:
        return "no common costs"
    text = f"{100 * margin['margin']:+.1f}"
    if margin["low"] is not None:
        text += f" ({100 * margin['low']:+.1f} to {100 * margin['high']:+.1f})"
    return text + (f", none in {100 * margin['none']:.0f} %" if margin["none"] else "")


def section_j(figures):
    text = ("## Hyper-scaling (J)\n\n"
            "pebble gains nothing by more samples; one whose training ended early does. Of those that were tried "
            "(the second stage of pebble's training until step 1,550, then a rate that falls to 0), in order, on 100 problems of seed 1 at temperature 1, the first whose single samples are right in 40 to "
            "75 % and whose majority of 16 is at least 8 points above that was taken, before any retrofit of it.\n\n")
    text += table(("steps of a falling rate", "one sample right, %", "majority of 16, %", "taken"),
                  [(g["steps"], f"{100 * g['one']:.1f}", f"{100 * g['majority']:.1f}",
                    "yes" if g["passes"] else "no") for g in figures["gates"]])
    if "points" not in figures:
        return text
    text += ("\nRetrofitted to CR 2, 4 and 8, against its full cache and policies that need no training at an "
             "eighth, a quarter and half of the rows, by limit of tokens (L), samples (W) and compression; 100 problems "
             "of seed 77. Points that no other of the same method beats by reads or by rows at the peak:\n\n")
    rows = [(f"`{p['method']}`", p["name"], f"{100 * p['majority']:.1f}", f"{100 * p['pass_all']:.1f}",
             f"{p['kv_reads'] / 1000:.0f}", f"{p['peak_tokens']:.0f}") for p in figures["points"]
            if any(p["on_front"]["majority"].values())]
    text += table(("method", "L-W-CR", "majority, %", "any right, %", "reads, thousand rows",
                   "peak rows"), rows)
    text += ("\nHow many points the retrofits' front lies above another's, in the mean over the costs that both span "
             "(App. E), with 95 % intervals by a bootstrap over problems:\n\n")
    rows = [(f"`{m['method']}` over `{m['over']}`",
             *(margin_text(m[score][cost]) for score in ("majority", "pass_all")
               for cost in ("kv_reads", "peak_tokens")))
            for m in figures["margins"] if "dms" in (m["method"], m["over"])]
    return text + table(("", "majority, by reads", "by peak rows", "any right, by reads",
                         "by peak rows"), rows)


TITLES = {"C": "policies without training at the same peak rows", "D": "delayed against immediate eviction",
          "E": "data, against DMC", "F": "losses and settling", "H": "longer texts than trained on",
          "I": "adapter, queries or all weights", "M": "marks and weight types",
          "J": "hyper-scaling"}


SECTIONS = {"A": section_a_b, "C": section_c, "D": section_d, "E": section_e, "F": section_f, "G": section_g,
            "H": section_h, "I": section_i, "M": section_m, "J": section_j}
LETTERS = re.compile(r"^## .*\(([A-Z]).*\)\n")


def sections_of(page):
    """{letter: section} of a page as it stands."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return {match[1]: part.rstrip("\n") + "\n" for part in parts if (match := LETTERS.match(part))}


def page(figures, before):
    """The page. A section whose figures are not at hand stays as `before` has it."""
    sections = sections_of(before)
    for name, section in SECTIONS.items():
        if name in figures:
            sections[name] = section(figures if name == "A" else figures[name])
    missing = [f"{name} ({title})" for name, title in TITLES.items() if name not in sections]
    parts = [HEAD, *(sections[name] for name in SECTIONS if name in sections), ENDING]
    if missing:
        parts.append("## Not run yet\n\n`training/dms/retrofit --experiments` knows these too, and no figures of "
                     "theirs are here: " + "; ".join(missing) + ".\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent / "figures")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/dms-results.md")
    args = parser.parse_args()
    figures = {path.stem: json.loads(path.read_text(encoding="utf-8"))
               for path in args.figures.glob("*.json")}
    before = args.out.read_text(encoding="utf-8") if args.out.exists() else ""
    args.out.write_text(page(figures, before), encoding="utf-8")


if __name__ == "__main__":
    main()
