"""Settings that differ have two rows everywhere: in the grid, results, summaries, pictures, resumed and merged runs."""

import functools
import json

import numpy as np
import pytest

import ebb
from ebb import plots, report
from ebb.identity import identity

pandas = pytest.importorskip("pandas")
pytest.importorskip("scipy")

USUAL = {"window": 16, "interval": 16}
TIERS = {"t0": "50%", "t1": "host", **USUAL}


class Power(ebb.Scorer):
    needs = ebb.Needs(mass="sum")

    def __init__(self, power=1.0):
        self.power = power

    def observe(self, group, positions, mass, keys, values):
        if mass is not None:
            self[group] += mass ** self.power


def made(power):
    class Made(ebb.Scorer):
        needs = ebb.Needs(mass="sum")

        def observe(self, group, positions, mass, keys, values):
            if mass is not None:
                self[group] += mass * power

    return Made


class First(ebb.Placement):
    def place(self, facts):
        return [] if len(facts.positions) < 200 else [150]


class Second(ebb.Placement):
    def place(self, facts):
        return [] if len(facts.positions) < 200 else [160]


def of_policies(one, other, **more):
    return dict(policies=[one]) | more, dict(policies=[other]) | more


def of_settings(one, other, **more):
    return dict(settings=[one]) | more, dict(settings=[other]) | more


BUDGET = dict(budgets=["25%"], settings=[USUAL])
PAIRS = [
    of_settings({"kv_type": "f16"}, {"kv_type": "f32"}),
    of_settings({"kv_type": "q4"}, {"kv_type": "q3"}),
    of_settings({}, {"kv_type": "q8"}),
    of_settings({}, {"prefill_chunk": 64}),
    of_settings({}, {"context": 1500}),
    of_settings({}, {"kv_cap": "64MiB"}),
    of_settings(TIERS, TIERS | {"t0": "60%"}),
    of_settings(TIERS, TIERS | {"t1": "none"}),
    of_settings({"t0": "50%", "t1": "host"}, {"t0": "50%", "t1": "host", "t1_read": "select:mass=0.5"}),
    of_settings({"t1_read": "select:mass=0.5"}, {"t1_read": "select:mass=0.9"}),
    of_settings(TIERS | {"t2": "20%"}, TIERS | {"t2": "30%"}),
    of_settings(TIERS | {"t2": "20%:int8"}, TIERS | {"t2": "20%:int8_naive"}),
    of_settings(TIERS | {"evict": "10%"}, TIERS | {"evict": "20%"}),
    of_settings(TIERS | {"evict": "10%"}, TIERS | {"evict": "10%", "evict_of": "alive"}),
    of_settings(TIERS | {"evict": "10%"}, TIERS | {"evict": "10%", "window": 32}),
    of_settings(TIERS | {"evict": "10%"}, TIERS | {"evict": "10%", "scorer": "h2o"}),
    of_settings(TIERS | {"evict": "10%"}, TIERS | {"evict": "10%", "scorer": Power}),
    of_settings({"lossless": True}, {"lossless": True, "verify": "fast"}, policies=["streaming"]),
    of_settings({"lossless": True}, {"lossless": True, "draft_max": 4}, policies=["streaming"]),
    of_policies("h2o:heavy=32,recent=32", "h2o:heavy=32,recent=64"),
    of_policies(made(1.0), made(2.0), **BUDGET),
    of_policies(functools.partial(Power, 1.0), functools.partial(Power, 2.0), **BUDGET),
    of_policies(lambda: Power(1.0), lambda: Power(2.0), **BUDGET),
    of_policies(("one", Power), ("other", Power), **BUDGET),
    of_settings({"placement": First}, {"placement": Second}),
]


def grid_of(one, other):
    """The arguments of `ebb.eval()` for the first setting twice, and the other."""
    key = next(key for key in one if one[key] != other[key])
    return one | {key: [*one[key], *one[key], *other[key]]}


@pytest.mark.parametrize("one, other", PAIRS)
def test_two_settings_that_differ_in_one_field_are_two(one, other, model, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    usual = dict(problems=2, max_tokens=130, workers=2)
    answers = ebb.eval(model, out=tmp_path / "run", **usual, **grid_of(one, other))
    assert answers.setting.nunique() == 2 and len(answers) == 4
    assert len(json.loads((tmp_path / "run" / "grid.json").read_text())["settings"]) == 2
    summary = ebb.summarize(answers)
    assert summary.problems.tolist() == [2, 2] and summary.setting.nunique() == 2
    legend = plots.accuracy(summary).get_legend()
    matplotlib.pyplot.close("all")
    # A budget or an evicted share is a place on a line; all else has a line of its own.
    shares = {policy_tiers for policy_tiers in zip(summary.budget, summary.tiers)}
    assert len(legend.get_texts()) == 2 or len(shares) == 2
    assert report.main(["summary", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "summary.md").read_text().count("| 0/2 |") + (
        tmp_path / "run" / "summary.md").read_text().count("/2 |") >= 2
    # A run of one is not resumed as the other, and shards of both are not merged.
    for name, of, shard in (("a", one, "0/2"), ("b", other, "1/2")):
        ebb.eval(model, out=tmp_path / name, shard=shard, **usual, **of)
    with pytest.raises(ebb.InvalidArgument, match='"settings" differs'):
        ebb.eval(model, out=tmp_path / "a", shard="0/2", resume=True, **usual, **other)
    assert len(ebb.eval(model, out=tmp_path / "a", shard="0/2", resume=True, **usual, **one)) == 1
    assert report.main(["merge", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "m")]) == 0
    merged = json.loads((tmp_path / "m" / "summary.json").read_text())
    assert [record["n"] for record in merged] == [1, 1]


def test_there_are_twenty_pairs():
    assert len(PAIRS) >= 20


def test_identity_follows_code_and_values():
    def code(thing):
        return identity(thing, "policy").code

    assert code(made(1.0)) == code(made(1.0)) != code(made(2.0))
    assert code(functools.partial(Power, 1)) != code(functools.partial(Power, 2))
    assert code(lambda: Power(1)) != code(lambda: Power(2))
    assert code(made(np.arange(3.0))) != code(made(np.arange(4.0)))
    assert code(Power) == code(Power) != code(First)
    assert identity(functools.partial(Power, power=2), "policy").name == "Power(power=2)"
    held = open(__file__)
    with held, pytest.raises(ebb.InvalidArgument, match="policy: .*TextIOWrapper.*name it"):
        identity(lambda: held, "policy")
    assert identity(("mine", lambda: held), "policy") == ("mine", "mine")
    with pytest.raises(ebb.InvalidArgument, match="name, callable"):
        identity(("mine", 3), "policy")


def test_a_name_stands_for_one_policy(model):
    with pytest.raises(ebb.InvalidArgument, match='two different scorers are named "mine"'):
        ebb.eval(model, problems=1, policies=[("mine", Power), ("mine", made(1.0))], **BUDGET)


def test_tiers_that_evict_are_called_by_their_scorer(model):
    answers = ebb.eval(model, problems=1, max_tokens=100, settings=[{}, {"t0": "50%"}, {"t0": "50%", "evict": "20%"}])
    assert answers.policy.tolist() == ["full", "full", "lag_kv"]
