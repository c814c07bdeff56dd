"""docs/figures/results-pebble.md from what scripts/results ran."""

import json
import textwrap

RATIOS = (0, 3, 5, 7, 10, 15, 20, 50)


def read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def answers(folder):
    """{setting: {problem: (answer, tokens)}}, settings in the order of the grid."""
    table = {}
    path = folder / "results.jsonl"
    if not path.exists():
        return table
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            table.setdefault(record["setting"], {})[record["problem"]] = (
                record["extracted"], record["generated_tokens"])
    return table


def percent(record):
    return (f"{100 * record['accuracy']:.1f} ({100 * record['ci_low']:.1f} to "
            f"{100 * record['ci_high']:.1f})")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def wrapped(block):
    """Paragraphs and lists to the width of a page; tables and titles as they are."""
    if block.startswith(("|", "#")):
        return block
    if not block.startswith("- "):
        return textwrap.fill(block, 100, break_on_hyphens=False)
    items = (" ".join(item.split()) for item in block.replace("\n- ", "\0- ").split("\0"))
    return "\n".join(textwrap.fill(item, 100, subsequent_indent="  ", break_on_hyphens=False)
                     for item in items)


class Importance:
    """Tables of what `ebb-lab importance` found."""

    def __init__(self, record):
        self.record = record
        self.by_name = {c["signal"]: c for c in record["signals"]}
        layers = [n.removesuffix(" raw") for n in self.by_name if n.startswith("hidden_") and n.endswith(" raw")]
        self.families = [*layers, "key_variance", "key_variance_before_rope", "value_variance", "entropy"]

    def cell(self, name, key="within"):
        value = self.by_name[name][key]
        return "-" if value is None else f"{value:+.3f}"

    def with_width(self, name):
        width = self.by_name[name]["half_width"]
        return self.cell(name) + ("" if width is None else f" +- {width:.3f}")

    def about_correlations(self):
        return f"""Spearman's correlation with the labels, mean over the {max(c['thoughts'] for c in self.record['signals'])}
thoughts in which something matters and something does not, +- Student's 95 % over the thoughts, whose tokens are
not independent of each other."""

    def signals(self):
        return table(["signal", "raw", "exponential", "rolling", "rolling, pooled", "with the position"],
                     [[f"`{name}`"] + [self.with_width(f"{name} {how}") for how in ("raw", "exponential", "rolling")]
                      + [self.cell(f"{name} rolling", "pooled"), self.cell(f"{name} rolling", "trend")]
                      for name in self.families])

    def scorers(self):
        def place(name):
            within = self.by_name[name]["within"]
            return (within is None, -(within or 0))
        rows = [[f"`{name}`", self.with_width(name), self.cell(name, "pooled"), self.cell(name, "trend")]
                for name in sorted((name for name in self.by_name if " " not in name), key=place)]
        return table(["scorer", "within thoughts", "pooled", "with the position"], rows)

    def num_smoother(self):
        """(of families whose rolling mean tells more than the raw signal, of those beyond both intervals)"""
        def gain(name):
            raw, rolling = self.by_name[f"{name} raw"], self.by_name[f"{name} rolling"]
            return (abs(rolling["within"]) - abs(raw["within"]), (raw["half_width"] or 0) + (rolling["half_width"] or 0))
        gains = [gain(name) for name in self.families]
        return sum(more > 0 for more, _ in gains), sum(more > width for more, width in gains)

    def bands_and_places(self):
        bands = [f"layers {b[0]} to {b[1]}" if b else "none" for b in (self.record["band_a"], self.record["band_b"])]
        return (f"""Bands of EpiKV chosen from these labels: positive {bands[0]}, negative
{bands[1]}. Share of tokens that matter, by sixteenths of the thought: """
                + ", ".join(f"{100 * x:.0f}" for x in self.record["important_by_place"]) + " %.")


