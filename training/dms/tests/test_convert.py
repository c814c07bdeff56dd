"""convert.py on random checkpoints that are laid out as the published ones.

python3 -m unittest discover -s training/dms/tests
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import convert  # noqa: E402
import vocabulary  # noqa: E402
from checkpoints import (CONTEXT, FF_WIDTH, HEAD_SIZE, KV_HEADS, LAYERS, LLAMA,  # noqa: E402
                         NUM_WORDS, OPTIMIZER, Q_HEADS, QWEN, RELEASED, TRAINING_LOG, WIDTH, Folder,
                         byte_texts, tensors_of, tokenizer_json, write_shard)
from shards import BadCheckpoint  # noqa: E402


class Written:
    """A file read back."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items()}
        self.order = [tensor.name for tensor in reader.tensors]
        self.types = {tensor.name: tensor.tensor_type for tensor in reader.tensors}
        self.tensors = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.tensors[tensor.name] = values.reshape([int(n) for n in reversed(tensor.shape)])

    def marks(self):
        prefix = f"{self.keys['general.architecture']}.attention.dms."
        return {name.removeprefix(prefix): value for name, value in self.keys.items()
                if name.startswith(prefix)}


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.dms_proj_alpha": "attn_dms_alpha",
         "self_attn.dms_proj_alpha_norm": "attn_dms_alpha_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_in_file(name):
    stem, kind = name.rsplit(".", 1)
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def pairs_as_neighbours(values):
    """Llama's rows of q or k in GGUF: of a head's channel i, then of i + half, and so on."""
    rows = [head * HEAD_SIZE + i + half for head in range(len(values) // HEAD_SIZE)
            for i in range(HEAD_SIZE // 2) for half in (0, HEAD_SIZE // 2)]
    return values[rows]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "model.gguf"

    def checkpoint(self, config, **others):
        return Folder(self.folder / "run" / "final", config, **others)

    def convert(self, checkpoint, file_type="f32", **options):
        convert.convert(checkpoint.path, self.out, file_type, **options)
        return Written(self.out)

    def assert_refused(self, message, checkpoint, **options):
        with self.assertRaisesRegex(BadCheckpoint, message):
            convert.convert(checkpoint.path, self.out, "f32", **options)
        left = [path.name for path in self.folder.iterdir()]
        self.assertEqual([name for name in left if "gguf" in name], [])


class Layouts(Case):
    def assert_tensors(self, written, checkpoint, and_more=()):
        expected = {name_in_file(name): values for name, values in checkpoint.tensors.items()}
        self.assertEqual(set(written.tensors), {*expected, *and_more})
        for name, values in expected.items():
            if (written.keys["general.architecture"] == "llama"
                    and name.rsplit(".", 2)[1] in ("attn_q", "attn_k")):
                values = pairs_as_neighbours(values)
            np.testing.assert_array_equal(written.tensors[name], values, name)

    def assert_model_keys(self, written, family, **others):
        keys = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS,
                "feed_forward_length": FF_WIDTH, "attention.head_count": Q_HEADS,
                "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_SIZE,
                "attention.value_length": HEAD_SIZE, "rope.dimension_count": HEAD_SIZE,
                "vocab_size": NUM_WORDS, **others}
        self.assertEqual(written.keys["general.architecture"], family)
        for name, value in keys.items():
            self.assertEqual(written.keys[f"{family}.{name}"], value, name)
        epsilon = written.keys[f"{family}.attention.layer_norm_rms_epsilon"]
        self.assertAlmostEqual(epsilon, 1e-6, delta=1e-12)

    def test_the_released_qwen3_keeps_its_logits_in_the_queries(self):
        checkpoint = self.checkpoint(RELEASED)
        written = self.convert(checkpoint)
        self.assert_tensors(written, checkpoint)
        self.assert_model_keys(written, "qwen3", **{"rope.freq_base": 1000000.0})
        self.assertEqual(written.marks(),
                         {"layout": "query_last_channel", "window": 512, "alpha_scale": 100.0,
                          "alpha_offset": 5.0, "shift": 1, "cr": 8.0})
        self.assertEqual(written.keys["general.type"], "model")
        self.assertEqual(written.keys["general.name"], "final")
        self.assertFalse([name for name in written.keys if "rope.scaling" in name])
        # Matrices that ebb multiplies as one stand together.
        at = written.order.index("blk.0.attn_q.weight")
        self.assertEqual(written.order[at:at + 3],
                         [f"blk.0.attn_{part}.weight" for part in "qkv"])

    def test_model_optimizer_writes_an_adapter(self):
        checkpoint = self.checkpoint(OPTIMIZER)
        written = self.convert(checkpoint)
        self.assert_tensors(written, checkpoint)
        self.assertEqual(written.tensors["blk.1.attn_dms_alpha.weight"].shape, (KV_HEADS, WIDTH))
        self.assertEqual(written.tensors["blk.1.attn_dms_alpha_norm.weight"].shape, (WIDTH,))
        # dms_cr is its class's default, not what it was trained for.
        self.assertEqual(written.marks(), {"layout": "adapter", "window": 384, "alpha_scale": 100.0,
                                           "alpha_offset": 5.0, "shift": 1})
        self.assertEqual(self.convert(checkpoint, compression=16).marks()["cr"], 16)

    def test_fast_dms_lets_the_token_decide_on_its_own_row(self):
        checkpoint = self.checkpoint(LLAMA)
        (checkpoint.path.parent / "training_log.json").write_text(json.dumps(TRAINING_LOG))
        written = self.convert(checkpoint)
        self.assert_tensors(written, checkpoint, and_more=["rope_freqs.weight"])
        self.assert_model_keys(written, "llama", **{"rope.freq_base": 500000.0})
        self.assertEqual(written.marks(),
                         {"layout": "query_last_channel", "window": 256, "alpha_scale": 100.0,
                          "alpha_offset": 5.0, "shift": 0, "cr": 4.0})
        # The channel of the logits stays the last of its head.
        theirs = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"]
        np.testing.assert_array_equal(written.tensors["blk.0.attn_q.weight"][HEAD_SIZE - 1],
                                      theirs[HEAD_SIZE - 1])

    def test_a_checkpoint_on_the_way_has_not_the_compression_of_the_end(self):
        checkpoint = Folder(self.folder / "run" / "checkpoint-cr2-step2200", LLAMA)
        (checkpoint.path.parent / "training_log.json").write_text(json.dumps(TRAINING_LOG))
        marks = self.convert(checkpoint).marks()
        self.assertEqual((marks["window"], marks.get("cr")), (256, None))
        self.assertEqual(self.convert(checkpoint, compression=2.5).marks()["cr"], 2.5)

    def test_fast_dms_metadata_beside_the_weights(self):
        checkpoint = self.checkpoint(QWEN)
        checkpoint.write("dms_metadata.json", {"window_size": 128, "alpha_scale": 50.0,
                                               "alpha_offset": 2.0, "target_cr": None})
        self.assertEqual(self.convert(checkpoint).marks(),
                         {"layout": "query_last_channel", "window": 128, "alpha_scale": 50.0,
                          "alpha_offset": 2.0, "shift": 0})

    def test_where_both_speak_the_user_says_who_trained(self):
        checkpoint = self.checkpoint(RELEASED)
        checkpoint.write("dms_metadata.json", TRAINING_LOG)
        self.assert_refused("both .*config.json and .*dms_metadata.json speak of DMS", checkpoint)
        marks = self.convert(checkpoint, shift=1).marks()
        self.assertEqual((marks["shift"], marks["window"], marks["cr"]), (1, 512, 8))
        marks = self.convert(checkpoint, shift=0).marks()
        self.assertEqual((marks["shift"], marks["window"], marks["cr"]), (0, 256, 4))

    def test_nvidias_folder_has_no_business_with_a_neighbours_log(self):
        checkpoint = self.checkpoint(RELEASED)
        (checkpoint.path.parent / "training_log.json").write_text(json.dumps(TRAINING_LOG))
        self.assertEqual(self.convert(checkpoint).marks()["window"], 512)

    def test_one_decision_for_a_layer_becomes_one_for_each_head(self):
        checkpoint = self.checkpoint({**OPTIMIZER, "dms_alpha_per": "layer"})
        written = self.convert(checkpoint)
        theirs = checkpoint.tensors["model.layers.1.self_attn.dms_proj_alpha.weight"]
        for row in written.tensors["blk.1.attn_dms_alpha.weight"]:
            np.testing.assert_array_equal(row, theirs[0])

    def test_qwen2_has_biases(self):
        checkpoint = self.checkpoint({**RELEASED, "model_type": "qwen2"})
        self.assert_tensors(self.convert(checkpoint), checkpoint)

    def test_biases_of_llama_move_with_their_rows(self):
        config = {**RELEASED, "model_type": "llama", "attention_bias": True}
        checkpoint = self.checkpoint(config)
        self.assert_tensors(self.convert(checkpoint), checkpoint)

    def test_one_file_of_any_float_type_is_read(self):
        for dtype in ("F32", "F16", "BF16"):
            checkpoint = Folder(self.folder / dtype, RELEASED)
            for path in checkpoint.path.glob("model*"):
                path.unlink()
            write_shard(checkpoint.path / "model.safetensors", checkpoint.tensors, dtype)
            self.assert_tensors(self.convert(checkpoint), checkpoint)

    def test_a_tied_output_and_old_tables_of_rope_are_left_out(self):
        config = {**RELEASED, "tie_word_embeddings": True}
        tensors = tensors_of(config)
        more = {"lm_head.weight": tensors["model.embed_tokens.weight"],
                "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(HEAD_SIZE // 2)}
        checkpoint = self.checkpoint(config, tensors=tensors | more)
        checkpoint.tensors = tensors
        self.assert_tensors(self.convert(checkpoint), checkpoint)


class Rope(Case):
    def test_linear_and_yarn_become_keys(self):
        for number, (scaling, expected) in enumerate([
                ({"type": "linear", "factor": 2.0}, {"type": "linear", "factor": 2.0}),
                ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
                 {"type": "yarn", "factor": 4.0, "original_context_length": 64})]):
            checkpoint = Folder(self.folder / str(number), {**RELEASED, "rope_scaling": scaling})
            keys = self.convert(checkpoint).keys
            prefix = "qwen3.rope.scaling."
            self.assertEqual({name.removeprefix(prefix): value for name, value in keys.items()
                              if name.startswith(prefix)}, expected)

    def test_transformers_5_has_base_and_scaling_in_one_place(self):
        config = {**RELEASED, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
        del config["rope_scaling"], config["rope_theta"]
        keys = self.convert(self.checkpoint(config)).keys
        self.assertEqual(keys["qwen3.rope.freq_base"], 5000.0)

    def test_llama_3_divides_slow_frequencies(self):
        checkpoint = self.checkpoint({**LLAMA, "dms_window_size": 16, "dms_alpha_scale": 100,
                                      "dms_alpha_offset": 5})
        divisors = self.convert(checkpoint).tensors["rope_freqs.weight"]
        # Turns in 64 tokens: 10.2 at the first frequency, 1.98 at the second, then less than 1.
        turns = 64 / (2 * np.pi) * 500000.0 ** -(np.arange(8) / 8)
        blend = (turns[1] - 1) / 3
        self.assertEqual(divisors.shape, (8,))
        np.testing.assert_allclose(divisors[:2], [1, 1 / (blend + (1 - blend) / 32)], rtol=1e-6)
        np.testing.assert_array_equal(divisors[2:], 32)

    def test_other_scaling_is_refused(self):
        for number, (config, message) in enumerate([
                ({**RELEASED, "rope_scaling": {"rope_type": "longrope", "factor": 2}},
                 "scaled by 'longrope'; for qwen3 ebb runs default, linear, yarn$"),
                ({**RELEASED, "rope_scaling": LLAMA["rope_scaling"]}, "scaled by 'llama3'"),
                ({**RELEASED, "rope_scaling": {"type": ["yarn"]}}, r"scaled by \['yarn'\]"),
                ({**RELEASED, "rope_scaling": "yarn"},
                 "rope_scaling is 'yarn', expected an object"),
                ({**RELEASED, "rope_parameters": [3]}, r"rope_parameters is \[3\], expected an o"),
                ({**RELEASED, "rope_scaling": {"type": "linear"}}, "lacks factor"),
                ({**RELEASED, "rope_scaling": {"type": "linear", "factor": 2.0 ** 31}},
                 "factor is 2147483648.0, expected at most 1073741824"),
                ({**RELEASED, "rope_scaling": {"type": "linear", "factor": 0.5}},
                 "factor is 0.5, expected 1 or more"),
                ({**RELEASED, "rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 64,
                                               "original_max_position_embeddings": 64}},
                 "RoPE has beta_fast 64")]):
            self.assert_refused(message, Folder(self.folder / str(number), config))


class Types(Case):
    def test_matrices_take_the_type_and_vectors_stay_f32(self):
        checkpoint = self.checkpoint(OPTIMIZER)
        for file_type, kind, number in (("f16", gguf.GGMLQuantizationType.F16, 1),
                                        ("q8_0", gguf.GGMLQuantizationType.Q8_0, 7)):
            written = self.convert(checkpoint, file_type)
            self.assertEqual(written.keys["general.file_type"], number)
            for name, values in written.tensors.items():
                plain = values.ndim == 1 or "dms_alpha" in name
                self.assertEqual(written.types[name],
                                 gguf.GGMLQuantizationType.F32 if plain else kind, name)
                theirs = next(v for n, v in checkpoint.tensors.items() if name_in_file(n) == name)
                np.testing.assert_allclose(values, theirs, atol=0 if plain else 0.01, rtol=1e-3)

    def test_many_rows_are_encoded_a_few_at_a_time(self):
        checkpoint = self.checkpoint({**OPTIMIZER, "dms_alpha_per": "layer", "model_type": "llama"},
                                     tensors=tensors_of({**OPTIMIZER, "model_type": "llama"}))
        for file_type in ("f32", "f16", "q8_0"):
            whole = self.convert(checkpoint, file_type)
            before, convert.VALUES_AT_A_TIME = convert.VALUES_AT_A_TIME, 5 * WIDTH
            try:
                parts = self.convert(checkpoint, file_type)
            finally:
                convert.VALUES_AT_A_TIME = before
            for name, values in whole.tensors.items():
                np.testing.assert_array_equal(parts.tensors[name], values, name)

    def test_what_f16_cannot_hold_is_refused(self):
        tensors = tensors_of(RELEASED)
        tensors["model.layers.0.mlp.up_proj.weight"][1, 2] = 131072
        checkpoint = self.checkpoint(RELEASED, tensors=tensors)
        self.convert(checkpoint, "f32")
        self.out.unlink()
        with self.assertRaisesRegex(BadCheckpoint, "up_proj.weight holds 131072, more than F16"):
            self.convert(checkpoint, "f16")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run"])


class AdapterOnly(Case):
    def test_holds_the_keys_of_the_marks_and_their_tensors(self):
        checkpoint = self.checkpoint(OPTIMIZER)
        (checkpoint.path / "tokenizer.json").unlink()
        written = self.convert(checkpoint, "q8_0", adapter_only=True, name="adapted")
        self.assertEqual(set(written.tensors),
                         {f"blk.{layer}.attn_dms_alpha{part}.weight" for layer in range(LAYERS)
                          for part in ("", "_norm")})
        for name, values in checkpoint.tensors.items():
            if "dms" in name:
                np.testing.assert_array_equal(written.tensors[name_in_file(name)], values)
        self.assertEqual({name: value for name, value in written.keys.items()
                          if not name.startswith(("GGUF.", "qwen3.attention.dms."))},
                         {"general.architecture": "qwen3", "general.type": "adapter",
                          "general.name": "adapted"})
        self.assertEqual(written.marks()["layout"], "adapter")

    def test_a_model_whose_queries_carry_the_logits_has_no_adapter(self):
        self.assert_refused("--adapter-only: this model's layout is query_last_channel",
                            self.checkpoint(RELEASED), adapter_only=True)


class Vocabulary(Case):
    def test_tokens_merges_types_and_special_tokens(self):
        keys = self.convert(self.checkpoint(RELEASED)).keys
        tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
        self.assertEqual(keys["tokenizer.ggml.model"], "gpt2")
        self.assertEqual(keys["tokenizer.ggml.pre"], "qwen2")
        self.assertEqual(keys["tokenizer.ggml.merges"], ["t h", "th e"])
        self.assertEqual(tokens[:256], byte_texts())
        self.assertEqual(tokens[256:264], ["th", "the", "<|endoftext|>", "<|im_start|>",
                                           "<|im_end|>", "<think>", "<|fim_pad|>", "[PAD263]"])
        self.assertEqual(len(tokens), NUM_WORDS)
        normal, control, user, unused = 1, 3, 4, 5
        self.assertEqual(types[256:264], [normal, normal, control, control, control, user, control,
                                          unused])
        self.assertEqual(keys["tokenizer.ggml.eos_token_id"], 260)
        self.assertEqual(keys["tokenizer.ggml.padding_token_id"], 258)
        self.assertEqual(keys["tokenizer.ggml.add_bos_token"], False)
        self.assertEqual(keys["tokenizer.chat_template"], "{{ messages }}")

    def test_the_chat_template_may_be_a_file_of_its_own(self):
        checkpoint = self.checkpoint(OPTIMIZER)
        checkpoint.write("tokenizer_config.json", {"eos_token": "<|im_end|>"})
        (checkpoint.path / "chat_template.jinja").write_text("{{ bos_token }}")
        self.assertEqual(self.convert(checkpoint).keys["tokenizer.chat_template"],
                         "{{ bos_token }}")

    def test_the_rules_have_names(self):
        to_bytes = {"type": "ByteLevel", "add_prefix_space": False}
        for pre_tokenizer, name in (
                (tokenizer_json(vocabulary.QWEN_WORDS)["pre_tokenizer"], "qwen2"),
                (tokenizer_json(vocabulary.LLAMA_WORDS)["pre_tokenizer"], "llama-bpe"),
                ({"type": "Sequence", "pretokenizers": [
                    {"type": "Digits", "individual_digits": True}, to_bytes]}, "smollm"),
                (to_bytes, "gpt-2")):
            self.assertEqual(vocabulary.cut_name({"pre_tokenizer": pre_tokenizer}, "x"), name)

    def test_unknown_rules_need_a_name(self):
        checkpoint = self.checkpoint(RELEASED, words=r"\p{L}+")
        self.assert_refused(r"which is none of qwen2, llama-bpe, .*say by --pre NAME", checkpoint)
        self.assertEqual(self.convert(checkpoint, cut="olmo").keys["tokenizer.ggml.pre"], "olmo")

    def test_the_tokenizer_may_be_the_base_models(self):
        checkpoint = self.checkpoint(RELEASED)
        base = Folder(self.folder / "base", {**QWEN, "eos_token_id": 258})
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (checkpoint.path / name).unlink()
        self.assert_refused("final holds no tokenizer.json: give .* by --tokenizer", checkpoint)
        keys = self.convert(checkpoint, tokenizer=base.path).keys
        self.assertEqual(keys["tokenizer.ggml.eos_token_id"], 260)

    def test_other_tokenizers_are_refused(self):
        def changed(change):
            tokenizer = tokenizer_json(vocabulary.QWEN_WORDS)
            change(tokenizer)
            return tokenizer

        checkpoint = self.checkpoint(RELEASED)
        for message, change in (
                ("expected byte-level BPE", lambda t: t["model"].update(type="Unigram")),
                ("expected byte-level BPE", lambda t: t["model"].update(merges=[])),
                ("expected byte-level BPE", lambda t: t["model"].pop("vocab")),
                ("expected byte-level BPE",
                 lambda t: t.update(decoder={"type": "Fuse"}, pre_tokenizer={"type": "Metaspace"})),
                ("'@' and 'zz' are both token 64", lambda t: t["model"]["vocab"].update(zz=64)),
                ("token 'zz' is number 288, but the model has 288",
                 lambda t: t["model"]["vocab"].update(zz=288))):
            checkpoint.write("tokenizer.json", changed(change))
            self.assert_refused(message, checkpoint)
        checkpoint.write("tokenizer.json", tokenizer_json(vocabulary.QWEN_WORDS))
        (checkpoint.path / "tokenizer_config.json").write_text("{")
        self.assert_refused("do not fit together", checkpoint)


class Configs(Case):
    def assert_config_refused(self, message, base=RELEASED, without=(), **others):
        config = {name: value for name, value in {**base, **others}.items() if name not in without}
        tensors = tensors_of({**base, "model_type": base["model_type"]})
        folder = Folder(self.folder / str(len(list(self.folder.iterdir()))), base, tensors=tensors)
        folder.write("config.json", config)
        self.assert_refused(message, folder)

    def test_without_config(self):
        checkpoint = self.checkpoint(RELEASED)
        (checkpoint.path / "config.json").unlink()
        self.assert_refused("config.json is missing", checkpoint)
        (checkpoint.path / "config.json").write_text("{,}")
        self.assert_refused("config.json is no JSON", checkpoint)
        (checkpoint.path / "config.json").write_text("[]")
        self.assert_refused("config.json: expected a JSON object", checkpoint)

    def test_of_another_model(self):
        self.assert_config_refused("model_type is 'mamba', expected one of llama, qwen2, qwen3",
                                   model_type="mamba")
        self.assert_config_refused("model_type is None", without=["model_type"])
        self.assert_config_refused(r"model_type is \['qwen3'\]", model_type=["qwen3"])

    def test_of_what_ebb_does_not_run(self):
        for name, value in (("hidden_act", "gelu"), ("attention_bias", True),
                            ("use_sliding_window", True), ("partial_rotary_factor", 0.5),
                            ("quantization_config", {"quant_method": "fp8"}), ("mlp_bias", True)):
            self.assert_config_refused(f"{name} is .*; ebb runs", **{name: value})
        self.assert_config_refused("layer_types has sliding_attention",
                                   layer_types=["full_attention", "sliding_attention"])
        self.assert_config_refused("layer_types is 1, expected a list", layer_types=1)

    def test_sizes(self):
        for name in ("hidden_size", "num_hidden_layers", "rms_norm_eps", "rope_theta",
                     "num_key_value_heads", "vocab_size"):
            self.assert_config_refused(f"config.json lacks {name}", without=[name])
        for name, value in (("hidden_size", 0), ("hidden_size", "32"), ("num_hidden_layers", 1.5),
                            ("rms_norm_eps", float("nan")), ("vocab_size", True)):
            self.assert_config_refused(f"{name} is .*, expected a (whole )?number above 0",
                                       **{name: value})
        for name, value in (("num_hidden_layers", 513), ("max_position_embeddings", 1 << 31),
                            ("dms_window_size", 1 << 31), ("rms_norm_eps", 1e39),
                            ("dms_initial_alpha_offset", -1e39)):
            self.assert_config_refused(f"{name} is .*, expected at most", **{name: value})
        self.assert_config_refused("4 query heads of 16 channels cannot share 3 kv heads",
                                   num_key_value_heads=3)
        self.assert_config_refused("heads of 15 channels", head_dim=15)

    def test_marks(self):
        self.assert_config_refused("nothing says how this model marks rows", QWEN)
        for name in ("dms_window_size", "dms_alpha_scale", "dms_initial_alpha_offset"):
            self.assert_config_refused(f"config.json lacks {name}", without=[name])
        self.assert_config_refused("dms_window_size is 0", dms_window_size=0)
        self.assert_config_refused("dms_alpha_scale is -1", dms_alpha_scale=-1)
        self.assert_config_refused("dms_initial_alpha_offset is 'x', expected a number$",
                                   dms_initial_alpha_offset="x")
        self.assert_config_refused("dms_alpha_per is 'token', expected 'head' or 'layer'",
                                   dms_alpha_per="token")
        self.assert_config_refused("in layout query_last_channel ebb reads a logit for each kv",
                                   dms_alpha_per="layer")

    def test_marks_of_fast_dms(self):
        checkpoint = self.checkpoint(LLAMA)
        for message, value in (("lacks dms_window_size or window_size", {"alpha_scale": 100}),
                               ("config is 3, expected a JSON object", {"config": 3})):
            checkpoint.write("dms_metadata.json", value)
            self.assert_refused(message, checkpoint)

    def test_a_shift_longer_than_the_window(self):
        self.assert_refused("shift 513: expected 0 to the window, 512", self.checkpoint(RELEASED),
                            shift=513)


class Tensors(Case):
    INDEX, FIRST = "model.safetensors.index.json", "model-00001-of-00002.safetensors"

    def assert_tensors_refused(self, message, change, config=RELEASED):
        tensors = tensors_of(config)
        change(tensors)
        number = len(list(self.folder.iterdir()))
        self.assert_refused(message, Folder(self.folder / str(number), config, tensors=tensors))

    def test_missing(self):
        for name in ("lm_head.weight", "model.layers.1.self_attn.q_norm.weight",
                     "model.layers.0.self_attn.dms_proj_alpha.weight"):
            self.assert_tensors_refused(f"lacks the tensor that GGUF calls {name_in_file(name)}",
                                        lambda tensors: tensors.pop(name), OPTIMIZER)

    def test_unknown(self):
        def add(name, *shape):
            return lambda tensors: tensors.update({name: np.zeros(shape, np.float32)})

        self.assert_tensors_refused("qwen3 has no tensor model.layers.0.mystery.weight",
                                    add("model.layers.0.mystery.weight", 4))
        self.assert_tensors_refused("qwen3 has no tensor .*dms_proj_alpha.bias",
                                    add("model.layers.0.self_attn.dms_proj_alpha.bias", KV_HEADS),
                                    OPTIMIZER)
        # Known elsewhere: in another layout, another family, a further layer.
        self.assert_tensors_refused("qwen3 with layout query_last_channel has no tensor "
                                    ".*dms_proj_alpha.weight",
                                    add("model.layers.0.self_attn.dms_proj_alpha.weight", 2, WIDTH))
        self.assert_tensors_refused("has no tensor .*o_proj.bias",
                                    add("model.layers.0.self_attn.o_proj.bias", WIDTH))
        self.assert_tensors_refused("has no tensor model.layers.2",
                                    add("model.layers.2.input_layernorm.weight", WIDTH))
        self.assert_tensors_refused("are both token_embd.weight",
                                    add("transformer.wte.weight", NUM_WORDS, WIDTH))

    def test_of_another_shape(self):
        def halve(tensors):
            name = "model.layers.1.self_attn.k_proj.weight"
            tensors[name] = tensors[name][:HEAD_SIZE]

        self.assert_tensors_refused(r"k_proj.weight has shape \[16, 32\], expected \[32, 32\]",
                                    halve)

    def test_not_finite(self):
        def spoil(tensors):
            tensors["model.layers.1.self_attn.v_proj.weight"][3, 4] = np.inf

        self.assert_tensors_refused("v_proj.weight holds values that are not finite", spoil)

    def test_no_weights(self):
        checkpoint = self.checkpoint(RELEASED)
        (checkpoint.path / self.INDEX).unlink()
        self.assert_refused("holds no weights: expected model.safetensors.index.json or "
                            "model.safetensors", checkpoint)

    def test_index(self):
        checkpoint = self.checkpoint(RELEASED)
        index = json.loads((checkpoint.path / self.INDEX).read_text())
        checkpoint.write(self.INDEX, {})
        self.assert_refused("expected a weight_map", checkpoint)
        checkpoint.write(self.INDEX, {"weight_map": {"lm_head.weight": "../other.safetensors"}})
        self.assert_refused("lm_head.weight is in '../other.safetensors', expected a file's name",
                            checkpoint)
        index["weight_map"]["extra.weight"] = self.FIRST
        checkpoint.write(self.INDEX, index)
        self.assert_refused(f"{self.FIRST} lacks tensor extra.weight", checkpoint)
        (checkpoint.path / self.FIRST).unlink()
        self.assert_refused(f"{self.FIRST} is missing", checkpoint)

    def test_shards(self):
        checkpoint = self.checkpoint(RELEASED)
        path = checkpoint.path / self.FIRST
        whole = path.read_bytes()

        def with_header(text):
            return len(text).to_bytes(8, "little") + text

        entry = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
        for message, data in (
                ("is cut off: tensor .* ends at byte", whole[:-1]),
                ("is no safetensors file: its header would take", whole[:100]),
                ("is no safetensors file: its header would take 0 of 3 bytes", b"\0\0\0"),
                ("is no safetensors file: Expecting", with_header(b"{]")),
                ("its header is no JSON object", with_header(b"[1]")),
                *((message, with_header(json.dumps({"x": value}).encode()) + bytes(64))
                  for message, value in (
                      ("tensor x is I64: expected one of F32, F16, BF16",
                       {**entry, "dtype": "I64"}),
                      ("expected dtype, shape and data_offsets", {"dtype": "BF16"}),
                      ("expected dtype, shape and data_offsets", {**entry, "shape": [-1, 2]}),
                      ("expected dtype, shape and data_offsets", {**entry, "data_offsets": [0]}),
                      (r"BF16 of shape \[2, 2\] takes 8 bytes, found 7",
                       {**entry, "data_offsets": [0, 7]})))):
            path.write_bytes(data)
            self.assert_refused(message, checkpoint)


class Program(Case):
    def run_it(self, *arguments):
        program = [sys.executable, str(HERE.parent / "convert.py"), *map(str, arguments)]
        return subprocess.run(program, capture_output=True, text=True)

    def test_says_what_it_wrote(self):
        checkpoint = self.checkpoint(RELEASED)
        ran = self.run_it(checkpoint.path, "--out", self.out, "--type", "q8_0", "--name", "tiny")
        self.assertEqual(ran.stderr, "")
        self.assertEqual(ran.stdout, f"wrote {self.out}: 25 tensors, layout query_last_channel, "
                         "window 512, shift 1\n")
        self.assertEqual(Written(self.out).keys["general.name"], "tiny")

    def test_says_what_is_wrong_and_leaves_the_file_alone(self):
        checkpoint = self.checkpoint(RELEASED)
        (checkpoint.path / Tensors.FIRST).unlink()
        self.out.write_text("as it was")
        ran = self.run_it(checkpoint.path, "--out", self.out)
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, "^convert.py: .*00001-of-00002.safetensors is missing\n$")
        self.assertEqual(self.out.read_text(), "as it was")

    def test_refuses_a_compression_below_1(self):
        for value in ("0.5", "nan", "inf"):
            ran = self.run_it(self.folder, "--out", self.out, "--cr", value)
            self.assertEqual(ran.returncode, 2)
            self.assertRegex(ran.stderr, f"--cr {value}: expected 1 or more\n$")

    def test_says_where_it_cannot_write(self):
        ran = self.run_it(self.checkpoint(RELEASED).path, "--out", self.folder / "no" / "file")
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, "^convert.py: .*No such file or directory")

    def test_needs_no_torch(self):
        code = ("import sys; sys.modules['torch'] = None; import convert; "
                "sys.argv = ['convert.py', '--help']; convert.main()")
        ran = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True,
                             text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
