"""Pages of `ebb-lab eval` and `ebb-lab profile`; fronts and margins over runs."""

import html
import io
import json
import math
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import ebb
from ebb import charts, report
from ebb.eval_page import eval_page
from ebb.profile_page import profile_page
from ebb.runs import Run, add_times, read_run
from ebb.fronts import (ModelIdentity, _random_numbers, collect, common_costs, compare, draw_problems, format_budget,
                        front, margin, margins_of, votes)

PLAIN = ModelIdentity(1, "pebble, llama, F16", 0, 0, 1)
CR4 = replace(PLAIN, fingerprint=4, compression=4, window=16)
CR8 = replace(PLAIN, fingerprint=8, compression=8, window=16)


def run_of(model=PLAIN, policy="full", budget="", tiers="", options="", *, tokens=512, answers=(("+1",), ("2",)),
           reads=100, peak=10, first_seed=0, **manifest):
    """`answers` by problem and sample: "+..." is right, "" is none. A peak of 0: the request was refused."""
    setting = dict(policy=policy, budget=budget, tiers=tiers, options=options)
    seeds = range(first_seed, first_seed + len(answers[0]))
    results = [dict(setting=sample, problem=problem, **setting, seed=seed, correct=of[sample].startswith("+"),
                    extracted=of[sample], kv_reads=reads, peak_tokens=peak)
               for sample, seed in enumerate(seeds) for problem, of in enumerate(answers)]
    return Run(policy + budget, dict(
        task="pebble", problems=len(answers), seed=7, model=model.description, model_fingerprint=model.fingerprint,
        model_compression=model.compression, model_window=model.window, model_shift=model.shift, temperature=1.0,
        tokens=tokens, answer_tokens=tokens or 1600, shard="0/1", settings=[dict(setting, seed=s) for s in seeds],
        **manifest), results, [dict(seconds=1.0)] * len(results))


def names(sets):
    return [f"{one.method} {one.tokens}-{one.compression}" for one in sets]


def test_a_front_goes_over_limits_budgets_and_models_that_mark():
    methods, sets = collect([
        run_of(CR4, "dms"), run_of(CR8, "dms", tokens=1024), run_of(policy="tova", budget="1/4"),
        run_of(policy="tova", budget="1/8"), run_of(), run_of(tokens=1024)])
    assert methods == ["full", "tova", "dms"]
    assert names(sets) == ["dms 512-4", "dms 1024-8", "tova 512-4", "tova 512-8", "full 512-1", "full 1024-1"]


def test_the_limit_of_rows_stands_in_place_of_a_ratio():
    unsaid = replace(PLAIN, fingerprint=9, window=16)
    _, sets = collect([
        run_of(policy="tova", budget="25%"), run_of(policy="tova", budget="128"), run_of(policy="tova", budget="+64"),
        run_of(policy="attention", tiers="t0=50% evict=5% of alive"), run_of(policy="quest"), run_of(unsaid, "dms")])
    assert names(sets) == ["tova 512-25%", "tova 512-128 rows", "tova 512-+64 rows",
                           "attention, t0=50% of alive 512-evict=5%", "quest 512-quest", "dms 512-dms"]
    assert format_budget("64MiB") == "67108864 bytes" and format_budget("1.5GB") == "1500000000 bytes"
    assert format_budget("") == format_budget("many") == ""


def test_names_hold_the_fields_that_distinguish_methods():
    other = replace(PLAIN, fingerprint=2, description="other, llama, F16")
    twin = replace(other, fingerprint=0xABCDEF0000000000)
    methods, _ = collect([
        run_of(CR4), run_of(), run_of(other), run_of(twin), run_of(CR4, "dms"),
        run_of(replace(CR4, fingerprint=5, window=64), "dms"), run_of(replace(CR4, fingerprint=6, shift=16), "dms"),
        run_of(policy="h2o", budget="25%", options="window=8"),
        run_of(policy="h2o", budget="25%", options="window=16")])
    assert methods == ["full", "full, other, llama, F16 000000", "full, other, llama, F16 abcdef",
                       "full, model of CR 4", "h2o, window=8", "h2o, window=16", "dms, window 16, shift 1",
                       "dms, window 64, shift 1", "dms, window 16, shift 16"]
    unsaid = replace(PLAIN, fingerprint=9, window=16, description="marked, llama, F16")
    assert collect([run_of(unsaid), run_of(CR4, "tova", "1/4"), run_of()])[0] == [
        "full", "full, marked, llama, F16", "tova, model of CR 4"]
    assert collect([run_of(CR4), run_of(CR4, "dms")])[0] == ["full", "dms"]


