"""Attention, marks, losses, the loop and the export, on pebble and on random numbers.

python3 -m unittest discover -s training/dms/tests
"""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import gguf
import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import attention  # noqa: E402
import dmc  # noqa: E402
import export  # noqa: E402
import losses  # noqa: E402
import texts  # noqa: E402
import train  # noqa: E402
from check import check  # noqa: E402
from decoder import Decoder  # noqa: E402
from marks import (HardDecisions, SoftDecisions, compression_at, fade_factor,  # noqa: E402
                   logistic_noise, move, target_share, visible_rows)
from model_marks import ADAPTER, QUERY, Marks  # noqa: E402

PEBBLE = str(HERE.parent.parent / "pebble" / "pebble.gguf")


def random_heads(*shape):
    return torch.randn(*shape, requires_grad=True)


class Attention(unittest.TestCase):
    def test_chunks_and_their_gradients_are_those_of_dense_attention(self):
        torch.manual_seed(1)
        for num_tokens, window in ((300, 16), (257, 1), (128, 200), (129, 0)):
            q, k = random_heads(2, 4, num_tokens, 16), random_heads(2, 2, num_tokens, 16)
            v = random_heads(2, 2, num_tokens, 16)
            bias = (-5 * torch.rand(2, 2, num_tokens)).requires_grad_()
            along = torch.randn(2, 4, num_tokens, 16)
            outs = [form(q, k, v, bias, window) for form in (attention.dense, attention.chunked)]
            torch.testing.assert_close(outs[1], outs[0], atol=1e-5, rtol=1e-5)
            gradients = [torch.autograd.grad(out, (q, k, v, bias), along) for out in outs]
            for ours, theirs in zip(gradients[1], gradients[0]):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)

    def test_without_bias(self):
        torch.manual_seed(2)
        q, k, v = (torch.randn(1, heads, 200, 8) for heads in (4, 2, 2))
        torch.testing.assert_close(attention.chunked(q, k, v, None, 0),
                                   attention.dense(q, k, v, None, 0), atol=1e-5, rtol=1e-5)

    def test_flex_attention_is_dense_attention(self):
        torch.manual_seed(3)
        q, k, v = (torch.randn(2, heads, 150, 16) for heads in (4, 2, 2))
        bias = -5 * torch.rand(2, 2, 150)
        torch.testing.assert_close(attention.flex(q, k, v, bias, 16),
                                   attention.dense(q, k, v, bias, 16), atol=1e-5, rtol=1e-5)

    @unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
    def test_all_forms_and_their_gradients_agree_on_a_gpu(self):
        torch.manual_seed(3)
        shapes = [(2, 9, 1024, 64), (2, 3, 1024, 64), (2, 3, 1024, 64)]
        q, k, v = (torch.randn(*shape, device="cuda", requires_grad=True) for shape in shapes)
        bias = (-5 * torch.rand(2, 3, 1024, device="cuda")).requires_grad_()
        along = torch.randn(2, 9, 1024, 64, device="cuda")
        found = {}
        for form in (attention.dense, attention.chunked, attention.flex):
            with self.subTest(form.__name__):
                out = form(q, k, v, bias, 64)
                found[form] = [out, *torch.autograd.grad(out, (q, k, v, bias), along)]
                for ours, theirs in zip(found[form], found[attention.dense]):
                    # flex takes products with 10 bits of fraction.
                    allowed = 2e-2 if form is attention.flex else 1e-4
                    self.assertLess(float((ours - theirs).norm() / theirs.norm()), allowed)

    def test_minus_infinity_hides_a_row_behind_the_window_alone(self):
        torch.manual_seed(4)
        q, k, v = (torch.randn(1, 1, 40, 8) for _ in range(3))
        bias = torch.zeros(1, 1, 40)
        bias[..., 5] = -math.inf
        out = attention.chunked(q, k, v, bias, 16)
        whole = attention.chunked(q, k, v, None, 16)
        torch.testing.assert_close(out[:, :, :22], whole[:, :, :22])
        self.assertGreater((out - whole)[:, :, 22:].abs().max(), 1e-3)
        v2 = v.clone()
        v2[:, :, 5] = 100
        torch.testing.assert_close(attention.chunked(q, k, v2, bias, 16)[:, :, 22:],
                                   out[:, :, 22:])


