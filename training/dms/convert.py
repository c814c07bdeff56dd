#!/usr/bin/env python3
"""Writes a released DMS checkpoint, a Hugging Face folder, as GGUF for ebb.

usage: convert.py FOLDER --out FILE.gguf [--type f16|f32|q8_0] [--adapter-only] [--name NAME]
                  [--tokenizer FOLDER] [--pre NAME] [--shift N] [--cr N]

Three kinds of folder are known: NVIDIA's Qwen3-8B-DMS-8x (it has no tokenizer of its own:
--tokenizer names the folder of Qwen3-8B's), what NVIDIA Model-Optimizer's experimental/dms writes,
and what FastDMS trains. --adapter-only writes what an adapter adds to its base model alone, for
`ebb --adapter`. --type is that of the matrices; the rows that carry an adapter's logits are always
F32. Needs no torch.
"""

import argparse
import dataclasses
import math
import pathlib
import re
import sys

import gguf
import numpy as np

from gguf_writing import TYPES, add_marks, type_in_file, whole_or_nothing
from model_marks import ADAPTER, QUERY, Marks
from shards import BadCheckpoint, StoredTensor, read_json, read_tensors
from vocabulary import add_vocabulary

FAMILIES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
            "qwen3": gguf.MODEL_ARCH.QWEN3}
FILE_TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16,
              "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
ALPHA_NAME = re.compile(r"model\.layers\.(\d+)\.self_attn\.dms_proj_alpha(_norm)?\.weight")
MAX_F16, MAX_F32 = 65504.0, float(np.finfo(np.float32).max)
MAX_SIZE, MAX_LAYERS = 1 << 30, 512  # limits of ebb, src/model/hyperparameters.cc
VALUES_AT_A_TIME = 1 << 22


# What the model is: config.json.

@dataclasses.dataclass(frozen=True)
class Model:
    family: str
    num_layers: int
    width: int
    ff_width: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    num_words: int
    context: int
    epsilon: float
    rope_base: float
    rope: dict  # the scaling's parameters, without "type" where there is none
    tied: bool  # embedding and output are one matrix
    biased: bool  # the products of attention have biases


def number(values, names, path, kind=float, above=0, most=None):
    """The first of `names` in `values`, a finite number above `above` that a GGUF file can hold."""
    most = most or (MAX_SIZE if kind is int else MAX_F32)
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if (isinstance(value, bool) or not isinstance(value, (int, float))
                or not math.isfinite(value) or value <= above or (kind is int and not whole)):
            wanted = "a whole number" if kind is int else "a number"
            limit = "" if above == -math.inf else f" above {above}"
            raise BadCheckpoint(f"{path}: {name} is {value!r}, expected {wanted}{limit}")
        if abs(value) > most:
            raise BadCheckpoint(f"{path}: {name} is {value!r}, expected at most {most}")
        return kind(value)
    raise BadCheckpoint(f"{path} lacks {' or '.join(names)}")


def optional(config, name, kind, path):
    """An optional list or object; an empty one where config.json has none."""
    value = config.get(name)
    if value is not None and not isinstance(value, kind):
        wanted = "an object" if kind is dict else "a list"
        raise BadCheckpoint(f"{path}: {name} is {value!r}, expected {wanted}")
    return value or kind()


def refuse_what_ebb_lacks(config, family, path):
    wanted = {"hidden_act": "silu", "partial_rotary_factor": 1.0, "mlp_bias": False,
              "use_sliding_window": False, "quantization_config": None}
    if family == "qwen3":
        wanted["attention_bias"] = False
    given = {**config, **optional(config, "rope_parameters", dict, path)}
    for name, value in wanted.items():
        if given.get(name, value) not in (value, None):
            raise BadCheckpoint(f"{path}: {name} is {given[name]!r}; ebb runs {value!r} alone")
    for layer_type in optional(config, "layer_types", list, path):
        if layer_type != "full_attention":
            raise BadCheckpoint(f"{path}: layer_types has {layer_type}; ebb runs full_attention "
                                "alone")