def test_shards_and_further_seeds_are_pooled():
    whole = run_of(answers=(("+1", "a"), ("b", "+2")), context=2048)
    shards = [Run("part", {**whole.manifest, "shard": f"{i}/2"},
                  [line for line in whole.results if line["problem"] == i], whole.times) for i in (1, 0)]
    more = run_of(answers=(("+3",), ("c",)), first_seed=2, context=4096)
    _, (one,) = collect([shards[0], more, shards[1]])
    assert [[answer["extracted"] for answer in answers] for answers in one.of_problem] == [
        ["+1", "a", "+3"], ["b", "+2", "c"]]


@pytest.mark.parametrize("key, value, message", [
    ("problems", 3, "answers are missing"), ("temperature", 0.5, '"temperature" differs'),
    ("top_k", 40, '"top_k" differs'),
    ("seed", 8, 'full and dms have no fronts in common: their "seed" differs'),
])
def test_runs_of_other_problems_are_refused(key, value, message):
    other = run_of(CR4, "dms")
    other.manifest[key] = value
    with pytest.raises(ebb.InvalidArgument, match=message):
        compare([run_of(), other])


def test_the_problems_of_a_file_do_not_follow_from_the_seed():
    def of_file(model, task, seed, fingerprint):
        run = run_of(model, task_fingerprint=fingerprint)
        run.manifest |= dict(task=task, seed=seed)
        return run

    collect([of_file(PLAIN, "a.jsonl", 1, "f"), of_file(CR4, "b.jsonl", 2, "f")])
    with pytest.raises(ebb.InvalidArgument, match='"task_fingerprint" differs'):
        collect([of_file(PLAIN, "a.jsonl", 1, "f"), of_file(CR4, "a.jsonl", 2, "g")])


def test_gaps_and_answers_that_differ_are_refused():
    gap = run_of()
    gap.results.pop()
    with pytest.raises(ebb.InvalidArgument, match="full: 1 of 2 answers are missing; end the run by --resume"):
        collect([gap])
    again = run_of(context=4096)
    again.results[1]["extracted"] = "3"
    with pytest.raises(ebb.InvalidArgument, match="two answers to problem 1 of full, seed 0 differ"):
        collect([run_of(), again])
    with pytest.raises(ebb.InvalidArgument, match="expected folders"):
        collect([])


@pytest.mark.parametrize("answers, majority, any_right", [
    ([], False, False), (["5", "5", "+12"], False, True),
    (["5", "5", "+12", "+12.0", "+twelve"], True, True),  # all right answers are one
    (["5", "5", "+12", "+12.0", "+12", "10/2", "5.0"], False, True),  # 5, 10/2 and 5.0 are one
    (["5", "+12"], True, True), (["+5", "12"], False, True),  # ties: the answer that sorts first
    (["", "", "+7"], True, True),
])
def test_votes(answers, majority, any_right):
    lines = [dict(correct=text.startswith("+"), extracted=text.removeprefix("+")) for text in answers]
    assert votes(lines) == (majority, any_right)


def test_fronts_and_margins_of_points():
    assert front([(3, 0.9), (1, 0.5), (2, 0.6), (2, 0.4), (2.5, 0.6)]) == [(1, 0.5), (2, 0.6), (3, 0.9)]
    assert front([]) == []
    rising, flat = [(1, 0.2), (3, 0.4)], front([(1, 0.2), (2, 0.1), (3, 0.4)])
    assert margin(rising, flat) == pytest.approx(0, abs=1e-12)
    a, b = [(1, 0.1), (4, 0.5)], [(2, 0.1), (8, 0.5)]
    assert common_costs(a, b) == (2, 4)
    assert margin(a, b) == -margin(b, a) and margin(a, a) == 0
    assert margin(a, [(4, 0.1), (8, 0.5)]) is None and margin(a, []) is None


