"""Writes a trained pebble as GGUF, tokenizer and chat template included.

usage: export.py --problems PROGRAM --model model.pt --out pebble.gguf [--type f16|f32]
"""

import argparse

import gguf
import numpy as np
import torch

import data
from model import Pebble, Shape

# Every text is one question; what is said before it does not count.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "Question: {{ message['content'] | trim }}"
    "{% elif message['role'] == 'assistant' %}"
    "<think></think> {{ message['content'] | trim }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}")

START, END, THINK, THINK_END = 256, 257, 258, 259


def byte_characters():
    """The printable character that stands for each byte in vocabularies of GPT-2's kind: the byte
    itself where it is printable, else the next free code point from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table


def token_texts(texts):
    characters = byte_characters()
    # The vocabulary gives bytes above 127 as code points of the same number.
    return ["".join(characters[ord(c)] for c in text) for text in texts]


def write_tokenizer(writer, texts):
    kinds = [gguf.TokenType.NORMAL] * len(texts)
    for token in (START, END):
        kinds[token] = gguf.TokenType.CONTROL
    for token in (THINK, THINK_END):
        kinds[token] = gguf.TokenType.USER_DEFINED
    tokens = token_texts(texts)
    writer.add_tokenizer_model("gpt2")
    # Words that are tokens are taken whole, without merges; everything else falls into bytes.
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{byte_characters()[ord(' ')]} a"])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_shape(writer, shape, num_mtp_layers=0):
    writer.add_name("pebble")
    writer.add_description("A small reasoner for measuring cache policies")
    writer.add_vocab_size(shape.vocab_size)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embed_dim)
    writer.add_block_count(shape.num_layers + num_mtp_layers)
    writer.add_feed_forward_length(shape.feed_forward_dim)
    writer.add_head_count(shape.num_q_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)


NAMES = {
    "attention_norm": "attn_norm", "attention.q": "attn_q", "attention.k": "attn_k",
    "attention.v": "attn_v", "attention.out": "attn_output", "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate", "feed_forward.up": "ffn_up", "feed_forward.down": "ffn_down",
}


def tensor_name(name):
    if name == "embedding.weight":
        return "token_embd.weight"
    if name == "norm.weight":
        return "output_norm.weight"
    _, block, part = name.removesuffix(".weight").split(".", 2)
    return f"blk.{block}.{NAMES[part]}.weight"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", choices=("f16", "f32"), default="f16")
    args = parser.parse_args()
    loaded = torch.load(args.model, map_location="cpu", weights_only=True)
    shape = Shape(**loaded["shape"])
    model = Pebble(shape)
    model.load_state_dict(loaded["model"])
    writer = gguf.GGUFWriter(args.out, "llama")
    write_shape(writer, shape)
    write_tokenizer(writer, data.vocabulary(args.problems))
    matrix_type = np.float16 if args.type == "f16" else np.float32
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if args.type == "f16"
                         else gguf.LlamaFileType.ALL_F32)
    for name, weight in model.state_dict().items():
        values = weight.float().numpy()
        writer.add_tensor(tensor_name(name), values.astype(matrix_type if values.ndim == 2
                                                           else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
