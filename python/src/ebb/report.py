"""Tables and pages of the files that `ebb-lab eval` and `ebb-lab profile` write, of one run or of several.

    python3 -m ebb.report summary runs/first
    python3 -m ebb.report judge runs/math MATH.jsonl
    python3 -m ebb.report merge runs/shard-* --out runs/whole
    python3 -m ebb.report eval runs/first
    python3 -m ebb.report margins runs/first
    python3 -m ebb.report fronts runs/plain runs/dms --out runs/fronts
    ebb-lab profile --json -p "The tide" | python3 -m ebb.report profile - --out profile.html

docs/user/evaluation.md defines the figures of evaluations (runs.py reads them, fronts.py computes those of several
runs), docs/dev/formats.md those of profiles.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

import numpy as np

from . import charts
from .errors import Error, InvalidArgument
from .fronts import COSTS, SCORES, compare, margins_of
from .runs import Json, Run, add_times, gaps, machine_notes, merge, parse_json, read_run, read_text, write_run
from .summary import summarize_run, summary_rows


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    separator = "|" + "---|" * len(header)
    return "\n".join(separator if line is lines[1] else f"| {' | '.join(line)} |" for line in lines) + "\n"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f}"


def margin_header(margins: Sequence[Json]) -> list[str]:
    return [f"points above {margins[0]['over']}", "at equal reads", "at equal peak rows"]


def margin_rows(margins: Sequence[Json]) -> list[list[str]]:
    return [[one["series"], *("-" if one[cost] is None else _percent(one[cost]) for cost in COSTS)] for one in margins]


def margin_table(margins: Sequence[Json]) -> str:
    return _table(margin_header(margins), margin_rows(margins)) if margins else ""


def _margin_text(one: Json) -> str:
    """"+3.1 (-0.5 to +6.2), NA in 12.0 %"."""
    if one["margin"] is None and one["none"] == 1:
        return "NA"
    text = "NA" if one["margin"] is None else _percent(one["margin"])
    if one["margin"] is not None and one["low"] is not None:
        text += f" ({_percent(one['low'])} to {_percent(one['high'])})"
    return f"{text}, NA in {100 * one['none']:.1f} %" if one["none"] > 0 else text


_POINT_HEADER = ("method", "L-W-CR", "majority", "pass@all", "reads", "peak rows", "on the front by")
_MARGIN_HEADER = ("points above", "majority, at equal reads", "at equal peak rows", "pass@all, at equal reads",
                  "at equal peak rows")


def _point_rows(fronts: Json) -> Iterator[list[str]]:
    for point in fronts["points"]:
        scores = [f"{100 * point[score]:.1f} % ({100 * point[f'{score}_low']:.1f} - {100 * point[f'{score}_high']:.1f})"
                  for score in SCORES]
        on_front = point["on_front"]["majority"]
        by = [name for cost, name in zip(COSTS, ("reads", "peak rows")) if on_front[cost]]
        yield [point["method"], point["name"], *scores, *(f"{point[cost]:.0f}" for cost in COSTS), ", ".join(by)]


def _margin_rows(fronts: Json) -> Iterator[list[str]]:
    for one in fronts["margins"]:
        yield [f"{one['method']} over {one['over']}",
               *(_margin_text(one[score][cost]) for score in SCORES for cost in COSTS)]


def front_table(fronts: Json) -> str:
    """Points and margins as Markdown."""
    text = _table(_POINT_HEADER, _point_rows(fronts))
    text += "".join(f"\nLeft out, since no request began: {setting}\n" for setting in fronts["left_out"])
    return text + ("\n" + _table(_MARGIN_HEADER, _margin_rows(fronts)) if fronts["margins"] else "")


def plot(fronts: Json, *, score: str = "majority", cost: str = "kv_reads", ax: Any = None) -> Any:
    """Every method's points, with their intervals, and its front (matplotlib)."""
    from .plots import _axes

    ax = _axes(ax)
    for name in fronts["methods"]:
        points = [point for point in fronts["points"] if point["method"] == name]
        values = np.array([point[score] for point in points])
        error = [values - [point[f"{score}_low"] for point in points],
                 np.array([point[f"{score}_high"] for point in points]) - values]
        drawn = ax.errorbar([point[cost] for point in points], values, yerr=np.maximum(error, 0), fmt="o",
                            markersize=4, elinewidth=0.6, label=name)
        best = sorted((point[cost], point[score]) for point in points if point["on_front"][score][cost])
        ax.plot(*zip(*best), color=drawn[0].get_color(), linewidth=1)
    ax.set_xscale("log")
    ax.set_xlabel({"kv_reads": "rows read in decode steps", "peak_tokens": "peak rows"}[cost])
    ax.set_ylabel({"majority": "majority is right", "pass_all": "any answer is right"}[score])
    ax.legend(fontsize="small")
    return ax