def test_problems_are_drawn_as_the_standard_library_draws_them():
    # The 10,000th output of std::mt19937_64 with its default seed, by the C++ standard.
    assert int(_random_numbers(5489, 10_000)[-1]) == 9981545732273789042
    draws = draw_problems(5, 400, 7)
    assert draws.shape == (400, 5) and (draws.sum(axis=1) == 5).all()
    assert np.abs(draws.sum(axis=0) - 400).max() < 90
    assert (draws == draw_problems(5, 400, 7)).all() and (draws != draw_problems(5, 400, 8)).any()


def test_points_are_means_over_disjoint_subsets():
    # W = 2: "+1 x" and "x +1" are ties, which "+1" wins; "x x" is wrong. W = 4: "+1 x x x" is wrong.
    fronts = compare([run_of(answers=(("+1", "x", "x", "x"), ("+1", "+1", "x", "+1")))])
    points = fronts["points"]
    keys = ("name", "majority", "pass_all", "kv_reads", "peak_tokens", "samples")
    assert [tuple(point[key] for key in keys) for point in points] == [
        ("512-1-1", 0.5, 0.5, 100, 10, 4), ("512-2-1", 0.75, 0.75, 200, 20, 4), ("512-4-1", 0.5, 1, 400, 40, 4)]
    assert fronts["baseline"] == "full" and fronts["margins"] == []
    assert not points[2]["on_front"]["majority"]["kv_reads"] and points[2]["on_front"]["pass_all"]["kv_reads"]
    # In a quarter of the resamples each, one problem is drawn twice.
    assert (points[0]["majority_low"], points[0]["majority_high"]) == (0.25, 0.75)
    odd = compare([run_of(answers=(("x", "x", "x", "+1", "+1"),))])["points"]
    assert [point["majority"] for point in odd] == [0.4, 0.5, 0]


def test_a_margin_is_the_mean_difference():
    half, whole = (("+1",), ("x",), ("+1",), ("x",)), (("+1",),) * 4
    cr2 = replace(CR4, fingerprint=2, compression=2)
    fronts = compare(
        [run_of(CR4, "dms", answers=half), run_of(cr2, "dms", answers=whole, reads=150, peak=20),
         run_of(answers=half, peak=40), run_of(tokens=1024, answers=whole, reads=200, peak=80)],
        resamples=400, seed=3)
    (one,) = fronts["margins"]
    reads, peak = one["majority"]["kv_reads"], one["majority"]["peak_tokens"]
    assert (one["method"], one["over"], reads["from"], reads["to"]) == ("dms", "full", 100, 150)
    # With k of 4 draws right for the least cost it is (1 - k / 4) / 4, and none for k = 4.
    assert [reads[key] for key in ("margin", "low", "high")] == pytest.approx([0.125, 0.0625, 0.25])
    assert reads["none"] == pytest.approx(1 / 16, abs=0.04)
    assert one["pass_all"]["kv_reads"] == reads
    assert peak == {"margin": None, "low": None, "high": None, "none": 1, "from": None, "to": None}
    table = report.front_table(fronts)
    assert "| dms | 512-1-4 | 50.0 % (" in table and " | 100 | 10 | reads, peak rows |\n" in table
    assert "| dms over full | +12.5 (+6.2 to +25.0), NA in " in table and " | NA | " in table
    page = report.page(fronts)
    assert page.count('class="chart"') == 4 + 2 and "dms over full" in page
    check_that_it_loads_nothing(page)


def test_requests_that_were_refused_cost_nothing():
    run = run_of(answers=(("+1", "x"), ("+1", "x")))
    run.results[3] |= dict(kv_reads=0.0, peak_tokens=0.0)
    refused = run_of(policy="tova", budget="1/4", answers=(("+1", ""), ("", "")), reads=0, peak=0)
    fronts = compare([run, refused], resamples=10)
    assert [(point["kv_reads"], point["peak_tokens"]) for point in fronts["points"]] == [(100, 10), (200, 20)]
    assert fronts["left_out"] == ["tova 4"] and fronts["methods"] == ["full"]
    assert "Left out, since no request began: tova 4" in report.front_table(fronts)
    with pytest.raises(ebb.InvalidArgument, match="no request of these runs began"):
        compare([refused])