def read_rope(config, family, path):
    """Base and scaling. Transformers 5 has both in rope_parameters."""
    rope = (optional(config, "rope_parameters", dict, path)
            or optional(config, "rope_scaling", dict, path))
    base = number({**config, **rope}, ("rope_theta",), path)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return base, {}
    known = {"linear": ("factor",), "yarn": ("factor", "original_max_position_embeddings")}
    if family == "llama":
        known["llama3"] = ("factor", "original_max_position_embeddings", "low_freq_factor",
                           "high_freq_factor")
    if not isinstance(kind, str) or kind not in known:
        raise BadCheckpoint(f"{path}: RoPE is scaled by {kind!r}; for {family} ebb runs "
                            f"{', '.join(['default', *known])}")
    scaling = {name: number(rope, (name,), path, most=MAX_SIZE) for name in known[kind]}
    if scaling["factor"] < 1:
        raise BadCheckpoint(f"{path}: RoPE's factor is {scaling['factor']}, expected 1 or more")
    # ggml has YaRN with these alone.
    usual = {"beta_fast": 32, "beta_slow": 1, "rope_theta": base, "rope_type": kind, "type": kind}
    for name, value in rope.items():
        if name not in scaling and value is not None and value != usual.get(name):
            raise BadCheckpoint(f"{path}: RoPE has {name} {value!r}; ebb has no such key")
    return base, {"type": kind, **scaling}


def read_model(config, path):
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise BadCheckpoint(f"{path}: model_type is {family!r}, expected one of "
                            f"{', '.join(FAMILIES)}")
    refuse_what_ebb_lacks(config, family, path)

    def size(name, most=MAX_SIZE):
        return number(config, (name,), path, int, most=most)

    rope_base, rope = read_rope(config, family, path)
    q_heads, kv_heads = size("num_attention_heads"), size("num_key_value_heads")
    width = size("hidden_size")
    head_size = size("head_dim") if config.get("head_dim") else width // q_heads
    if q_heads % kv_heads or head_size % 2:
        raise BadCheckpoint(f"{path}: {q_heads} query heads of {head_size} channels cannot share "
                            f"{kv_heads} kv heads")
    return Model(family=family, num_layers=size("num_hidden_layers", MAX_LAYERS), width=width,
                 ff_width=size("intermediate_size"), num_q_heads=q_heads, num_kv_heads=kv_heads,
                 head_size=head_size, num_words=size("vocab_size"),
                 context=size("max_position_embeddings"),
                 epsilon=number(config, ("rms_norm_eps",), path), rope_base=rope_base, rope=rope,
                 tied=bool(config.get("tie_word_embeddings", False)),
                 biased=family == "qwen2" or bool(config.get("attention_bias", False)))


# What marks its rows: config.json, or what FastDMS leaves beside it.

@dataclasses.dataclass(frozen=True)
class Origin:
    marks: Marks
    compression: float | None  # what it was trained for
    per_layer: bool  # one decision for all kv heads of a layer


def fast_dms_file(folder, beside_config):
    """FastDMS keeps its keys beside the weights or, as its trainer leaves them, a folder above."""
    places = [folder / "dms_metadata.json", folder / "training_log.json"]
    if not beside_config:  # NVIDIA's folder has no business with its neighbours
        places.append(folder.absolute().parent / "training_log.json")
    return next((path for path in places if path.exists()), None)