class Page:
    def __init__(self, out, reads):
        self.out = out
        self.reads = reads
        self.parts = []

    def say(self, text):
        self.parts += [wrapped(block) + "\n" for block in text.strip().split("\n\n")]

    def summary(self, run):
        return read(self.out / run / "summary.json")

    def model(self):
        full = self.summary("full")
        if not full:
            return
        record = full[0]
        self.say("## The model that is asked")
        self.say(f"""pebble with its full cache is right on {record['correct']} of {record['n']}
problems that no training saw: {percent(record)} %. An answer has {record['generated_tokens']:.0f}
tokens in the mean.""")

    def compressed(self):
        if not self.summary("full") or not self.summary("compressed"):
            return
        records = self.summary("full") + self.summary("compressed")
        full = answers(self.out / "full").get(0, {})
        others = answers(self.out / "compressed")
        rows = [[r["tiers"] or "full cache", f"{r['correct']}/{r['n']}", percent(r)]
                for r in records]
        for row, setting in zip(rows[1:], others):
            same = sum(full.get(p) == a for p, a in others[setting].items())
            row.append(f"{same} of {len(others[setting])}")
        rows[0].append("-")
        self.say("## The compressed tier\n\nEvery unprotected row in T2, the same problems:")
        self.say(table(["setting", "right", "accuracy, % (95 %)", "same answer and length as full"],
                       rows))

    def shares(self):
        full = answers(self.out / "full").get(0, {})
        shares = answers(self.out / "shares")
        if not full or not shares:
            return
        self.say("## Nothing evicted, T0 from 100 to 10 %")
        num_other = sum(full.get(p) != a for of in shares.values() for p, a in of.items())
        num = sum(len(of) for of in shares.values())
        self.say(f"""{num} answers under {len(shares)} shares of T0, the rest exact in T1:
{num_other} differ from the full cache's in answer or length.""")

    def grid(self):
        records = self.summary("grid")
        if not records:
            return
        self.say("## The 3 x 3 grid of \"Not All Thoughts Need HBM\", Table 4")
        by = {}
        for r in records:
            labels = dict(part.split("=") for part in r["tiers"].split())
            by.setdefault(labels["evict"], {})[labels["t0"]] = r
        shares = list(next(iter(by.values())))
        rows = []
        for ratio, of in by.items():
            right = [of[s]["correct"] for s in shares]
            rows.append([ratio, *(f"{of[s]['correct']}/{of[s]['n']}" for s in shares),
                         max(right) - min(right), percent(of[shares[0]])])
        self.say(table(["evicted", *(f"T0 {s}" for s in shares), "spread", "accuracy, % (95 %)"],
                       rows))

    def shape(self):
        names = {"hierarchy": "hierarchy, T0 50 %", "eviction": "eviction, attention",
                 "random": "eviction, random", "naive": "half in naive int8",
                 "int8": "half in int8"}
        runs = {name: self.summary(f"shape-{name}") for name in names}
        if not all(runs.values()):
            return
        self.say("## The shape of \"Not All Thoughts Need HBM\": accuracy against the evict ratio")
        self.say(f"""`--evict` of the rows ever unprotected, and of those still alive at each
interval, which compounds. Accuracy in % (95 %) on {runs['hierarchy'][0]['n']} problems. p is McNemar's
against the full cache on the same problems (the paper's is Fisher's); of 80 such p some are small by
chance.""")
        for base in ("generated", "alive"):
            rows = []
            for ratio in RATIOS:
                label = f"evict={ratio}%" + (" of alive" if base == "alive" else "")
                row = [f"{ratio} %"]
                for records in runs.values():
                    r = next(r for r in records if f" {r['tiers']}".endswith(f" {label}"))
                    row.append(f"{100 * r['accuracy']:.0f} ({100 * r['ci_low']:.0f} to "
                               f"{100 * r['ci_high']:.0f}), p {r['p_full']:.2g}")
                rows.append(row)
            self.say(f"Of the rows {'ever generated' if base == 'generated' else 'still alive'}:")
            self.say(table(["evicted", *names.values()], rows))

    def sweeps(self):
        for run, title, head in (
                ("windows", "The window (\"Not All Thoughts Need HBM\", Table 15)", "window"),
                ("intervals", "The interval (Table 16)", "interval")):
            records = self.summary(run)
            if not records:
                continue
            self.say(f"## {title}\n\nHierarchy, T0 50 %, 5 % evicted, {records[0]['n']} problems.")
            rows = []
            for r in records:
                options = dict(part.split("=") for part in r["options"].split())
                rows.append([options[head], f"{r['correct']}/{r['n']}", percent(r),
                             f"{r['peak_tokens']:.0f}"])
            self.say(table([head, "right", "accuracy, % (95 %)", "peak rows"], rows))
        records = self.summary("alphas")
        if records:
            self.say("## LazyEviction's alpha")
            budgets = sorted({r["budget"] for r in records})
            by = {}
            for r in records:
                by.setdefault(r["policy"].split("=")[1], {})[r["budget"]] = r
            self.say(table(["alpha", *budgets], [[alpha, *(percent(of[b]) for b in budgets)]
                                                 for alpha, of in by.items()]))
        records = self.summary("lags")
        if records:
            self.say(f"## LazyEviction's W, at {records[0]['budget']}")
            self.say(table(["W", "right", "accuracy, % (95 %)"], [
                [r["options"].removeprefix("interval="), f"{r['correct']}/{r['n']}", percent(r)]
                for r in records]))

    def policies(self):
        records = self.summary("policies") + self.summary("windowed")
        if not records:
            return
        budgets = sorted({r["budget"] for r in records if r["budget"]},
                         key=lambda b: float(b.rstrip("%")))
        by = {}
        for r in records:
            by.setdefault(r["policy"], {})[r["budget"]] = r
        full = next((percent(of[""]) for of in by.values() if "" in of), "not measured")
        self.say("## Policies at a share of the rows")
        self.say(f"""Accuracy in % with its 95 % interval on {records[0]['n']} problems; the full cache:
{full}. Window 16 and interval 16 where a policy takes them, so that `windowed:NAME` decides as NAME does. What a budget is a share of differs from
source to source, and is named. `quest` frees nothing: a query head reads that share of the pages, a kv head
the union of what its query heads read, and the first two of the four layers everything.""")
        rows = [[policy, self.reads.get(policy.removeprefix("windowed:"), ""),
                 *(percent(of[b]) if b in of else "-" for b in budgets),
                 next(iter(of.values())).get("budget_of") or "-"]
                for policy, of in by.items() if "" not in of]
        self.say(table(["policy", "reads", *budgets, "a percentage is of"], rows))
        self.marks()

    def marks(self):
        """The retrofitted models' own policy, which takes no budget."""
        rows = []
        for run, model in (("marks-4", "pebble-dms"), ("marks-8", "pebble-dms-8")):
            for r in self.summary(run):
                full = self.summary(run)[0]
                rows.append([f"`-m {model}`", f"`{r['policy']}`", f"{r['correct']}/{r['n']}", percent(r),
                             f"{r['peak_tokens']:.0f}", f"{100 * r['peak_tokens'] / full['peak_tokens']:.0f} %",
                             f"{100 * r['kv_reads'] / full['kv_reads']:.0f} %"])
        if rows:
            self.say("""`dms` takes no budget: the model says what goes. On the same problems, with pebble retrofitted
to mark three quarters and seven eighths of its rows ([dms.md](dms.md)):""")
            self.say(table(["model", "policy", "right", "accuracy, % (95 %)", "peak rows", "of full", "reads, of full"],
                           rows))

    def accuracy(self, run, policy=None, budget="", tiers=""):
        """In %, of the first setting that is so; `tiers` is how its label ends."""
        for r in self.summary(run):
            if (policy is None or r["policy"] == policy) and r["budget"] == budget and (
                    not tiers or f" {r['tiers']}".endswith(f" {tiers}")):
                return 100 * r["accuracy"]
        return float("nan")

    def about_marks(self):
        if not self.summary("marks-4"):
            return '"Inference-Time Hyper-Scaling" (DMS): the runs marks-4 and marks-8 are missing.'

        def said(run):
            full, dms = self.summary(run)
            return (f"{100 * dms['accuracy']:.1f} % right with {full['peak_tokens'] / dms['peak_tokens']:.1f} times "
                    f"fewer rows at the peak and {full['kv_reads'] / dms['kv_reads']:.1f} times fewer read")

        return f""""Inference-Time Hyper-Scaling" (DMS): that a short retrofit lets a model say which rows can go
reproduces on pebble: {said('marks-4')}, trained to mark three quarters; trained to mark seven eighths,
{said('marks-8')}. What was measured of delay, losses, data and lengths, and what of the paper was not, is in
[dms.md](dms.md)."""

    def conclusions(self):
        needed = ("full", "compressed", "grid", "shape-hierarchy", "shape-eviction", "shape-random",
                  "policies")
        if not all(self.summary(run) for run in needed):
            return
        full = self.accuracy("full")
        int8, naive = (self.accuracy("compressed", tiers=f"t2=100%:{kind} evict=0%")
                       for kind in ("int8", "int8_naive"))
        same = answers(self.out / "shape-hierarchy") == answers(self.out / "shape-eviction")

        def shape(run, ratio, base=""):
            return f"{self.accuracy(f'shape-{run}', tiers=f'evict={ratio}%{base}'):.0f} %"

        def at(policy, budget):
            return f"{self.accuracy('policies', policy, budget):.0f} %"

        def both(policy):
            return f"{at(policy, '50%')} and {at(policy, '75%')}"

        reads = {(r["policy"], r["budget"]): r["kv_reads"] for r in self.summary("policies")}

        def share_read(policy, budget):
            return f"{100 * reads[policy, budget] / reads['full', '']:.0f} %"

        self.say(f"""## What reproduces, on this model

pebble is small, and its problems are made to need facts from far back: figures say which policy
loses what a thought needs, not how a large model would fare.

"Not All Thoughts Need HBM":

- The answer does not depend on how much T0 holds: reproduced, exactly.
- Little is lost at 3 % evicted ({shape('hierarchy', 3)} right) and most at 50 %
  ({shape('hierarchy', 50)}): reproduced, where the ratio is of all rows ever generated. Taken literally
  (of the rows alive at every interval) it compounds, and 3 % already leave
  {shape('hierarchy', 3, ' of alive')}.
- That the hierarchy beats eviction: only because it evicts less. At the same ratio both gave
  {'the same answers, one by one' if same else 'different answers, which they should not'}: rows in T1
  take part exactly, so what the hierarchy adds is memory.
- That attention scores matter: {shape('eviction', 3)} against {shape('random', 3)} with random scores
  at 3 % evicted, {shape('eviction', 10)} against {shape('random', 10)} at 10 %, {shape('eviction', 50)}
  against {shape('random', 50)} at 50 %. Sums over all steps favour old rows over facts that nothing has
  asked for yet.
- The collapse of an 8-bit tier (38 points there): not reproduced. All unprotected rows in int8 cost
  {full - int8:.1f} points, in naive int8 {full - naive:.1f}.

EpiKV: that a change of hidden states ranks better than cumulative attention reproduces, `epikv` is
right on {both('epikv')} at half and three quarters of the rows, `attention` on {both('attention')}. That it
ranks well does not: `recency`, which looks at nothing, has {both('recency')}. Added to attention (`attn_hs`) it
gives {both('attn_hs')}; of what reads keys alone `lag_key` has {both('lag_key')}. `band_adaptive` is `epikv`
here: of four layers its two bands are three, and the one that they share cancels.

{self.about_marks()}

R-KV: {both('rkv')}; VATP {both('vatp')}, where H2O, which it weights by the size of values, has {both('h2o')};
TOVA {both('tova')}. ThinKV: {both('thinkv')} as EpiKV describes it, {both('thinkv_original')} by its own
description: both keep fewer rows than the budget allows. None of their papers' claims, made on large models,
can be judged by this.

LazyEviction: {both('lazy_eviction')}, below `raas`, {both('raas')}, whose time stamps it refines: not
reproduced here. Policies
that spare no prompt (H2O, TOVA, VATP, R-KV, LazyEviction, StreamingLLM) lose the question first, which a
pebble thought reads to its last step.

Quest frees nothing: {at('quest', '12%')} right with 12 % of the pages for each query head, which are
{share_read('quest', '12%')} of the full cache's reads, {at('quest', '25%')} with 25 %, {share_read('quest', '25%')} of the
reads.
""")

    def importance(self):
        r = read(self.out / "importance" / "importance.json")
        if not r:
            return
        of = Importance(r)
        self.say("## Which tokens matter")
        self.say(f"""Labels by occlusion ("EpiKV", App. C), 32 tokens every 16, {r['labelled']} of
{r['problems']} thoughts ({r['wrong']} answered wrongly, {r['not repeated']} not the same again from the
boundary on, which is "That is all."): {100 * r['important_share']:.1f} % of the tokens matter to the
answer. {of.about_correlations()}""")
        self.say("Signals of the model, raw and smoothed (Table 10, Fig. 5 there):")
        self.say(of.signals())
        self.say("Scorers, as their scores stand at the boundary, best first:")
        self.say(of.scorers())
        more, surely = of.num_smoother()
        self.say(f"""What reproduces: cumulative attention tells next to nothing ({of.cell('attention')};
at most 0.09 there). A rolling mean over 64 tokens tells more than the raw signal: for {more} of
{len(of.families)} signals, for {surely} of them beyond both intervals. Keys before RoPE tell about as much as after it
({of.cell('key_variance_before_rope rolling')} against {of.cell('key_variance rolling')}). What a thought needs
here is what it found last, so `recency` ({of.cell('recency')}) is ahead of all that the model shows.""")
        self.say(of.bands_and_places())

    def fidelity(self):
        records = read(self.out / "fidelity.json")
        if not records:
            return
        failed = [r for r in records if "error" in r]
        records = sorted((r for r in records if "error" not in r), key=lambda r: r["mean_kl"])
        if not records:
            return
        first = records[0]
        self.say("## Fidelity on SmolLM2-135M at equal bytes")
        self.say(f"""Teacher-forced on its own greedy text, {first['windows']} window of
{first['window_tokens']} tokens, each policy with 7,200 KiB for its rows, what it protects included (320
rows of each kv head): how far its distributions are from the full cache's, best first. Intervals are over
the tokens of this text. Pages: what the rows took of memory, mean over the steps; a page of 64 rows
may be half empty, and policies that decide every 64 steps grow between decisions. State: what the policy
keeps for itself. Quest frees nothing, and each of its query heads reads as many rows; `oracle` knows the
attention to come.""")
        rows = []
        for r in records:
            low, high = r["intervals"]["mean_kl"]
            rows.append([r["policy"], self.reads.get(r["policy"], ""),
                         f"{r['mean_kl']:.3g} ({low:.3g} to {high:.3g})", f"{100 * r['top1']:.1f}",
                         f"{r['kv_bytes'] / 2**20:.1f}", f"{r['policy_bytes'] / 2**20:.2f}"])
        self.say(table(["policy", "reads", "mean KL (95 %)", "same likeliest token, %",
                        "pages, MiB", "state, MiB"], rows))
        for r in failed:
            self.say(f"Not measured: {r['policy']}: {r['error']}")

    def text(self):
        return "\n".join(self.parts)


def write(out, path, reads):
    """`reads`: what each policy reads, by name."""
    page = Page(out, reads)
    page.say("""# Results on pebble

Written by `scripts/results` from runs of `ebb-lab eval` and `ebb-lab fidelity`; every figure follows from a
seed and can be had again with that command.""")
    for part in (page.model, page.conclusions, page.compressed, page.shares, page.grid, page.shape, page.policies,
                 page.sweeps, page.importance, page.fidelity):
        part()
    path.write_text(page.text(), encoding="utf-8")