def record(policy, budget, cost, accuracy, tiers="", options=""):
    return dict(policy=policy, budget=budget, tiers=tiers, options=options, accuracy=accuracy, kv_reads=10 * cost,
                peak_tokens=cost)


def test_margins_of_one_run():
    h2o = [record("h2o", "25%", 100, 0.5), record("h2o", "50%", 200, 0.9)]
    summary = [record("full", "", 500, 1), *h2o, record("random", "25%", 100, 0.1), record("random", "50%", 300, 0.3)]
    (one,) = margins_of(summary)
    assert (one["series"], one["over"]) == ("h2o", "random")
    assert one["kv_reads"] == pytest.approx(0.55) and one["peak_tokens"] == pytest.approx(0.55)
    assert "| h2o | +55.0 | +55.0 |" in report.margin_table([one])
    apart = [record("random", "1", 1, 0.1), record("random", "2", 2, 0.2), *h2o]
    assert "| h2o | - | - |" in report.margin_table(margins_of(apart))
    tiers = [record("attention", "", 100, 0.5, "t0=50% evict=10%"), record("attention", "", 200, 0.9, "t0=50% evict=5%"),
             record("random", "", 100, 0.1, "evict=10%"), record("random", "", 200, 0.2, "evict=5%")]
    assert margins_of(tiers)[0]["series"] == "attention, t0=50%"
    options = [*(one | dict(options="window=8") for one in h2o), *(one | dict(options="window=16") for one in h2o)]
    assert [(one["series"], one["over"]) for one in margins_of(options)] == [("h2o, window=16", "h2o, window=8")]
    assert margins_of(h2o) == [] and report.margin_table([]) == ""


def check_that_it_loads_nothing(page):
    assert "default-src 'none'" in page
    assert not re.search(r"""src=|@import|url\(|href="(?!data:)|https?://""", page)


def data_of(page):
    import base64

    return json.loads(base64.b64decode(re.search(r"data:application/json;base64,([^\"]*)", page)[1]))


def setting(policy, budget, accuracy, cost, tiers="", options="", **more):
    return dict(policy=policy, budget=budget, budget_of=None, tiers=tiers, options=options, n=10,
                correct=round(10 * accuracy), accuracy=accuracy, ci_low=accuracy / 2, ci_high=(1 + accuracy) / 2,
                standard_error=0.1, retention=accuracy, p_full=0.5, empty=0, no_answer=0, truncated=0, loops=0, errors=0,
                generated_tokens=600.0, peak_tokens=cost, peak_kv_bytes=cost and 2048 * cost,
                kv_reads=cost and 400 * cost, seconds=None, tokens_per_s=None, overhead=None) | more


RUN = dict(task="pebble", problems=10, seed=7, model="pebble, llama, F16", kv_type="f16", temperature=0.0)


def test_the_page_of_a_run_draws_each_way_to_write_budgets_apart():
    def titles(*summary):
        page = eval_page(RUN, summary, [])
        check_that_it_loads_nothing(page)
        return [title.removeprefix("Accuracy against ") for title in re.findall("<h3>(.*?)</h3>", page)]

    costs = ["peak rows", "reads"]
    for budgets, title in [(("25%", "50%"), "in percent"), (("128", "64 rows"), "in rows"),
                           (("+16", "+32 rows"), "in rows beyond the protected"),
                           (("1/8", "1/2"), "as a share of the context"), (("64MiB", "1000000 bytes"), "in bytes")]:
        shown = titles(setting("h2o", budgets[0], 0.1, 100), setting("h2o", budgets[1], 0.4, 200))
        assert shown == [f"budget {title}", *costs]
    assert titles(setting("full", "", 1.0, 400), setting("attention", "", 0.5, 200, "t0=50% evict=5%"),
                  setting("attention", "", 0.4, 100, "t0=50% evict=10%")) == ["the evicted share", *costs]
    # One setting has no chart, and neither have costs that no request had.
    assert titles(setting("full", "", 1.0, 400)) == []
    assert titles(setting("h2o", "25%", 0, None), setting("h2o", "50%", 0, None)) == ["budget in percent"]


