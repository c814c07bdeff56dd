"""A Hugging Face tokenizer as GGUF's keys. Needs no torch.

Byte-level BPE alone, read from tokenizer.json: what Qwen and Llama 3 have. How a text is cut before
the merges has a name in GGUF and is a list of rules in tokenizer.json.
"""

import gguf

from shards import BadCheckpoint, read_json

QWEN_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA_WORDS = QWEN_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
# The rules -> tokenizer.ggml.pre. "bytes": GPT-2's rule, which belongs to the step that maps bytes.
CUTS = {(("words", QWEN_WORDS),): "qwen2",
        (("words", LLAMA_WORDS),): "llama-bpe",
        (("digits", True), ("bytes",)): "smollm",
        (("bytes",),): "gpt-2"}


def _steps(step):
    """The steps of a pre-tokenizer or decoder, those of a sequence one by one."""
    if not step:
        return []
    inner = step.get("pretokenizers") or step.get("decoders")
    return [s for part in inner for s in _steps(part)] if inner else [step]


def _rules(steps):
    for step in steps:
        kind = step.get("type")
        if kind == "Split":
            yield "words", (step.get("pattern") or {}).get("Regex")
        elif kind == "Digits":
            yield "digits", step.get("individual_digits")
        elif kind != "ByteLevel":
            yield "other", kind
        elif step.get("use_regex", True):
            yield ("bytes",)


def cut_name(tokenizer, path):
    """The name GGUF has for how `tokenizer`, the contents of `path`, cuts a text."""
    rules = tuple(_rules(_steps(tokenizer.get("pre_tokenizer"))))
    if rules not in CUTS:
        raise BadCheckpoint(
            f"{path} cuts texts by {list(rules)}, which is none of {', '.join(CUTS.values())}: "
            "say by --pre NAME what GGUF calls it")
    return CUTS[rules]


def _type(added):
    """An added token's kind. Qwen and others do not mark all of their control tokens as special."""
    text = added["content"]
    if added.get("special") or (text.startswith("<|") and text.endswith("|>")):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.USER_DEFINED


def _tokens(tokenizer, path, num_words):
    """Texts and types, one for each row of the embedding."""
    model = tokenizer["model"]
    texts, types = [None] * num_words, [gguf.TokenType.NORMAL] * num_words
    added_tokens = tokenizer.get("added_tokens") or []
    for text, number in [*model["vocab"].items(),
                         *((added["content"], added["id"]) for added in added_tokens)]:
        if not 0 <= number < num_words:
            raise BadCheckpoint(f"{path}: token {text!r} is number {number}, but the model has "
                                f"{num_words} tokens")
        if texts[number] not in (None, text):
            raise BadCheckpoint(f"{path}: {texts[number]!r} and {text!r} are both token {number}")
        texts[number] = text
    for added in added_tokens:
        types[added["id"]] = _type(added)
    for number, text in enumerate(texts):
        if text is None:  # rows that only fill the embedding up
            texts[number], types[number] = f"[PAD{number}]", gguf.TokenType.UNUSED
    return texts, types


def add_vocabulary(writer, folder, num_words, cut=None):
    """cut: the name of how texts are cut, where tokenizer.json's rules are not known."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise BadCheckpoint(f"{folder} holds no tokenizer.json: give the folder of the base "
                            "model's tokenizer by --tokenizer")
    tokenizer = read_json(path)
    model = tokenizer.get("model") or {}
    byte_level = any(step.get("type") == "ByteLevel" for kind in ("pre_tokenizer", "decoder")
                     for step in _steps(tokenizer.get(kind)))
    if (model.get("type", "BPE") != "BPE" or not byte_level or not model.get("merges")
            or not isinstance(model.get("vocab"), dict)):
        raise BadCheckpoint(f"{path}: expected byte-level BPE with merges")
    texts, types = _tokens(tokenizer, path, num_words)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut or cut_name(tokenizer, path))
    writer.add_token_list(texts)
    writer.add_token_types(types)
    try:
        special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=num_words)
    except ValueError as error:
        raise BadCheckpoint(f"{folder}: the tokenizer's files do not fit together: "
                            f"{error}") from None
    special.add_to_gguf(writer, quiet=True)
