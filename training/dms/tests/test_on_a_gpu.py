"""Experiments in parts: what is made once, what is left out, and what comes back from another machine."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import results_page  # noqa: E402

loader = importlib.machinery.SourceFileLoader("on_a_gpu", str(HERE.parent / "on_a_gpu"))
on_a_gpu = importlib.util.module_from_spec(importlib.util.spec_from_loader("on_a_gpu", loader))
loader.exec_module(on_a_gpu)
experiments = on_a_gpu.experiments


def made(bench, name):
    """A part that leaves a file."""
    path = bench.out / name
    with bench.making(name, path) as missing:
        if missing:
            if name == "bad":
                raise ValueError("a bad one")
            if name == "long":
                time.sleep(60)
            path.write_text("1")
    return dict(seed=len(name), variant=name)


def gathered(bench):
    figures = []
    for _, name in parts(bench):
        found = bench.part(made, name)
        if found is not None:
            figures.append(found)
            yield figures


def parts(bench):
    return [(made, name) for name in ("a", "bad", "long", "ccc")]


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        experiments.EXPERIMENTS["T"], experiments.PARTS["T"] = gathered, parts
        self.addCleanup(experiments.EXPERIMENTS.pop, "T")
        self.addCleanup(experiments.PARTS.pop, "T")

    def run_program(self, *options):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), self.assertRaises(SystemExit) as end:
            on_a_gpu.main([*map(str, options)])
        return end.exception.code, said.getvalue()

    def test_figures_of_what_ended_in_time(self):
        code, said = self.run_program("T", "--out", self.folder / "out", "--minutes", 0.03, "--pack",
                                      self.folder / "all.tgz")
        self.assertEqual(code, 1)
        self.assertIn("T-made-bad failed", said)
        self.assertIn("1 parts not done T-made-long", said)
        figures = json.loads((self.folder / "out/figures/T.json").read_text())
        self.assertEqual([f["variant"] for f in figures], ["a", "ccc"])
        # What another machine made is not made again.
        out = self.folder / "here"
        on_a_gpu.unpack(self.folder / "all.tgz", out)
        self.assertEqual(json.loads((out / "figures/T.json").read_text()), figures)
        self.assertIn("a bad one", (out / "logs/T-made-bad.log").read_text())

    def test_what_is_missing_is_left_out_or_made(self):
        gathering = experiments.Bench(self.folder / "out", make=False)
        self.assertIsNone(gathering.part(made, "a"))
        self.assertEqual(experiments.Bench(self.folder / "out").part(made, "a")["variant"], "a")
        self.assertEqual(gathering.part(made, "a")["variant"], "a")


    def test_the_last_of_a_steps_lines_counts(self):
        bench = experiments.Bench(self.folder / "out")
        (bench.out / "run").mkdir()
        (bench.out / "run/curve.jsonl").write_text('{"step": 7, "loss": 1}\n{"step": 7, "loss": 2}\n'
                                                   '{"step": 14, "loss": 3}\n{"step": 14, "loss": 4}\n')
        self.assertEqual([line["loss"] for line in bench.curve("run")], [2, 4])

    def test_only_a_policy_that_refuses_its_budget_is_left_out(self):
        bench = experiments.Bench(self.folder / "out")
        (bench.out / "eval").mkdir()
        summary = dict(peak_tokens=99.5)

        def evaluate(name, model, *_, **__):
            if model in experiments.SHIPPED.values():
                return [summary], {}
            raise subprocess.CalledProcessError(code, "ebb")

        bench.evaluate = evaluate
        code = 1
        with self.assertRaises(subprocess.CalledProcessError):
            experiments.policy_at_rows(bench, 8, "h2o")
        code = 2
        self.assertEqual(experiments.policy_at_rows(bench, 8, "h2o"), dict(accuracy=None))
        code = 1  # It is not asked again.
        self.assertEqual(experiments.policy_at_rows(bench, 8, "h2o"), dict(accuracy=None))


class Figures(unittest.TestCase):
    def test_new_ones_take_the_place_of_those_of_the_same_run(self):
        old = [dict(seed=1, variant="base", loss=1), dict(seed=2, variant="base", loss=2)]
        new = [dict(seed=3, variant="base", loss=5), dict(seed=1, variant="base", loss=4)]
        self.assertEqual([(f["seed"], f["loss"]) for f in experiments.merged(old, new)],
                         [(1, 4), (2, 2), (3, 5)])
        self.assertEqual(experiments.merged({"4": 1, "8": 1}, {8: 2}), {"4": 1, "8": 2})

    def test_settings_runs_and_texts_stay_beside_new_ones(self):
        old = {"4": dict(budget=199, settings=dict(dms=1, h2o=2)), "8": dict(budget=100, settings=dict(dms=3)),
               "quest": [1, 2]}
        new = {4: dict(budget=199, settings=dict(h2o=4, tova=None)), "quest": [5]}
        self.assertEqual(experiments.merged(old, new), {
            "4": dict(budget=199, settings=dict(dms=1, h2o=4, tova=None)), "8": old["8"], "quest": [5]})
        # Settings of another budget are no part of the same table.
        new = {4: dict(budget=201, settings=dict(dms=6))}
        self.assertEqual(experiments.merged(old, new)["4"], new[4])
        self.assertEqual(experiments.merged(dict(tokens=1, settings=dict(dms=1, h2o=2)),
                                            dict(tokens=3, settings=dict(dms=4))),
                         dict(tokens=3, settings=dict(dms=4, h2o=2)))
        old = dict(runs=[dict(run="a", cr=2, kl=1), dict(run="a", cr=4, kl=2)],
                   texts=[dict(text="prose", cr=2, setting="h2o", kl=3)])
        new = dict(runs=[dict(run="a", cr=4, kl=4), dict(run="b", cr=4, kl=5)],
                   texts=[dict(text="code", cr=2, setting="h2o", kl=6)])
        merged = experiments.merged(old, new)
        self.assertEqual([(f["run"], f["cr"], f["kl"]) for f in merged["runs"]],
                         [("a", 2, 1), ("a", 4, 4), ("b", 4, 5)])
        self.assertEqual([(f["text"], f["kl"]) for f in merged["texts"]], [("prose", 3), ("code", 6)])
        # A list that has no such name is one thing.
        whole = dict(short=dict(settings=[dict(n=1)], by_length=dict(above=[1, 2])))
        self.assertEqual(experiments.merged(dict(short=dict(settings=[1, 2], by_length={})), whole), whole)

    def test_a_page_of_parts_of_figures(self):
        check = dict(kl=0.1, top1=0.9, perplexity=9, perplexity_full=8, compression_by_peak=2,
                     compression_by_reads=2)
        fidelity = dict(mean_kl=0.1, top1=0.9, kv_bytes=1 << 20, intervals=dict(mean_kl=[0.05, 0.2]))
        summary = dict(accuracy=0.5, ci_low=0.4, ci_high=0.6, peak_tokens=200, kv_reads=1e5, n=200, correct=100,
                       budget="6%")
        way = dict(accuracy=0.5, peak_tokens=200)
        figures = {
            "C": {"8": dict(budget=100, settings=dict(dms=summary, h2o=None)), "quest": [summary]},
            "D": [dict(seed=2, window=16, cr=2, only_delayed=3, only_immediate=1, delayed=way, immediate=way)],
            "H": {"short": dict(settings=[summary], by_length={"to 768": [1, 2]})},
            "L": dict(runs=[dict(run="adapter", cr=2, tokens=1e6, check=check)],
                      texts=[dict(text="prose", cr=2, setting="`h2o`", budget="40%", **fidelity)])}
        page = results_page.page(figures, "")
        for part in ("takes no rows", "| 16 | 2 | 50.0 (50.0)", "| 3 : 1 |", "1/2 (50.0 %) | - | -", "| 2 | `h2o` | 40% | 1.00"):
            self.assertIn(part, page)


if __name__ == "__main__":
    unittest.main()
