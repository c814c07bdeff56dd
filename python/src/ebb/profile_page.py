"""The page of `ebb-lab profile --json`: attention, rows per tier, and the time of a step (docs/dev/formats.md)."""

from __future__ import annotations

import html
import math
from typing import Any, Iterable, Sequence

from .charts import (GREY, PALETTE, Axis, Chart, Series, bar_list, figures, number, page, paragraph, percent, power,
                     stacked)
from .errors import Corrupt

Json = dict[str, Any]

_MAIN = PALETTE[0]
_TIERS = {"T0": ("T0 fast", "#2f9e5b"), "T1": ("T1 capacity", "#1f9fbf"), "T2": ("T2 compressed", "#d99a1c"),
          "T3": ("T3 evicted", GREY)}
_PARTS = {"embedding": ("embedding lookup", GREY), "matmul": ("matrix products", "#3b78d8"),
          "attention": ("attention", "#2f9e5b"), "other": ("norms, RoPE and the rest", "#7c6bd6"),
          "io_wait": ("waiting for T1's file", "#c2527f"), "policy": ("policy", "#d99a1c"),
          "moves": ("moves between tiers", "#1f9fbf"), "sampling": ("sampling", "#a8703d")}
_NO_STEP = "There was no decode step."
_SHARE_OF_TOKENS = Axis("share of tokens (%)", 0, 100)


def _percents(shares: Iterable[float | None]) -> list[float | None]:
    return [None if share is None else 100 * share for share in shares]


def _log(label: str, **more: Any) -> Axis:
    return Axis(f"{label}, log scale", log=True, format=power, **more)


def _importance(f: Json) -> list[Chart]:
    shares, edges = f["share_of_tokens"], f["edges"]
    used = [i for i, share in enumerate(shares) if share > 0] or [0]
    begin, end = used[0], used[-1] + 1
    bars = list(zip(edges[begin:end], edges[begin + 1 : end + 1]))
    none = "" if f["tokens"] else _NO_STEP
    axis = _log("importance", low=edges[begin], high=edges[end])
    tips = [f"{number(low)} to {number(high)}: {number(100 * share)} % of the tokens"
            for (low, high), share in zip(bars, shares[begin:end])]
    captured = _percents(f["top_share_captures"])
    return [
        Chart("Importance of tokens: histogram", "Share of tokens by importance, 1 being the average (Figure 1a).",
              axis, Axis("share of tokens (%)"),
              [Series("tokens", [], _percents(shares[begin:end]), _MAIN, bars=bars, tips=tips)], none),
        Chart("Importance of tokens: cumulative", "Share of tokens whose importance is below a value (Figure 1b).",
              axis, _SHARE_OF_TOKENS,
              [Series("below", edges[begin : end + 1], _percents(f["cdf"][begin : end + 1]), _MAIN, fill=True)], none),
        Chart("Concentration of importance",
              f"The top 20 % of tokens capture {percent(f['top_20_percent']['mean'])} of all attention, the bottom "
              f"half {percent(f['bottom_50_percent']['mean'])} (Figure 1c).",
              Axis("most important tokens (%)", 0, 100), Axis("share of all attention (%)", 0, 100),
              [Series("measured", range(len(captured)), captured, _MAIN, fill=True),
               Series("if all were alike", [0, 100], [0, 100], GREY, dash="5 5", silent=True)], none, legend=True),
    ]


def _position(f: Json, importance: Json) -> list[Chart]:
    return [Chart("Importance by position",
                  f"Mean importance by position in the sequence; the prompt ends at {number(f['mean_prompt_tokens'])} "
                  "tokens on average (complements Figure 1).", Axis("position (tokens)"), _log("importance"),
                  [Series("importance", f["position"], f["importance"], _MAIN)],
                  "" if importance["tokens"] else _NO_STEP)]


def _by_chance(x: Sequence[float], share: float) -> Series:
    return Series("by chance", [min(x, default=0), max(x, default=1)], [share, share], GREY, dash="5 5", silent=True)


