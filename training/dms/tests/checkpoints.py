"""Random checkpoints, laid out as the published ones: configurations, shards and a tokenizer."""

import json

import numpy as np

import vocabulary

LAYERS, WIDTH, FF_WIDTH, Q_HEADS, KV_HEADS, HEAD_SIZE, CONTEXT = 2, 32, 64, 4, 2, 16, 256
NUM_WORDS = 288  # of which the tokenizer has fewer
BASE = {"attention_bias": False, "attention_dropout": 0.0, "head_dim": HEAD_SIZE,
        "hidden_act": "silu", "hidden_size": WIDTH, "initializer_range": 0.02,
        "intermediate_size": FF_WIDTH, "max_position_embeddings": CONTEXT,
        "num_attention_heads": Q_HEADS, "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-6, "rope_scaling": None,
        "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "use_cache": True, "vocab_size": NUM_WORDS}
QWEN = {**BASE, "model_type": "qwen3", "max_window_layers": LAYERS, "sliding_window": None,
        "use_sliding_window": False, "layer_types": ["full_attention"] * LAYERS}
# The keys of nvidia/Qwen3-8B-DMS-8x.
RELEASED = {**QWEN, "auto_map": {"AutoConfig": "configuration_qwen3_dms.Qwen3Config",
                                 "AutoModelForCausalLM": "modeling_qwen3_dms.Qwen3ForCausalLM"},
            "dms_alpha_scale": 100.0, "dms_cr": 8, "dms_initial_alpha_offset": 5.0,
            "dms_window_size": 512}
# As Model-Optimizer's experimental/dms leaves it: without architectures.
OPTIMIZER = {**QWEN,
             "auto_map": {"AutoConfig": "configuration_qwen3_dms.Qwen3ConfigDMS",
                          "AutoModelForCausalLM": "modeling_qwen3_dms.Qwen3ForCausalLMDMS"},
             "dms_alpha_per": "head", "dms_alpha_scale": 100.0, "dms_chunked_prefill": None,
             "dms_cr": 8, "dms_disable_eviction": False, "dms_initial_alpha_offset": 5.0,
             "dms_manual_inference_mode": False, "dms_paged_attention_block_size": 256,
             "dms_preallocate_for_tokens": 4096, "dms_separate_alpha": True, "dms_tau": 0.1,
             "dms_window_size": 384}
# FastDMS trains Llama 3.2, and says nothing in config.json.
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False,
         "pretraining_tp": 1, "rope_theta": 500000.0, "tie_word_embeddings": True,
         "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                          "original_max_position_embeddings": 64, "rope_type": "llama3"}}
TRAINING_LOG = {"config": {"model": "meta-llama/Llama-3.2-1B", "teacher_model": None,
                           "target_cr": 4,
                           "context_len": 4096, "window_size": 256, "zeroing_steps": 2000,
                           "steps_per_cr": 100, "lr": 1e-5, "alpha_scale": 100.0,
                           "alpha_offset": 5.0, "compression_mode": "relu"}, "log": []}


def byte_texts():
    """How byte-level BPE writes the bytes 0 to 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    texts = {byte: chr(byte) for byte in plain}
    texts |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [texts[byte] for byte in range(256)]


def tokenizer_json(words):
    vocab = {text: i for i, text in enumerate(byte_texts())}
    vocab |= {"th": 256, "the": 257}
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                "use_regex": False}
    added = [(258, "<|endoftext|>", True), (259, "<|im_start|>", True), (260, "<|im_end|>", True),
             (261, "<think>", False), (262, "<|fim_pad|>", False)]
    return {"version": "1.0", "normalizer": {"type": "NFC"},
            "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": special}
                             for i, text, special in added],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, to_bytes]},
            "decoder": to_bytes,
            "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"], ["th", "e"]]}}


def bfloat16(values):
    """The nearest of them, as bits."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def tensors_of(config, seed=1):
    """Random ones, float32 of which a bfloat16 holds every bit."""
    draw = np.random.default_rng(seed)
    family, separate = config["model_type"], config.get("dms_separate_alpha", False)

    def values(*shape, around=0.0):
        drawn = around + draw.standard_normal(shape).astype(np.float32) / 4
        return (bfloat16(drawn).astype(np.uint32) << 16).view(np.float32)

    tensors = {"model.embed_tokens.weight": values(NUM_WORDS, WIDTH),
               "model.norm.weight": values(WIDTH, around=1)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = values(NUM_WORDS, WIDTH)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part, heads in (("q", Q_HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            tensors[f"{at}self_attn.{part}_proj.weight"] = values(heads * HEAD_SIZE, WIDTH)
            if family == "qwen2" or config["attention_bias"]:
                tensors[f"{at}self_attn.{part}_proj.bias"] = values(heads * HEAD_SIZE)
            if family == "qwen3" and part != "v":
                tensors[f"{at}self_attn.{part}_norm.weight"] = values(HEAD_SIZE, around=1)
        tensors[at + "self_attn.o_proj.weight"] = values(WIDTH, Q_HEADS * HEAD_SIZE)
        if family == "llama" and config["attention_bias"]:
            tensors[at + "self_attn.o_proj.bias"] = values(WIDTH)
        if separate:
            tensors[at + "self_attn.dms_proj_alpha.weight"] = values(KV_HEADS, WIDTH)
            tensors[at + "self_attn.dms_proj_alpha_norm.weight"] = values(WIDTH, around=1)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = values(WIDTH, around=1)
        for part in ("gate", "up"):
            tensors[f"{at}mlp.{part}_proj.weight"] = values(FF_WIDTH, WIDTH)
        tensors[at + "mlp.down_proj.weight"] = values(WIDTH, FF_WIDTH)
    return tensors


def write_shard(path, tensors, dtype="BF16"):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        stored = {"BF16": bfloat16, "F32": lambda v: v.astype(np.float32),
                  "F16": lambda v: v.astype(np.float16)}[dtype](values).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Folder:
    """A checkpoint in two shards of bfloat16, with a tokenizer."""

    def __init__(self, path, config, tensors=None, words=None):
        self.path, self.tensors = path, tensors or tensors_of(config)
        path.mkdir(parents=True)
        self.write("config.json", config)
        names = list(self.tensors)
        parts = [names[:len(names) // 2], names[len(names) // 2:]]
        places = {}
        for i, part in enumerate(parts):
            shard = f"model-{i + 1:05}-of-00002.safetensors"
            write_shard(path / shard, {name: self.tensors[name] for name in part})
            places |= {name: shard for name in part}
        self.write("model.safetensors.index.json",
                   {"metadata": {"total_size": 0}, "weight_map": places})
        if words is None:
            words = (vocabulary.LLAMA_WORDS if config["model_type"] == "llama"
                     else vocabulary.QWEN_WORDS)
        self.write("tokenizer.json", tokenizer_json(words))
        self.write("tokenizer_config.json",
                   {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>",
                    "pad_token": "<|endoftext|>", "chat_template": "{{ messages }}"})

    def write(self, name, value):
        (self.path / name).write_text(json.dumps(value))
