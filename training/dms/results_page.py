"""Writes docs/figures/dms.md from the figures that experiments leaves.

usage: results_page.py [--figures FOLDER] [--out FILE]

A section whose figures are not in FOLDER (training/dms/figures) stays as FILE has it.
"""

import argparse
import json
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

HEAD = """# What retrofits did

Dynamic Memory Sparsification ("Inference-Time Hyper-Scaling with KV Cache Compression") on pebble, the
small reasoner that the program carries: models that learn which of their rows can go
([how to train one](../user/dms.md)). Written by `training/dms/results_page.py` from what
`training/dms/retrofit --experiments` leaves in training/dms/figures (sections whose figures are not kept there stay as an
earlier run wrote them: A, B, C, G, I); every figure follows from a seed. Settings were chosen on problems of seed 0, and
figures are of seed 77 unless a section says otherwise; one candidate that was not chosen was looked at on seed 77
too ("The rate decides"). Accuracies of evaluations are in % with exact 95 % intervals; p is McNemar's on the same
problems, two-sided, and speaks of these problems and these trainings, not of other seeds of training.

CR is the compression that was trained for, 1 / (1 - share of rows marked). What is reported beside it was
counted by `ebb-lab eval`: rows at the peak, rows read, and bytes of pages, each as the full cache's over the
policy's, prompt and window included. A retrofit here has steps of 4,096 tokens (padding included; about 3,400 are text), AdamW at 5e-4, window 16
and 60 steps a unit of compression unless something else is said; to settle is to hold the compression
while the rate falls to 0, for 150 steps.
"""


ON_A_GPU = """
{} were run by `training/dms/on_a_gpu` on a machine with a GPU (an H200, 259 seconds in all for C to H): products of float32
as such, but with 10 bits of fraction (TF32) where L trains. A GPU takes its sums in no fixed order: a run repeated there
gives figures of like kind, where the CPU gives the same bits.
"""