def page(fronts: Json) -> str:
    """One HTML file with the charts and tables."""
    names = fronts["methods"]
    drawn, of_legend = [], []
    for score, title in zip(SCORES, ("The majority is right", "Any answer is right")):
        for cost, axis in zip(COSTS, ("rows read in decode steps", "peak rows (tokens)")):
            series = []
            for i, name in enumerate(names):
                points = [point for point in fronts["points"] if point["method"] == name]
                best = sorted((point[cost], 100 * point[score])
                              for point in points if point["on_front"][score][cost])
                style = dict(colour=charts.PALETTE[i % 10], shape=charts.SHAPES[i % 6])
                series.append(charts.Series(name, *zip(*best), colour=style["colour"], dash=charts.DASHES[i // 10 % 4],
                                            silent=True))
                series.append(charts.Series(
                    name, [point[cost] for point in points], [100 * point[score] for point in points], **style,
                    line=False,
                    whiskers=[(100 * point[f"{score}_low"], 100 * point[f"{score}_high"]) for point in points],
                    tips=[f"{name} {point['name']}\n{100 * point[score]:.1f} % ({100 * point[f'{score}_low']:.1f} – "
                          f"{100 * point[f'{score}_high']:.1f})\n{charts.number(point[cost])}" for point in points]))
                if not drawn:
                    of_legend.append(charts.Series(name, [], [], **style, dash=charts.DASHES[i // 10 % 4]))
            drawn.append(charts.Chart(f"{title}, against {axis.split(' (')[0]}", "",
                                      charts.Axis(f"{axis}, log scale", log=True, format=charts.short),
                                      charts.Axis("accuracy (%)", 0, 100), series))
    parts = [
        charts.paragraph(", ".join(f"{key} {value}" for key, value in fronts["run"].items() if value is not None)),
        charts.paragraph(
            "A point L-W-CR: at most L tokens an answer, W answers to a problem, and a compression ratio or the budget "
            "in its place. Lines are Pareto fronts; bars are 95 % intervals over problems. A name hides and shows its "
            "points."),
        charts.legend(of_legend), charts.figures(drawn), "<h2>Points</h2>",
        charts.table(_POINT_HEADER, _point_rows(fronts), words=("on the front by",))]
    if fronts["margins"]:
        parts += ["<h2>Margins between fronts</h2>", charts.table(_MARGIN_HEADER, _margin_rows(fronts))]
    parts += [charts.paragraph(f"Left out, since no request began: {setting}") for setting in fronts["left_out"]]
    footer = "docs/user/evaluation.md defines points, fronts, margins and intervals."
    return charts.page("Fronts over several runs", parts, footer, fronts, "fronts.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m ebb.report", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_summary = commands.add_parser("summary", help="a table of settings, and summary.json and summary.md")
    of_summary.add_argument("folder", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_judge = commands.add_parser("judge", help="verdicts on answers in LaTeX by math-verify, in verdicts.jsonl")
    of_judge.add_argument("folder", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_judge.add_argument("task", metavar="TASK.jsonl", help="the file of problems that was asked")
    of_merge = commands.add_parser("merge", help="shards of one run, or runs of several settings, as one")
    of_merge.add_argument("folders", nargs="+", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_merge.add_argument("--out", required=True, metavar="FOLDER", help="for the run and its summary")
    for command in (of_summary, of_merge):
        command.add_argument("--against", default="", metavar="SETTING",
                             help="also test every setting against this one, named as in the table (McNemar's p)")
        command.add_argument("--json", action="store_true", help="print the summary, with times, in one line")
    of_merge.add_argument("--any-version", action="store_true",
                          help="put answers of different versions of ebb together too")
    of_eval = commands.add_parser("eval", help="a page with charts of one run")
    of_eval.add_argument("folder", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_eval.add_argument("--out", metavar="FILE", help="the page; FOLDER/report.html by default")
    of_margins = commands.add_parser("margins", help="how far the fronts of one run's policies lie apart")
    of_margins.add_argument("folder", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_fronts = commands.add_parser("fronts", help="accuracy against cost over several runs")
    of_fronts.add_argument("folders", nargs="+", metavar="FOLDER", help="a folder that `ebb-lab eval` wrote")
    of_fronts.add_argument("--out", required=True, metavar="FOLDER", help="for fronts.json, fronts.md, report.html")
    of_fronts.add_argument("--json", action="store_true", help="print fronts.json in one line instead of tables")
    of_profile = commands.add_parser("profile", help="a page with charts of a profile")
    of_profile.add_argument("file", metavar="FILE", help="what `ebb-lab profile --json` printed; -: stdin")
    of_profile.add_argument("--out", required=True, metavar="FILE", help="the page")
    options = parser.parse_args(arguments)
    try:
        return {"summary": _main_summary, "judge": _main_judge, "merge": _main_merge, "eval": _main_eval, "margins": _main_margins, "fronts": _main_fronts,
                "profile": _main_profile}[options.command](options)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except OSError as error:
        print(f"error: cannot write {error.filename or 'stdout'}: {error.strerror}", file=sys.stderr)
        return 1


def _write_summary(run: Run, folder: str, options: argparse.Namespace) -> int:
    """Files without times, so that the same run gives the same bytes; what is printed has them."""
    summary = summarize_run(run.results, options.against)
    table = _table(*summary_rows(summary))
    for name, text in (("summary.json", json.dumps(summary, indent=2) + "\n"), ("summary.md", table)):
        (Path(folder) / name).write_text(text, encoding="utf-8")
    sys.stdout.write(json.dumps(add_times(summary, run)) + "\n" if options.json else table)
    return 0


def _main_summary(options: argparse.Namespace) -> int:
    run = read_run(options.folder)
    for note in gaps(run):
        print(f"note: {options.folder}: {note}", file=sys.stderr)
    return _write_summary(run, options.folder, options)


def _main_judge(options: argparse.Namespace) -> int:
    from .verdicts import judge_run

    verdicts = judge_run(read_run(options.folder), options.task)
    right = sum(one["correct"] for one in verdicts)
    print(f"{right} of {len(verdicts)} answers are right: {options.folder}/verdicts.jsonl")
    return 0


def _main_merge(options: argparse.Namespace) -> int:
    run = merge([read_run(folder) for folder in options.folders], options.any_version)
    for note in machine_notes(run):
        print(f"note: {note}", file=sys.stderr)
    missing = run.num_asked - len(run.results)
    if missing > 0:
        print(f"note: {missing} of {run.num_asked} answers are missing: of shards, or of runs that did not end",
              file=sys.stderr)
    write_run(run, options.out, options.folders)
    return _write_summary(run, options.out, options)


def _main_eval(options: argparse.Namespace) -> int:
    from .eval_page import eval_page

    run = read_run(options.folder)
    summary, notes = summarize_run(run.results), gaps(run)
    text = eval_page(run.manifest, add_times(summary, run), margins_of(summary), notes)
    for note in notes:
        print(f"note: {options.folder}: {note}", file=sys.stderr)
    out = Path(options.out or Path(options.folder) / "report.html")
    out.write_text(text, encoding="utf-8")
    print(f"[report: {out}]", file=sys.stderr)
    return 0


def _main_margins(options: argparse.Namespace) -> int:
    sys.stdout.write(margin_table(margins_of(summarize_run(read_run(options.folder).results))))
    return 0


def _main_fronts(options: argparse.Namespace) -> int:
    fronts = compare(read_run(folder) for folder in options.folders)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    table = front_table(fronts)
    (out / "fronts.json").write_text(json.dumps(fronts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "fronts.md").write_text(table, encoding="utf-8")
    (out / "report.html").write_text(page(fronts), encoding="utf-8")
    sys.stdout.write(json.dumps(fronts, ensure_ascii=False) + "\n" if options.json else table)
    return 0


def _main_profile(options: argparse.Namespace) -> int:
    from .profile_page import profile_page

    text = sys.stdin.read() if options.file == "-" else read_text(Path(options.file))
    page_text = profile_page(parse_json(text, options.file))
    Path(options.out).write_text(page_text, encoding="utf-8")
    print(f"[report: {options.out}]", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