class Decisions(unittest.TestCase):
    def test_schedule(self):
        self.assertEqual([compression_at(step, 100, 8) for step in (0, 300, 700, 900)],
                         [1, 4, 8, 8])
        self.assertEqual(target_share(4), 0.75)
        self.assertEqual([fade_factor(step, 2000) for step in (0, 500, 2000, 3000)],
                         [1, 0.75, 0, 0])
        self.assertEqual(fade_factor(0, 0), 0)

    def test_the_logit_of_a_later_token_decides(self):
        logits = torch.tensor([[[-1.0, 2, -3, 4, 5, -6]]])
        moved, there = move(logits, 1, torch.tensor([5]))
        self.assertEqual(moved[0, 0, :4].tolist(), [2, -3, 4, 5])
        self.assertEqual(there[0, 0].tolist(), [True] * 4 + [False] * 2)
        for shift, evicted in ((0, [1, 3, 4]), (1, [0, 2, 3]), (3, [0, 1])):
            decisions = HardDecisions(Marks(window=3, shift=shift), torch.tensor([5]))
            bias = decisions(0, logits)
            self.assertEqual((bias[0, 0] == -math.inf).nonzero().flatten().tolist(), evicted)

    def test_sure_logits_without_noise_are_hard_decisions(self):
        logits = torch.where(torch.rand(2, 3, 50) > 0.5, 1000.0, -1000.0)
        lengths = torch.tensor([50, 31])
        soft = SoftDecisions(Marks(), lengths, torch.zeros(1, 2, 3, 50), 0.1)
        hard = HardDecisions(Marks(), lengths)
        soft_bias, hard_bias = soft(0, logits), hard(0, logits)
        self.assertTrue(torch.equal(soft_bias < -9000, hard_bias == -math.inf))
        self.assertEqual(float(soft_bias.max()), 0)
        expected = hard.evicted[0].float().sum((1, 2)) / (3 * (lengths - 1))
        torch.testing.assert_close(soft.shares(), expected)

    def test_shares_have_the_gradient_of_the_soft_decision(self):
        logits = torch.zeros(1, 1, 4, requires_grad=True)
        soft = SoftDecisions(Marks(), torch.tensor([4]), torch.zeros(1, 1, 1, 4), 0.5)
        soft(0, logits)
        soft.shares().sum().backward()
        # d sigmoid(x / tau) / dx = 1 / (4 tau) at 0; the first token decides on nothing.
        torch.testing.assert_close(logits.grad[0, 0], torch.tensor([0, 0.5, 0.5, 0.5]) / 3)

    def test_immediate_with_a_window_of_one_is_delayed(self):
        self.assertEqual(Marks(window=1, shift=1), Marks(window=1))

    def test_noise_is_a_function_of_seed_and_step(self):
        self.assertTrue(torch.equal(logistic_noise((9,), 1, 2), logistic_noise((9,), 1, 2)))
        self.assertFalse(torch.equal(logistic_noise((9,), 1, 2), logistic_noise((9,), 1, 3)))
        self.assertFalse(torch.equal(logistic_noise((9,), 1, 2), logistic_noise((9,), 2, 2)))
        self.assertLess(abs(float(logistic_noise((100000,), 1, 1).mean())), 0.03)

    def test_visible_rows(self):
        torch.manual_seed(5)
        evicted = torch.rand(30) > 0.4
        for window in (0, 1, 7):
            expected = [sum(q - k <= window or not evicted[k] for k in range(q + 1))
                        for q in range(30)]
            self.assertEqual(visible_rows(evicted, window).tolist(), expected)

    def test_bad_marks(self):
        for options in (dict(window=0), dict(window=4, shift=5), dict(shift=-1),
                        dict(layout="middle")):
            with self.assertRaises(ValueError):
                Marks(**options)