def test_the_page_of_a_run_shows_every_setting():
    h2o = dict(budget_of="all rows, the prompt's too")
    summary = [setting("full", "", 1.0, 400, seconds=0.5), setting("h2o", "25%", 0.1, 100, loops=2, no_answer=1, **h2o),
               setting("h2o", "50%", 0.4, 200, errors=1, seconds=0.25, p_full=1e-5, **h2o),
               *(setting("</script>", "25%", 0.2, 110 + i, options=f"a={i}") for i in (1, 2))]
    page = eval_page(RUN | dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.05), summary, margins_of(summary))
    assert "</script>" not in page.split("<script>")[0]
    assert "temperature 1, top-k 0, top-p 1, min-p 0.05, rows in f16" in page
    assert "1 of 50 answers ended by an error." in page
    assert "h2o: of all rows, the prompt&#x27;s too. Dashed: the full cache." in page
    rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    assert rows[0] == ["setting", "right", "accuracy", "95 % interval", "standard error", "failed", "retention", "p",
                       "tokens", "peak rows", "peak KiB", "reads", "seconds"]
    assert rows[3] == ["h2o 50%", "4/10", "40.0 %", "20.0 – 70.0", "10.0 %", "1\u00a0error", "0.40", "1.0e-05",
                       "600", "200", "400", "80K", "0.25"]
    assert rows[4][0] == "&lt;/script&gt; 25% a=1" and rows[2][5] == "2\u00a0loops, 1\u00a0no\u00a0answer"
    # Every point is drawn once in each chart, with its interval.
    assert page.count('data-tip="h2o 25%\n10.0 % (5.0 – 55.0)\n2\u00a0loops, 1\u00a0no\u00a0answer"') == 3
    assert data_of(page)["settings"] == summary
    against = [one | dict(against="full", p_against=0.25) for one in summary]
    assert "<th>p against full</th>" in eval_page(RUN, against, [])


def test_the_front_of_a_page_is_of_the_settings_that_no_other_beats():
    page = eval_page(RUN, [setting("a", "", 0.5, 200), setting("b", "", 0.4, 300), setting("c", "", 0.9, 400)], [])
    peak = re.findall(r'data-series="Pareto front"><path d="M(.*?)" class="line"', page)[0]
    corners = [tuple(map(float, corner.split())) for corner in peak.split("L")]
    assert len({x for x, _ in corners}) == 2 and corners[0][1] > corners[-1][1]  # a, then up at c


def test_times_are_means_of_the_answers_that_have_them():
    run = run_of(answers=(("+1",), ("+2",)))
    run.results += run_of(policy="h2o", answers=(("+1",),)).results + run_of(policy="tova", answers=(("+1",),)).results
    for line in run.results:
        line["generated_tokens"] = 100
    run.times = [dict(seconds=seconds) for seconds in (1.0, 3.0, 2.5)]
    full, h2o, tova = add_times([setting(name, "", 1.0, 10) for name in ("full", "h2o", "tova")], run)
    assert (full["seconds"], full["tokens_per_s"], full["overhead"]) == (2, 50, 0)
    assert (h2o["seconds"], h2o["tokens_per_s"], h2o["overhead"]) == (2.5, 40, pytest.approx(0.25))
    assert tova["seconds"] is tova["tokens_per_s"] is tova["overhead"] is None
    run.results = run.results[2:]
    assert add_times([setting("h2o", "", 1.0, 10)], run)[0]["overhead"] is None


def test_texts_of_numbers():
    assert [charts.number(x) for x in (0, 1234, 0.001234, 99.95, 1e6, None)] == [
        "0", "1,230", "0.00123", "100", "1,000,000", "–"]
    assert [charts.short(x) for x in (12, 999.9, 307902, 2.5e6)] == ["12", "1K", "308K", "2.5M"]
    assert [charts.power(x) for x in (0.001, 1, 100, 1e5, 1e-5)] == ["0.001", "1", "100", "1e5", "1e-5"]


def ticks(axis, values):
    return charts._Scale(axis, values, 0, 100).ticks()