def read_origin(folder, config, shift=None, compression=None):
    """shift, compression: where the user says them."""
    path = folder / "config.json"
    in_config = any(name.startswith("dms_") for name in config)
    theirs = fast_dms_file(folder, in_config)
    if not in_config and not theirs:
        raise BadCheckpoint(f"{path} has no dms_ keys, and there is no dms_metadata.json or "
                            "training_log.json: nothing says how this model marks rows")
    if in_config and theirs and shift is None:
        raise BadCheckpoint(f"both {path} and {theirs} speak of DMS: say by --shift 1 that "
                            "NVIDIA's code trained the model (token t + 1 decides on row t), by "
                            "--shift 0 that FastDMS did (token t)")
    by_nvidia = in_config and (not theirs or shift > 0)
    values = config
    if not by_nvidia:
        path, values = theirs, read_json(theirs)
        values = values.get("config", values)
        if not isinstance(values, dict):
            raise BadCheckpoint(f"{path}: config is {values!r}, expected a JSON object")
    window = number(values, ("dms_window_size", "window_size"), path, int)
    scale = number(values, ("dms_alpha_scale", "alpha_scale"), path)
    offset = number(values, ("dms_initial_alpha_offset", "dms_alpha_offset", "alpha_offset"), path,
                    above=-math.inf)
    separate, per = values.get("dms_separate_alpha"), values.get("dms_alpha_per", "head")
    if per not in ("head", "layer"):
        raise BadCheckpoint(f"{path}: dms_alpha_per is {per!r}, expected 'head' or 'layer'")
    # Model-Optimizer's trainer leaves its default in dms_cr, whatever it trained for. The log that
    # FastDMS leaves a folder above says where training ended, not how far a checkpoint-* had come.
    on_the_way = path.parent != folder and folder.absolute().name.startswith("checkpoint-")
    says_compression = (separate is None and not on_the_way
                        and any(values.get(n) for n in ("dms_cr", "target_cr")))
    if compression is None and says_compression:
        compression = number(values, ("dms_cr", "target_cr"), path)
    try:
        marks = Marks(layout=ADAPTER if separate else QUERY, window=window, scale=scale,
                      offset=offset, shift=int(by_nvidia) if shift is None else shift)
    except ValueError as error:
        raise BadCheckpoint(f"{path}: {error}") from None
    return Origin(marks, compression, per == "layer")


# Tensors: their names, shapes and rows in the file.

@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    source: StoredTensor | np.ndarray
    order: np.ndarray | None  # which row of the source each row is, where they move
    dtype: gguf.GGMLQuantizationType


def layer_shapes(model):
    """The tensors of one layer of the base model. Matrices that ebb multiplies as one stand
    together."""
    q_rows, kv_rows = (n * model.head_size for n in (model.num_q_heads, model.num_kv_heads))
    shapes = {"attn_norm.weight": (model.width,), "attn_q.weight": (q_rows, model.width),
              "attn_k.weight": (kv_rows, model.width), "attn_v.weight": (kv_rows, model.width)}
    if model.biased:
        shapes |= {"attn_q.bias": (q_rows,), "attn_k.bias": (kv_rows,), "attn_v.bias": (kv_rows,)}
    if model.family == "qwen3":
        shapes |= {"attn_q_norm.weight": (model.head_size,),
                   "attn_k_norm.weight": (model.head_size,)}
    shapes["attn_output.weight"] = (model.width, q_rows)
    if model.biased and model.family == "llama":
        shapes["attn_output.bias"] = (model.width,)
    return shapes | {"ffn_norm.weight": (model.width,),
                     "ffn_gate.weight": (model.ff_width, model.width),
                     "ffn_up.weight": (model.ff_width, model.width),
                     "ffn_down.weight": (model.width, model.ff_width)}


def expected_shapes(model, layout, adapter_only):
    """Names in the file -> shapes, in the file's order."""
    shapes = {}
    if not adapter_only:
        shapes |= {"token_embd.weight": (model.num_words, model.width),
                   "output_norm.weight": (model.width,)}
        if not model.tied:
            shapes["output.weight"] = (model.num_words, model.width)
    for layer in range(model.num_layers):
        parts = {} if adapter_only else layer_shapes(model)
        if layout == ADAPTER:
            parts |= {"attn_dms_alpha_norm.weight": (model.width,),
                      "attn_dms_alpha.weight": (model.num_kv_heads, model.width)}
        shapes |= {f"blk.{layer}.{part}": shape for part, shape in parts.items()}
    return shapes