def _overlap(f: Json) -> list[Chart]:
    share = 100 * f["important_share"]
    none = "" if any(value is not None for value in f["overlap"]) else "Too few tokens were generated."
    return [Chart("Overlap of adjacent steps",
                  f"Share of a step's most important {number(share)} % of tokens that were so in the step before; mean "
                  f"{percent(f['mean'])} (complements Figure 1).", Axis("decode step"), Axis("overlap (%)", 0, 100),
                  [Series("measured", f["step"], _percents(f["overlap"]), _MAIN), _by_chance(f["step"], share)], none,
                  legend=True)]


def _top_half(f: Json) -> list[Chart]:
    return [Chart("The top half over distant steps",
                  "Of the tokens in the top half of a step, the share in the top half so many steps before; tokens "
                  "that did not exist then are left out (LazyEviction, Figure 2b).",
                  _log("distance (decode steps)"), Axis("share (%)", 0, 100),
                  [Series("measured", f["distance"], _percents(f["share"]), _MAIN), _by_chance(f["distance"], 50)],
                  "" if len(f["distance"]) > 1 else "Too few tokens were generated.", legend=True)]


def _recurrence(f: Json) -> list[Chart]:
    return [Chart("Recurrence of tokens",
                  "Share of tokens whose longest interval between two active steps is shorter than so many steps; "
                  f"{percent(f['recurring'])} recur; for 80 % of all tokens it is at most "
                  f"{number(f['percentile_80'], 6)} (LazyEviction, Figure 3c).",
                  _log("interval (decode steps)"), _SHARE_OF_TOKENS,
                  [Series("below", f["interval"], _percents(f["share_below"]), _MAIN, fill=True)],
                  "" if f["tokens"] else _NO_STEP)]