class Losses(unittest.TestCase):
    def test_divergence(self):
        torch.manual_seed(6)
        student, teacher = torch.randn(7, 5), torch.randn(7, 5)
        head = torch.randn(11, 5)
        p = (teacher @ head.T).double().softmax(-1)
        q = (student @ head.T).double().softmax(-1)
        forward = (p * (p.log() - q.log())).sum(-1).mean().float()
        backward = (q * (q.log() - p.log())).sum(-1).mean().float()
        torch.testing.assert_close(losses.distillation(student, head, teacher, head), forward)
        torch.testing.assert_close(losses.distillation(student, head, teacher, head, True),
                                   backward)

    def test_parts_add_up(self):
        torch.manual_seed(7)
        student, head = torch.randn(9, 5, requires_grad=True), torch.randn(11, 5)
        labels = torch.arange(9)
        whole = losses.language_model(student, head, labels)
        gradient = torch.autograd.grad(whole, student)[0]
        at_once, losses.TOKENS_AT_ONCE = losses.TOKENS_AT_ONCE, 4
        try:
            parts = losses.language_model(student, head, labels)
            torch.testing.assert_close(parts, whole)
            torch.testing.assert_close(torch.autograd.grad(parts, student)[0], gradient)
        finally:
            losses.TOKENS_AT_ONCE = at_once

    def test_texts_that_mark_more_do_not_make_up_for_others(self):
        shares = torch.tensor([0.9, 0.5])
        torch.testing.assert_close(losses.too_few_marks(shares, 0.75), torch.tensor(0.125))


class Merging(unittest.TestCase):
    def test_weights_are_those_of_the_recurrence(self):
        torch.manual_seed(8)
        merge, importance = torch.rand(60), torch.rand(60) + 0.1
        merge[0] = 0
        merge[10::11] = 0  # so that nothing reaches further back than LOOK_BACK
        x = torch.randn(60, 3)
        got = dmc.merged(x[None, None], dmc.merging_weights(merge, importance)[None, None])[0, 0]
        c, row = 0.0, torch.zeros(3)
        for i in range(60):
            past = c * merge[i]
            c = past + importance[i]
            row = (row * past + x[i] * importance[i]) / c
            torch.testing.assert_close(got[i], row, atol=1e-5, rtol=1e-5)

    def test_without_merges_it_is_the_model_itself(self):
        plain = Decoder.load(PEBBLE)
        model = dmc.MergingDecoder(plain.shape, plain.weights).with_merges()
        tokens = torch.arange(40)[None] + 260

        def never(layer, logits):
            return torch.zeros_like(logits), torch.zeros_like(logits)

        torch.testing.assert_close(model.logits(tokens, never), model.logits(tokens), atol=1e-3,
                                   rtol=1e-3)

    def test_merging_everything_leaves_one_row(self):
        decisions = dmc.HardMerges(torch.tensor([20]))
        decisions(0, torch.full((1, 1, 20), 3.0))
        self.assertEqual(visible_rows(decisions.evicted[0], 0)[0, 0].tolist(),
                         [1] * 20)