def test_axes_hold_their_values_and_have_round_ticks():
    assert [value for value, _ in ticks(charts.Axis(""), [3, 97])] == [0, 20, 40, 60, 80, 100]
    assert [text for _, text in ticks(charts.Axis(""), [0.0011])] == ["0", "0.0005", "0.001", "0.0015"]
    assert [text for _, text in ticks(charts.Axis("", log=True), [0.5, 3000])] == ["1", "10", "100", "1,000"]
    assert [text for _, text in ticks(charts.Axis("", log=True), [20, 80])] == ["20", "50"]
    assert ticks(charts.Axis(""), []) and ticks(charts.Axis("", log=True), [0, 0]) and ticks(charts.Axis(""), [0, 0])
    scale = charts._Scale(charts.Axis("", log=True), [1, 100], 0, 100)
    assert scale(10) == pytest.approx(50) and not scale.holds(0) and 0 < scale(1) < scale(100) < 100
    below = charts._Scale(charts.Axis(""), [-3, 7], 0, 100)
    assert below.low == -3 and below.high >= 7


def test_gaps_split_lines_and_areas_are_stacked():
    series = charts.Series("s", [0, 1, 2, 3], [1, None, 2, 3])
    gap = charts.Chart("t", "", charts.Axis("x"), charts.Axis("y"), [series]).svg()
    assert gap.count('class="line"') == 2 and gap.count("data-tip") == 3
    lower, upper = charts.stacked(["a", "b"], [0, 1], [[1, 2], [None, 4]], ["#000", "#fff"])
    assert (lower.y, upper.base, upper.y) == ([1, 2], [1, 2], [1, 6])
    assert upper.tips == ["b: – at 0", "b: 4 at 1"]


def test_points_that_would_hide_each_other_stand_side_by_side():
    def places(spread):
        series = [charts.Series(name, [1, 2], [5, 5], shape="circle") for name in "abc"]
        svg = charts.Chart("t", "", charts.Axis("x"), charts.Axis("y"), series, spread=spread).svg()
        return re.findall(r'translate\(([0-9.]+) ([0-9.]+)\)" class="mark"', svg)

    assert len(set(places(""))) == 2
    for spread in ("equal", "series"):
        assert len(places(spread)) == len(set(places(spread))) == 6