def named_as_in_file(tensors, model):
    """The checkpoint's tensors by the names that GGUF has for them."""
    names = gguf.get_tensor_name_map(FAMILIES[model.family], model.num_layers)
    named = {}
    for name, tensor in tensors.items():
        # Made from config.json anyway, and the embedding a second time.
        if name.endswith("rotary_emb.inv_freq") or (model.tied and name == "lm_head.weight"):
            continue
        alpha = ALPHA_NAME.fullmatch(name)
        if alpha:
            in_file = f"blk.{alpha[1]}.attn_dms_alpha{alpha[2] or ''}.weight"
        else:
            in_file = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if in_file is None:
            raise BadCheckpoint(f"{tensor.path}: {model.family} has no tensor {name}")
        if in_file in named:
            raise BadCheckpoint(f"tensors {named[in_file].name} and {name} are both {in_file}")
        named[in_file] = tensor
    return named


def row_order(name, model, origin):
    """Which row of the checkpoint's tensor each row in the file is; None where none moves."""
    part = name.split(".", 2)[-1]
    if part == "attn_dms_alpha.weight" and origin.per_layer:
        return np.zeros(model.num_kv_heads, int)
    if model.family == "llama" and part.rpartition(".")[0] in ("attn_q", "attn_k"):
        # RoPE pairs channel i with i + half there, and neighbours in GGUF. The last channel stays.
        num_heads = model.num_q_heads if part.startswith("attn_q") else model.num_kv_heads
        rows = np.arange(num_heads * model.head_size).reshape(num_heads, 2, model.head_size // 2)
        return rows.swapaxes(1, 2).ravel()
    return None


def rope_divisors(model):
    """Llama 3's scaling divides each of RoPE's frequencies by one of these: by 1 those that turn
    at least high_freq_factor times in the context that the model was first trained with."""
    channels = np.arange(0, model.head_size, 2) / model.head_size
    turns = (model.rope["original_max_position_embeddings"] * model.rope_base ** -channels
             / (2 * np.pi))
    low, high = model.rope["low_freq_factor"], model.rope["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / (share + (1 - share) / model.rope["factor"])).astype(np.float32)


def plan(tensors, model, origin, matrix_type, adapter_only):
    """Entries in the file's order; checks that all are there and of the right shape."""
    shapes = expected_shapes(model, origin.marks.layout, adapter_only)
    named = named_as_in_file(tensors, model)
    entries = []
    for name, shape in shapes.items():
        if name not in named:
            raise BadCheckpoint(f"the checkpoint lacks the tensor that GGUF calls {name}, "
                                f"{list(shape)}")
        if named[name].shape != shape:
            raise BadCheckpoint(f"{named[name].path}: tensor {named[name].name} has shape "
                                f"{list(named[name].shape)}, expected {list(shape)}")
        wanted = TYPES["f32"] if "attn_dms_alpha" in name else matrix_type
        entries.append(Entry(name, named[name], row_order(name, model, origin),
                             type_in_file(shape, wanted)))
    unknown = [tensor.name for name, tensor in named.items() if name not in shapes]
    if unknown and not adapter_only:
        raise BadCheckpoint(f"{model.family} with layout {origin.marks.layout} has no tensor "
                            f"{unknown[0]}")
    if model.rope.get("type") == "llama3" and not adapter_only:
        entries.insert(0, Entry("rope_freqs.weight", rope_divisors(model), None, TYPES["f32"]))
    return entries


# The file.

def encode(entry):
    """The tensor's bytes, made from few rows at a time: an embedding in float32 takes gigabytes."""
    if isinstance(entry.source, np.ndarray):
        return entry.source
    shape = entry.source.shape
    encoded = np.empty(gguf.quant_shape_to_byte_shape(shape, entry.dtype), np.uint8)
    step = max(1, VALUES_AT_A_TIME // math.prod(shape[1:]))
    for begin in range(0, shape[0], step):
        here = slice(begin, begin + step)
        values = entry.source.rows(here if entry.order is None else entry.order[here])
        if entry.dtype == TYPES["f16"] and np.abs(values).max() > MAX_F16:
            raise BadCheckpoint(f"{entry.source.name} holds {np.abs(values).max():g}, more than "
                                "F16 can: use --type f32")
        quantized = gguf.quants.quantize(values, entry.dtype).view(np.uint8)
        encoded.reshape(shape[0], -1)[here] = quantized.reshape(len(values), -1)
    return encoded


def add_model(writer, model):
    writer.add_vocab_size(model.num_words)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.width)
    writer.add_block_count(model.num_layers)
    writer.add_feed_forward_length(model.ff_width)
    writer.add_head_count(model.num_q_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_layer_norm_rms_eps(model.epsilon)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_rope_freq_base(model.rope_base)
    # Llama 3's scaling is a tensor.
    if model.rope.get("type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(model.rope["type"]))
        writer.add_rope_scaling_factor(model.rope["factor"])
    if model.rope.get("type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(int(model.rope["original_max_position_embeddings"]))


def write_tensors(writer, entries):
    for entry in entries:
        num_bytes = math.prod(gguf.quant_shape_to_byte_shape(entry.source.shape, entry.dtype))
        writer.add_tensor_info(entry.name, entry.source.shape, np.dtype(np.float32), num_bytes,
                               raw_dtype=entry.dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for entry in entries:
        writer.write_tensor_data(encode(entry))


def convert(folder, out, file_type="f16", adapter_only=False, name=None, tokenizer=None, cut=None,
            shift=None, compression=None):
    """The file's marks and how many tensors it has."""
    folder = pathlib.Path(folder)
    config = read_json(folder / "config.json")
    model = read_model(config, folder / "config.json")
    origin = read_origin(folder, config, shift, compression)
    layout = origin.marks.layout
    if adapter_only and layout != ADAPTER:
        raise BadCheckpoint(f"--adapter-only: this model's layout is {layout}; only {ADAPTER} adds "
                            "tensors to its base model")
    if origin.per_layer and layout == QUERY and model.num_kv_heads > 1:
        raise BadCheckpoint(f"{folder / 'config.json'}: dms_alpha_per is 'layer', but in layout "
                            f"{QUERY} ebb reads a logit for each kv head")
    entries = plan(read_tensors(folder), model, origin, TYPES[file_type], adapter_only)
    with whole_or_nothing(out) as beside:
        writer = gguf.GGUFWriter(beside, model.family)
        try:
            writer.add_type("adapter" if adapter_only else "model")
            writer.add_name(name or folder.absolute().name)
            if not adapter_only:
                writer.add_file_type(FILE_TYPES[file_type])
                writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
                add_model(writer, model)
                add_vocabulary(writer, pathlib.Path(tokenizer or folder), model.num_words, cut)
            add_marks(writer, model.family, origin.marks, origin.compression)
            write_tensors(writer, entries)
        finally:
            writer.close()
    return origin.marks, len(entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--adapter-only", action="store_true")
    parser.add_argument("--name")
    parser.add_argument("--tokenizer", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--pre", metavar="NAME", help="how GGUF calls the way texts are cut")
    parser.add_argument("--shift", type=int, metavar="N", help="the logit of token t + N decides "
                        "on row t (NVIDIA's code: 1, FastDMS: 0)")
    parser.add_argument("--cr", type=float, metavar="N", help="what the model was trained for")
    args = parser.parse_args()
    if args.cr is not None and not 1 <= args.cr < math.inf:
        parser.error(f"--cr {args.cr:g}: expected 1 or more")
    try:
        marks, num_tensors = convert(args.folder, args.out, args.type, args.adapter_only, args.name,
                                     args.tokenizer, args.pre, args.shift, args.cr)
    except (BadCheckpoint, OSError) as error:
        sys.exit(f"convert.py: {error}")
    print(f"wrote {args.out}: {num_tensors} tensors, layout {marks.layout}, window {marks.window}, "
          f"shift {marks.shift}")


if __name__ == "__main__":
    main()