class Retrofit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        ids = np.random.default_rng(1).integers(260, 500, 4096).astype(np.uint16)
        ids.tofile(self.folder / "ids.u16")

    def run_training(self, name, *options):
        args = train.arguments(["--model", PEBBLE, "--out", str(self.folder / name), "--tokens",
                                str(self.folder / "ids.u16"), "--length", "48", "--batch-tokens",
                                "96", "--check-every", "7", *map(str, options)])
        args.out.mkdir(exist_ok=True)
        with contextlib.redirect_stdout(io.StringIO()):
            train.Trainer(args).run()
        return self.folder / name

    def weights(self, folder):
        return torch.load(folder / "model.pt", weights_only=False)["weights"]

    def test_a_run_that_was_stopped_gives_the_same_bits(self):
        options = ("--cr", 3, "--steps-per-cr", 20, "--settle", 20)
        whole = self.run_training("whole", *options)
        self.run_training("parts", *options, "--stop-after", 13)
        self.run_training("parts", *options, "--stop-after", 41)
        parts = self.run_training("parts", *options)
        for name, values in self.weights(whole).items():
            self.assertTrue(torch.equal(values, self.weights(parts)[name]), name)

    def test_a_stop_while_it_is_checked_or_saved_loses_no_line(self):
        for stopped in ("_report", "_save"):
            with self.subTest(stopped):
                options = (stopped, "--cr", 2, "--steps-per-cr", 14)
                with mock.patch.object(train.Trainer, stopped, side_effect=KeyboardInterrupt), \
                        self.assertRaises(KeyboardInterrupt):
                    self.run_training(*options)
                lines = (self.run_training(*options) / "curve.jsonl").read_text().splitlines()
                self.assertEqual({json.loads(line)["step"] for line in lines}, {7, 14})

    def test_other_options_do_not_go_on(self):
        self.run_training("run", "--cr", 2, "--steps-per-cr", 4, "--stop-after", 2)
        with self.assertRaisesRegex(ValueError, "--window 16, not 8"):
            self.run_training("run", "--cr", 2, "--steps-per-cr", 4, "--window", 8)

    def test_every_kind_of_run(self):
        for name, options in (
                ("fade", ("--fade", 3)), ("immediate", ("--immediate", "--window", 4)),
                ("adapter", ("--layout", "adapter", "--train", "adapter")),
                ("queries", ("--train", "queries")), ("lm", ("--loss", "lm")),
                ("reverse", ("--kl", "reverse", "--aux", 1)), ("dmc", ("--method", "dmc"))):
            with self.subTest(name):
                folder = self.run_training(name, "--cr", 2, "--steps-per-cr", 4, "--settle", 3,
                                           *options)
                before = Decoder.load(PEBBLE).weights
                after = self.weights(folder)
                moved = {n for n in after if n not in before
                         or not torch.equal(after[n], before[n])}
                if name == "adapter":
                    self.assertEqual(len(moved), 8)
                    self.assertTrue(all("attn_dms_alpha" in n for n in moved))
                elif name == "queries":
                    self.assertEqual(moved, {f"blk.{i}.attn_q.weight" for i in range(4)})
                else:
                    self.assertGreater(len(moved), 30)
                lines = (folder / "curve.jsonl").read_text().splitlines()
                self.assertTrue(math.isfinite(json.loads(lines[-1])["loss"]))

    def test_an_adapter_and_slower_weights_of_the_models_own(self):
        np.arange(260, 356, dtype=np.uint16).tofile(self.folder / "held-out.u16")
        folder = self.run_training("both", "--layout", "adapter", "--lr", 1e-3, "--base-lr", 1e-5, "--cr", 2,
                                   "--steps-per-cr", 2, "--held-out", self.folder / "held-out.u16")
        before, after = Decoder.load(PEBBLE).weights, self.weights(folder)
        moved = max(float((after[n] - w).abs().max()) for n, w in before.items())
        self.assertTrue(0 < moved < 3e-5, moved)
        self.assertGreater(float(after["blk.0.attn_dms_alpha.weight"].abs().max()), 1e-3)
        figures = json.loads((folder / "curve.jsonl").read_text().splitlines()[-1])["check"]
        self.assertGreater(figures["kl"], 0)
        self.assertLess(figures["compression_by_peak"], 2)

    def test_settling_from_a_checkpoint(self):
        self.run_training("main", "--cr", 3, "--steps-per-cr", 4)
        folder = self.run_training("settled", "--cr", 2, "--steps-per-cr", 4, "--settle", 3,
                                   "--start", str(self.folder / "main" / "cr-2.pt"))
        line = json.loads((folder / "curve.jsonl").read_text().splitlines()[-1])
        self.assertEqual((line["step"], line["cr"]), (7, 2))
        start = ("--settle", 3, "--start", str(self.folder / "main" / "cr-2.pt"))
        with self.assertRaisesRegex(ValueError, "--window 16, not 8"):
            self.run_training("other", "--cr", 2, "--steps-per-cr", 4, "--window", 8, *start)
        with self.assertRaisesRegex(ValueError, "stands at 2"):
            self.run_training("further", "--cr", 3, "--steps-per-cr", 4, *start)

    def test_bad_options(self):
        for options, message in (
                (("--train", "adapter"), "expected --layout adapter"),
                (("--batch-tokens", 1 << 20), "stretches of 48"),
                (("--method", "dmc", "--fade", 3), "expected no --layout and no --fade"),
                (("--window", 48), "less than --length 48"), (("--cr", 0.5), "at least 1"),
                (("--tau", 0), "more than 0"), (("--base-lr", 1e-5), "--layout adapter --train all"), (("--window", 0), "at least 1"),
                (("--method", "dmc", "--immediate"), "no --immediate"),
                (("--layout", "adapter", "--fade", 2), "borrows no channel"),
                (("--problems", "x"), "one of them")):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                self.run_training("bad", *options)

    def test_an_adapter_at_zero_is_the_model_itself(self):
        plain = Decoder.load(PEBBLE)
        student = plain.with_marks(Marks(layout=ADAPTER))
        tokens = torch.arange(300, 360)[None]
        decide = student.hard_decisions(torch.tensor([60]))
        self.assertTrue(torch.equal(student.logits(tokens, decide), plain.logits(tokens)))

    def test_export_keeps_what_training_left(self):
        folder = self.run_training("queries", "--train", "queries", "--cr", 2, "--steps-per-cr", 3)
        out = self.folder / "out.gguf"
        checkpoint = torch.load(folder / "model.pt", weights_only=False)
        changed = export.export(PEBBLE, checkpoint, out, export.TYPES["f32"], name="tried")
        self.assertEqual(sorted(changed), [f"blk.{i}.attn_q.weight" for i in range(4)])
        before, after = gguf.GGUFReader(PEBBLE), gguf.GGUFReader(out)
        old = {t.name: t for t in before.tensors}
        for tensor in after.tensors:
            if tensor.name not in changed:
                self.assertEqual(tensor.data.tobytes(), old[tensor.name].data.tobytes())
                self.assertEqual(tensor.tensor_type, old[tensor.name].tensor_type)
        for name, field in before.fields.items():
            if not name.startswith("GGUF.") and name != "general.name":
                self.assertEqual(after.fields[name].contents(), field.contents(), name)
        again = Decoder.load(out)
        self.assertEqual(again.marks, Marks())
        for name, values in checkpoint["weights"].items():
            self.assertTrue(torch.equal(again.weights[name], values), name)
        self.assertEqual(after.fields["llama.attention.dms.cr"].contents(), 2)
        with self.assertRaisesRegex(ValueError, "layout is query_last_channel"):
            export.export(PEBBLE, checkpoint, out, export.TYPES["f32"], adapter=True)
        with self.assertRaisesRegex(ValueError, "marks rows already"):
            export.export(out, checkpoint, self.folder / "again.gguf", export.TYPES["f32"])
        with self.assertRaisesRegex(ValueError, "rows merge"):
            export.export(PEBBLE, {**checkpoint, "marks": None}, out, export.TYPES["f32"])
        smaller = {n: w[:1] for n, w in checkpoint["weights"].items()}
        with self.assertRaisesRegex(ValueError, "than the model that was trained"):
            export.export(PEBBLE, {**checkpoint, "weights": smaller}, out, export.TYPES["f32"])

    def test_export_of_an_adapter_alone(self):
        folder = self.run_training("adapter", "--layout", "adapter", "--train", "adapter", "--cr",
                                   2, "--steps-per-cr", 3)
        out = self.folder / "adapter.gguf"
        checkpoint = torch.load(folder / "model.pt", weights_only=False)
        export.export(PEBBLE, checkpoint, out, export.TYPES["f32"], adapter=True)
        reader = gguf.GGUFReader(out)
        self.assertEqual(reader.fields["general.type"].contents(), "adapter")
        self.assertEqual(len(reader.tensors), 8)


