"""Text files as token ids to train on.

usage: tokens.py --model MODEL.gguf --out FILE.u16 [--limit N] FILE ...

Files are read in the order given, each followed by the model's end token. The model's own vocabulary
and merges are used, and a pre-tokenizer of its family: where that splits a text a little otherwise
than ebb does, the ids are still a text of the model.
"""

import argparse

import gguf
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from gguf_writing import whole_or_nothing
from vocabulary import LLAMA_WORDS, QWEN_WORDS

# How text is split before merging, by the name in the file.
SPLITS = {"qwen2": QWEN_WORDS, "llama-bpe": LLAMA_WORDS}
# These split digits one by one and everything else as GPT-2 does.
SINGLE_DIGITS = ("smollm", "starcoder", "refact")


def tokenizer(path):
    """(tokenizer, end token) of a GGUF file with a vocabulary of GPT-2's kind."""
    fields = gguf.GGUFReader(path).fields

    def key(name):
        return fields[f"tokenizer.ggml.{name}"].contents()

    if key("model") != "gpt2":
        raise ValueError(f"{path}: tokenizer {key('model')!r}: expected gpt2")
    texts = key("tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in key("merges")]
    made = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    family = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else "gpt-2"
    if family in SPLITS:
        first = [pre_tokenizers.Split(Regex(SPLITS[family]), "isolated")]
        made.pre_tokenizer = pre_tokenizers.Sequence(
            first + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if family in SINGLE_DIGITS else []
        made.pre_tokenizer = pre_tokenizers.Sequence(
            digits + [pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    return made, key("eos_token_id")


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--limit", type=int, help="tokens at most")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args(args)
    made, end = tokenizer(args.model)
    kind = np.uint16 if args.out.endswith(".u16") else np.uint32
    if not args.out.endswith((".u16", ".u32")):
        parser.error(f"--out {args.out}: expected a name that ends with .u16 or .u32")
    if made.get_vocab_size() > np.iinfo(kind).max + 1:
        parser.error(f"--out {args.out}: {made.get_vocab_size()} tokens need .u32")
    written = 0
    with whole_or_nothing(args.out) as beside, open(beside, "wb") as out:
        for path in args.files:
            with open(path, encoding="utf-8", errors="replace") as text:
                ids = made.encode(text.read(), add_special_tokens=False).ids + [end]
            if args.limit:
                ids = ids[:args.limit - written]
            out.write(np.array(ids, kind).tobytes())
            written += len(ids)
            if args.limit and written >= args.limit:
                break
    print(f"wrote {args.out}: {written} tokens")


if __name__ == "__main__":
    main()