def _retained(f: Json) -> list[Chart]:
    shares, per_layer = f["share"], f["groups_per_layer"]

    def name(group: int) -> str:
        if per_layer == 0:
            return "all layers"
        layer, head = divmod(group, per_layer)
        return f"layer {layer}" if per_layer == 1 else f"layer {layer}, head {head}"

    every = max(1, per_layer)
    ticks = [(group + every / 2, str(group // every)) for group in range(0, len(shares), every)] if per_layer else []
    return [
        Chart("Rows kept, by layer and head" if per_layer else "Rows kept",
              "Share of the tokens that are alive at the end, mean over the runs, of each group that the policy "
              "decides about (Inference-Time Hyper-Scaling, Figure 6).",
              Axis("layer" if per_layer else "all layers together", 0, max(1, len(shares)), ticks=ticks),
              _SHARE_OF_TOKENS,
              [Series("alive", [], _percents(shares), _MAIN, bars=[(i, i + 1) for i in range(len(shares))],
                      tips=[f"{name(i)}: {percent(share)}" for i, share in enumerate(shares)])],
              "" if shares else "There was no run."),
        Chart("Compression by length", "Rows ever added for each row that is alive, by decode step (Figure 6).",
              Axis("decode step"), Axis("compression ratio"),
              [Series("compression", f["step"], f["compression"], _MAIN)], "" if f["compression"] else _NO_STEP),
    ]


def _tiers(f: Json) -> list[Chart]:
    used = [tier for tier in _TIERS if any(f["rows"][tier])]
    return [Chart("Rows per tier during generation",
                  "Rows, (layer, kv head, token) triples, in each tier after each step of the longest run (Figure 9).",
                  Axis("decode step"), Axis("rows"),
                  stacked([_TIERS[tier][0] for tier in used], f["step"], [f["rows"][tier] for tier in used],
                          [_TIERS[tier][1] for tier in used]), "" if f["step"] else _NO_STEP, legend=True)]


def _cost(f: Json) -> list[Chart | str]:
    none = "" if f["steps"] else _NO_STEP
    total = f["mean_step_seconds"]
    shares = {part: seconds / total if total else 0 for part, seconds in f["mean_seconds"].items()}

    def name(part: str) -> str:
        return _PARTS.get(part, (part, GREY))[0]

    def colour(part: str) -> str:
        return _PARTS.get(part, (part, GREY))[1]

    bars = [(f"{name(part)}, {percent(shares[part])}", 1000 * seconds, colour(part))
            for part, seconds in f["mean_seconds"].items()]
    shown = [part for part in shares if shares[part] > 1e-3]
    times = [[None if value is None else 1000 * value for value in f["seconds"][part]] for part in shown]
    return [
        bar_list("Parts of a step's time",
                 f"Mean time of each part over {number(f['steps'], 6)} decode steps, {number(1000 * total)} ms in all "
                 "(Figures 7 and 11).", bars, "ms", none),
        Chart("Time of a step as the cache grows",
              "Each part by decode step; parts below 0.1 % are left out (Figure 7 over time).", Axis("decode step"),
              Axis("time (ms)"),
              stacked([name(part) for part in shown], f["step"], times, [colour(part) for part in shown]), none,
              legend=True),
    ]


def _transfers(f: Json) -> list[Chart]:
    styles = {"T0 to T1": (_TIERS["T1"][1], ""), "T1 to T0": (_TIERS["T1"][1], "6 4"),
              "T0 to T2": (_TIERS["T2"][1], ""), "T2 to T0": (_TIERS["T2"][1], "6 4")}
    ways: dict[str, list[Json]] = {}
    for move in f["measured"]:
        ways.setdefault(f"{move['from']} to {move['to']}", []).append(move)

    def series(key: str, factor: float, unit: str) -> list[Series]:
        return [Series(way, [move["tokens"] for move in moves], [factor * move[key] for move in moves],
                       styles.get(way, (GREY, ""))[0], dash=styles.get(way, (GREY, ""))[1], shape="circle",
                       tips=[f"{way}: {number(factor * move[key])} {unit}, {number(move['tokens'], 6)} tokens"
                             for move in moves]) for way, moves in ways.items()]

    none = "" if ways else f.get("skipped", "Nothing was measured.")
    own = f["in_runs"]
    return [
        Chart("Latency of moves between tiers",
              "Time to move so many tokens, all their layers and heads, by direction (Figure 5).", _log("tokens moved"),
              _log("time (ms)"), series("seconds", 1e3, "ms"), none, legend=True),
        Chart("Bandwidth of moves between tiers",
              "Bytes of the rows at full precision per second, by tokens moved (Figure 6).", _log("tokens moved"),
              Axis("bandwidth (GB/s)"), series("bytes_per_second", 1e-9, "GB/s"), none, legend=True),
        Chart("Moves of the runs themselves",
              "Time of the moves of each decision, planning included, by the rows that changed their tier (Figures 5 "
              "and 6 in use).", Axis("rows moved"), Axis("time (ms)"),
              [Series("decision", [move["rows"] for move in own], [1000 * move["seconds"] for move in own], _MAIN,
                      line=False, shape="circle",
                      tips=[f"{number(move['rows'], 6)} rows: {number(1000 * move['seconds'])} ms" for move in own])],
              "" if own else "No row changed its tier in these runs."),
    ]


def _speed(runs: Sequence[Json]) -> list[Chart]:
    count = len(runs)
    every = math.ceil(count / 12)
    half = min(0.4, 0.1 * count)
    return [Chart("Speed of each prompt",
                  "Tokens per second of decoding, including the cost of profiling; accuracy, the other half of the "
                  "paper's figure, takes a benchmark (Figure 10).",
                  Axis("prompt", 0, count, ticks=[(i + 0.5, str(i + 1)) for i in range(0, count, every)]),
                  Axis("tokens per second"),
                  [Series("tokens per second", [], [run["tokens_per_s"] for run in runs], _MAIN,
                          bars=[(i + 0.5 - half, i + 0.5 + half) for i in range(count)],
                          tips=[f"prompt {i + 1}: {number(run['tokens_per_s'])} tokens/s, "
                                f"{number(run['generated_tokens'], 6)} tokens, {run['finish_reason']}"
                                for i, run in enumerate(runs)])])]


def _numbers(record: Json) -> str:
    figures_, runs = record["figures"], record["runs"]
    tokens = sum(run["generated_tokens"] for run in runs)
    cost = figures_["cost"]
    fast = max((run["tiers"][0]["bytes"] for run in runs), default=0)
    numbers = [
        (number(len(runs), 6), "prompt" if len(runs) == 1 else "prompts"),
        (number(tokens, 6), "token generated" if tokens == 1 else "tokens generated"),
        (percent(figures_["importance"]["top_20_percent"]["mean"]), "of attention on the top 20 % of tokens"),
        (percent(figures_["importance"]["bottom_50_percent"]["mean"]), "on the bottom half"),
        (percent(figures_["overlap"]["mean"]), "overlap of adjacent steps"),
        (f"{number(1000 * cost['mean_step_seconds'])} ms" if cost["steps"] else "–", "a decode step"),
        (f"{number(fast / 2**20)} MiB", "in T0 at the end, at most"),
    ]
    selections = [run["selection"] for run in runs if "selection" in run]
    if selections:
        sampled = [s for s in selections if s["samples"] > 0]
        for name, of, label in (("rows_read_share", selections, "of the rows read"),
                                ("unread_mass", selections, "of the attention unread, by estimate"),
                                ("sampled_unread_mass", sampled, "unread in samples")):
            if of:
                numbers.append((percent(sum(s[name] for s in of) / len(of)), label))
    return '<div class="numbers">' + "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>"
                                             for value, label in numbers) + "</div>"


def profile_page(record: Json) -> str:
    """One HTML file. Raises Corrupt where `record` is no profile."""
    if not isinstance(record, dict) or not {"figures", "runs"} <= record.keys():
        raise Corrupt("expected the object that `ebb-lab profile --json` prints")
    try:
        return _page(record)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise Corrupt(f"no profile of this version of `ebb-lab profile`: {error!r}") from None


def _page(record: Json) -> str:
    f = record["figures"]
    threads = record["threads"]
    setup = (f"{record['machine']}, {threads} {'thread' if threads == 1 else 'threads'} used, "
             f"attention {record['kernel']}, rows in {record['kv_type']}")
    placed = ("every row stays in T0" if record["placement"] == "none" else
              f"scores by {record['scorer']}, rows placed by {record['placement']}")
    others = record.get("others_share", 0)
    attention = [*_importance(f["importance"]), *_position(f["position"], f["importance"]), *_overlap(f["overlap"]),
                 *_top_half(f["top_half"]), *_recurrence(f["recurrence"])]
    system = [*_retained(f["retained"]), *_tiers(f["tiers"]), *_cost(f["cost"]), *_transfers(f["transfers"]),
              *_speed(record["runs"])]
    parts = [
        paragraph(f"{record['model']}; {placed}"), paragraph(setup),
        paragraph(f"Other processes took {percent(others)} of the processor time: do not trust the times.", "bad")
        if others > 0.03 else "",
        paragraph(f"This profile ended early: {record['ended_early']}", "bad") if "ended_early" in record else "",
        _numbers(record), "<h2>What attention looks at</h2>", figures(attention),
        "<h2>What the tiers hold, and where the time goes</h2>", figures(system),
    ]
    footer = ("Figures of the paper: \"Not All Thoughts Need HBM\". Importance is the attention that a token got over "
              "all decode steps, averaged over layers and heads, as a multiple of the average token's; an evicted "
              "token gets no more of it. Times are those of the thread that drives a step.")
    return page("ebb-lab profile", parts, footer, record, "ebb-profile.json")