class Texts(unittest.TestCase):
    def test_equations_hold(self):
        for seed in range(200):
            text, solution = texts.equation(seed)
            name = text[len("Solve for ")]
            left, right = text.split(": ")[1].split(" = ")

            def value(side):
                head, *rest = side.split(" ")
                factor = head.removesuffix(name)
                number = {"": 1, "-": -1}.get(factor) or int(factor)
                constant = int("".join(rest)) if rest else 0
                return number * solution + constant

            self.assertEqual(value(left), value(right), text)
        self.assertEqual(texts.equation(3), texts.equation(3))

    def test_a_token_file_is_read_whole_before_it_repeats(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ids.u16"
            np.arange(60, dtype=np.uint16).tofile(path)
            stream = texts.TokenFile(path, 1, 20, 10)
            seen = torch.cat([stream.next().tokens for _ in range(3)]).flatten().sort().values
            self.assertEqual(seen.tolist(), list(range(60)))
            state = stream.state()
            following = stream.next().tokens
            again = texts.TokenFile(path, 1, 20, 10, state).next().tokens
            self.assertTrue(torch.equal(following, again))


class Checks(unittest.TestCase):
    def test_without_marks_nothing_is_compressed(self):
        plain = Decoder.load(PEBBLE)
        student = plain.with_marks(Marks(layout=QUERY))
        student.clear_mark_rows()
        tokens = torch.arange(260, 340)[None]
        batch = texts.Batch(tokens, torch.tensor([80]), torch.zeros(1, 80, dtype=torch.bool))
        figures = check(student, [batch])
        self.assertEqual(figures["compression_by_peak"], 1)
        self.assertEqual(figures["marked"], 0)
        self.assertNotIn("marked", check(plain, [batch]))


if __name__ == "__main__":
    unittest.main()