ENDING = """## The rate decides

Retrofits to CR 8 by the peak rate of AdamW, one seed each, made while settings were chosen; whole thoughts right,
teacher-forced, of 64 problems of seed 0:

| rate, steps a unit | on the way | settled at CR 8 |
|---|---|---|
| 1e-3, 50 | 41 % at CR 8 | 72 % after 150 steps, and after 600 |
| 1e-3, 100 | KL 0.007 at CR 5, 0.029 at CR 5.5, 0.056 at CR 6: no thought right any more; stopped | - |
| 5e-4, 60 | 78 % at CR 6 | 89 % after 150 steps |

In `ebb-lab eval` the first was right on 150 of 200 problems, the last on 197. At CR 4 settling took the first two to
98 and 92 %, the last to 98 %. On seed 0's first 200 problems, by which settings were chosen, `pebble-dms-8` was
right on 188 ([results-pebble.md](results-pebble.md)).

## What of the paper this is, and what it is not

- Reproduced, on this model: a retrofit of a few hundred steps gives the model's own answers with a quarter and
  an eighth of the rows, freed as they go; the share of rows that stay falls as a text grows (Fig. 6, left).
- Layers (Fig. 6, right): the last of four keeps hardly more than its window, the three before it nearly all that
  stays; heads differ several hundredfold.
- Delayed eviction is what makes retrofits work (5.3, Fig. 5): at CR 3 it is right 28, 31 and 52 points more often than
  immediate eviction at windows 4, 16 and 64, in the mean of three trainings each, and more often in all nine of them.
  At CR 2 it gains 19 points at window 4, in all three trainings, and 22 at window 16, nearly all of them in one; at 64,
  where half of the rows stay in either case, it gains nothing. At so few steps trainings differ by up to 60 points from
  seed to seed, delayed ones (65 to 100) less than immediate ones (15 to 100): three seeds show which way the difference
  goes at CR 3, and hardly how large it is.
- How much has to move: the query matrices alone are as good as all weights at CR 2, with 8 % more rows at the
  peak. An adapter beside the frozen model is right on 86 %, less than the 95 % hoped for; whether it cannot learn to
  copy on what it will need within the window was not tested.
- Losses (F): of the variants the paper's own, forward distillation with a one-sided auxiliary loss and a rate that falls, is
  the best in the mean (83 % of thoughts whole) and the only one of which no training failed. The auxiliary loss at weight
  1, the language model's loss, reverse distillation and a rate that stays each had one of three trainings that went
  wrong (6 to 56 %) and one as good as the best; three seeds do not tell the four from one another.
- Longer than what was read (H): retrofitted on texts of at most 768 tokens, 92 % of answers up to 1,024 tokens are right
  and 87 % of longer ones, instead of 99 % and 99 % after all lengths. So it reaches beyond what it has read, at a price.
- Policies without training (C): at the rows of CR 4 the best of 26 is right on 37 %, at those of CR 8 on 19 %, the
  retrofits on 99.5 and 98.5 %. Quest keeps all rows, and reads twice to four times as many for the same answers.
- Data (5.3): with 0.34 million tokens a retrofit by DMS gives a third of the thoughts whole, with 0.68 million more than
  half (nine tenths in an earlier training of the same seed on a processor, whose sums round otherwise). DMC gave none
  once it compressed, with up to 2.7 million at the same rate and schedule; with 0.34 million it did not compress at
  all. It has no stage of its own at the end here and no other rate, so this says what DMC does under the schedule of DMS.
- Width bought by compression (5.1): a retrofitted early pebble has more right answers than the model that it comes
  from at the same reads and at the same peak rows. All of that is CR 2: at CR 4 and 8 single samples fall from 74 to 56
  and 54 %, and samples do not make up for it. By any right answer of all samples the margins over the full cache (4
  to 5 points) are beyond chance, by the majority of samples (3 to 4 points) they are within it on 100 problems, and so
  are those over Quest; those over TOVA and R-KV are beyond it. The retrofits' front takes the best of three
  compressions and the full cache's has one, which the bootstrap does not undo. (An earlier candidate, whose rate fell
  over 200 steps until step 1,500, had 89 % of its single samples right: more than the gate allows.)
- Marks stand the rounding of weights: Q8_0 turns 0.04 % of them (below 0.5 % was hoped for), Q4_1 0.7 % with one more
  thought of 100 wrong, Q4_0 0.9 % with eight more.
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
    bases = {f["pebble"][0]["n"]: f["pebble"][0] for f in by_cr.values()}
    said = "; ".join(f"{base['correct']} of {n}, {percent(base)} %" for n, base in sorted(bases.items()))
    return ("## Right answers by compression (A, B)\n\n"
            f"pebble itself with its full cache: {said}.\n\n" + table(RETROFIT_HEAD, rows))


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
            if some:
                row += [percent(some), f"{some['peak_tokens']:.0f}"]
            else:
                row += ["takes no rows" if name in figure["settings"] else "not run", "-"]
        rows.append(row)
    head = ["policy"]
    for figure in by_cr.values():
        head += [f"{figure['budget']} rows: right, %", "peak rows"]
    text += table(head, rows)
    if "8" not in figures or "quest" not in figures:
        text += "\nThe rows of CR 8, or Quest by its reads, were not run yet.\n"
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
            f"{seeds_of(figures)}, 200 problems each, the same ones: answers right in %, mean of the seeds (each). Beside "
            "them, seed by seed, how many problems delayed eviction alone got right, and how many immediate eviction alone; "
            "as all seeds answer the same problems, these are not added up.\n\n")
    rows = []
    for window in (4, 16, 64):
        for cr in (2, 3):
            some = [f for f in figures if (f["window"], f["cr"]) == (window, cr)]
            if not some:
                continue
            row = [window, cr]
            for way in ("delayed", "immediate"):
                scores = [100 * f[way]["accuracy"] for f in some]
                row.append(f"{statistics.mean(scores):.1f} ("
                           + ", ".join(f"{s:.1f}" for s in scores) + ")")
                row.append(f"{statistics.mean(f[way]['peak_tokens'] for f in some):.0f}")
            row.append(", ".join(f"{f['only_delayed']} : {f['only_immediate']}" for f in some))
            rows.append(row)
    return text + table(("window", "CR", "delayed", "peak rows", "immediate", "peak rows",
                         "only delayed : only immediate"), rows)


def section_e(figures):
    text = ("## Data: DMS against DMC (E)\n\n"
            "Both to CR 4 at the named steps a unit, then settled for as many steps. Whole thoughts right, every "
            "token teacher-forced, of 64 problems (of seed 0): rows of DMC merge, which ebb does not do.\n\n")
    rows = [(f["method"].upper(), f["steps_per_cr"], f"{f['tokens'] / 1000:.0f}",
             f"{100 * f['check']['right']:.0f}", f"{f['check']['compression_by_peak']:.2f}")
            for f in sorted(figures, key=lambda f: (f["method"] != "dms", f["steps_per_cr"]))]
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
    for name, label in (("short", "at most 768"), ("whole", "all")):
        if name not in figures:
            continue
        row = [label]
        for length in lengths:
            right, total = figures[name]["by_length"].get(length, (0, 0))
            row.append(f"{right}/{total} ({100 * right / total:.1f} %)" if total else "-")
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
             "eighth, a quarter and half of the context (prompt and limit, so that many an answer keeps more of its rows "
             "than that), by limit of tokens (L), samples (W) and compression; 100 problems of seed 77. Answers end "
             "before either limit, so that L only sets the policies' budgets. Points that no other of the same method "
             "beats by reads or by rows at the peak:\n\n")
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


def section_l(figures):
    text = ("## A model of the world: SmolLM2-135M (L)\n\n"
            "Retrofits of SmolLM2-135M-Instruct (Q4_1, widened to float32) on a GPU: texts of 1,024 tokens of Python's "
            "own library and of this project's pages, 4,096 tokens a step, 200 steps a unit of compression to CR 4, then "
            "150 to settle at CR 2 or 4; 3e-4 for what is added, 1e-5 for the model's own weights where they "
            "move too. Held out are every thirtieth module of the library and README.md. The distance from the model's "
            "own full cache on 16 stretches of held-out modules, teacher-forced, hard decisions:\n\n")
    rows = [(f["run"], f["cr"], f"{f['tokens'] / 1e6:.1f}", f"{f['check']['kl']:.4f}",
             f"{100 * f['check']['top1']:.1f}", f"{f['check']['perplexity']:.3f}",
             f"{f['check']['perplexity_full']:.3f}", f"{f['check']['compression_by_peak']:.2f}",
             f"{f['check']['compression_by_reads']:.2f}") for f in figures["runs"]]
    text += table(("trained", "CR", "million tokens", "mean KL, nats", "same likeliest token, %", "perplexity",
                   "the model's own", "peak rows, times fewer", "reads"), rows)
    names = {"prose": "README.md", "code": "the longest held-out module"}
    for name in dict.fromkeys(f["text"] for f in figures["texts"]):
        text += (f"\nThe adapters and policies that need no training on {names[name]} (`ebb-lab fidelity`, two windows of "
                 "1,024 tokens). A policy's budget is the share of all rows that the first adapter had in the mean, "
                 "rounded up; it decides every 16 tokens:\n\n")
        rows = [(f["cr"], f["setting"], f.get("budget", "-"), f"{f['kv_bytes'] / 2 ** 20:.2f}",
                 f"{f['mean_kl']:.4f} ({f['intervals']['mean_kl'][0]:.4f} to {f['intervals']['mean_kl'][1]:.4f})",
                 f"{100 * f['top1']:.1f}") for f in figures["texts"] if f["text"] == name]
        text += table(("CR", "setting", "budget", "MiB of rows, mean", "mean KL, nats (95 %)",
                       "same likeliest token, %"), rows)
    return text


def section_k(figures):
    text = ("## The way to a real model, on a processor (K)\n\n"
            f"An adapter for SmolLM2-135M (CR 2, window 64), trained on a processor with {figures['tokens']:,} tokens "
            "of this project's pages, exported, and held against the model's own full cache on 1,536 tokens of README.md "
            "(windows of 512). This proves the way from a GGUF file through training and export to `--adapter`; so few "
            "tokens teach nothing, and it is worse than policies that need no training:\n\n")
    settings = {"dms": "`dms`, this adapter", "h2o": "`h2o`, 50 %", "streaming": "`streaming`, 256 rows",
                "random": "`random`, 50 %"}
    rows = [(settings[name], f"{some['kv_bytes'] / 2 ** 20:.2f}",
             f"{some['mean_kl']:.3f} ({some['intervals']['mean_kl'][0]:.3f} to {some['intervals']['mean_kl'][1]:.3f})",
             f"{100 * some['top1']:.1f}") for name, some in figures["settings"].items()]
    return text + table(("setting", "MiB of rows, mean", "mean KL, nats (95 %)", "same likeliest token, %"), rows)


TITLES = {"C": "policies without training at the same peak rows", "D": "delayed against immediate eviction",
          "E": "data, against DMC", "F": "losses and settling", "H": "longer texts than trained on",
          "I": "adapter, queries or all weights", "M": "marks and weight types",
          "J": "hyper-scaling", "K": "the way to a real model, on a processor",
          "L": "a real model, which needs a GPU for about ten minutes"}


SECTIONS = {"A": section_a_b, "C": section_c, "D": section_d, "E": section_e, "F": section_f, "G": section_g,
            "H": section_h, "I": section_i, "M": section_m, "J": section_j,
            "K": section_k, "L": section_l}
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
    there = [name for name in "CDEFHL" if name in figures]
    head = HEAD + ON_A_GPU.format(", ".join(there)) if there else HEAD
    parts = [head, *(sections[name] for name in SECTIONS if name in sections), ENDING]
    if missing:
        parts.append("## Not run yet\n\n`training/dms/retrofit --experiments` knows these too, and no figures of "
                     "theirs are here: " + "; ".join(missing) + ".\n")
    return "\n".join(parts)


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent / "figures")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/figures/dms.md")
    args = parser.parse_args(args)
    figures = {path.stem: json.loads(path.read_text(encoding="utf-8"))
               for path in args.figures.glob("*.json")}
    before = args.out.read_text(encoding="utf-8") if args.out.exists() else ""
    args.out.write_text(page(figures, before), encoding="utf-8")


if __name__ == "__main__":
    main()