def profile_of(program, *more):
    command = [f"{program}-lab", "profile", "-m", "pebble", "--raw", "-p", "First Ada gets three.", "--json", "--quiet", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def profile(program):
    return profile_of(program, "-n", "40", "--temp", "0", "--ignore-eos", "--t0", "50%", "--t1", "host", "--evict", "10%",
                      "--window", "8", "--interval", "8", "--transfer-tokens", "16")


def test_the_page_of_a_profile_draws_every_figure(profile):
    page = profile_page(profile)
    check_that_it_loads_nothing(page)
    assert data_of(page) == profile
    assert len(re.findall("<figure>", page)) == 16 and "class=\"none\"" not in page
    for text in ("T0 to T1", "T1 to T0", "T3 evicted", "matrix products", "39 decode steps", "rows placed by hierarchy"):
        assert text in page, text
    assert page.count("<figcaption>") == 16
    # Charts have labelled axes, but for bars that stand under their names.
    assert page.count('rotate(-90)') == 15
    assert "ended early" not in page
    late = profile | dict(ended_early="</script>", others_share=0.5)
    assert "ended early: &lt;/script&gt;" in profile_page(late)
    assert "Other processes took 50.0 % of the processor time" in profile_page(late)


def test_words_stand_in_place_of_figures_without_data(program):
    page = profile_page(profile_of(program, "-n", "1"))
    assert page.count("There was no decode step.") == 9
    assert page.count("No tier below T0 was asked for") == 2
    for text in ("Too few tokens were generated.", "No row changed its tier in these runs."):
        assert text in page


def test_the_command_reads_a_profile_from_a_pipe(profile, tmp_path, monkeypatch, capsys):
    page = tmp_path / "profile.html"
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(profile)))
    assert report.main(["profile", "-", "--out", str(page)]) == 0
    assert page.read_text() == profile_page(profile) and str(page) in capsys.readouterr().err
    for text, message in [("no", "-: not JSON"), ("[]", "expected the object"),
                          ('{"figures": {}, "runs": []}', "no profile")]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert report.main(["profile", "-", "--out", str(tmp_path / "none.html")]) == 1
        assert message in capsys.readouterr().err and not (tmp_path / "none.html").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(profile)))
    assert report.main(["profile", "-", "--out", str(tmp_path / "no/such/folder.html")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_folders_that_the_program_wrote(program, tmp_path, capsys):
    def evaluate(out, *more):
        subprocess.run([f"{program}-lab", "eval", "--problems", "2", "--samples", "4", "--temp", "1", "--top-k", "0",
                        "--top-p", "1", "--min-p", "0", "--quiet", "--out", tmp_path / out, *more], check=True,
                       stdout=subprocess.DEVNULL)

    evaluate("plain", "-n", "20", "--policies", "full,tova", "--budgets", "1/2")
    evaluate("marked", "-n", "40", "-m", "pebble-dms", "--policies", "dms", "--window", "4")
    folders = [str(tmp_path / name) for name in ("marked", "plain")]
    out = tmp_path / "fronts"
    assert report.main(["fronts", *folders, "--out", str(out)]) == 0
    fronts = json.loads((out / "fronts.json").read_text())
    assert fronts["methods"] == ["full", "tova", "dms"]
    assert [point["name"] for point in fronts["points"]] == [
        "20-1-1", "20-2-1", "20-4-1", "20-1-2", "20-2-2", "20-4-2", "40-1-4", "40-2-4", "40-4-4"]
    lines = [json.loads(line) for line in (tmp_path / "marked/results.jsonl").read_text().splitlines()]
    reads = [line["kv_reads"] for line in lines]
    assert fronts["points"][-1]["kv_reads"] == pytest.approx(4 * sum(reads) / 8)
    assert len(fronts["margins"]) == 3 and not any(map(math.isnan, reads))
    assert capsys.readouterr().out == (out / "fronts.md").read_text()
    assert "40-4-4" in (out / "report.html").read_text()
    assert report.main(["margins", folders[1]]) == 0
    assert report.main(["eval", folders[1]]) == 0
    assert "report.html" in capsys.readouterr().err
    page = (tmp_path / "plain/report.html").read_text()
    shown = data_of(page)["settings"]
    run = read_run(folders[1])
    of_full = [votes([line for line in run.results if line["policy"] == "full" and line["problem"] == problem])
               for problem in range(2)]
    assert [np.mean(votes) for votes in zip(*of_full)] == [shown[0]["majority"], shown[0]["pass_all"]]

    def fails(code, message, *names):
        assert report.main(["fronts", *names, "--out", str(tmp_path / "none")]) == code
        assert message in capsys.readouterr().err and not (tmp_path / "none").exists()

    fails(1, "cannot read", str(tmp_path / "nowhere"))
    text = (tmp_path / "plain/results.jsonl").read_text()
    (tmp_path / "plain/results.jsonl").write_text(text[:-1])
    fails(2, "1 of 16 answers are missing; end the run by --resume", folders[1])

    def notes():
        assert report.main(["eval", folders[1]]) == 0
        said = re.findall("^note: (.*)$", capsys.readouterr().err, re.MULTILINE)
        shown = re.findall('<p class="bad">(.*?)</p>', (tmp_path / "plain/report.html").read_text())
        assert said == [f"{folders[1]}: {html.unescape(note)}" for note in shown]
        return shown

    missing = "answers are missing: the run did not end, or its files were cut; `ebb-lab eval --resume` adds them."
    assert notes() == ["The last line of results.jsonl is cut.", f"1 of 16 {missing}"]
    (tmp_path / "plain/results.jsonl").write_text("".join(text.splitlines(True)[:12]))
    assert notes()[0] == f"4 of 16 {missing}"
    (tmp_path / "plain/results.jsonl").write_text(text)
    assert notes() == []
    times = (tmp_path / "plain/times.jsonl").read_text()
    (tmp_path / "plain/times.jsonl").write_text(times[:-20])
    assert notes()[:2] == ["The last line of times.jsonl is cut.", f"1 of 16 {missing}"]
    (tmp_path / "plain/results.jsonl").write_text(text.replace('"correct":', '"was":', 1))
    fails(1, 'results.jsonl, line 1: "correct" is missing', folders[1])
    grid = json.loads((tmp_path / "plain/grid.json").read_text())
    (tmp_path / "plain/grid.json").write_text(json.dumps(grid | dict(model=5)))
    fails(1, 'grid.json: "model" is no such value', folders[1])
