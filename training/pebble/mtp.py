"""Trains a layer for multi-token prediction (MTP) onto pebble, and writes both as one GGUF.

usage: mtp.py --problems PROGRAM --trunk pebble.gguf --out pebble-mtp.gguf

The file's family is MiMo-V2 without experts and windows: its trunk is pebble's, and its MTP layer is
a block of the same shape. The layer reads a token with the trunk's hidden row of the token before,
and predicts the token after. It reads a guess with its own hidden row.
"""

import argparse
import collections
import json
import random
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import data
from export import tensor_name, write_shape, write_tokenizer
from model import CHUNK, Block, Pebble, Shape, rotate
from muon import Muon
from train import WEIGHTS, Check, to_device

TYPE = gguf.GGMLQuantizationType.Q8_0


def quantized(weight):
    """A matrix as the file holds it; norms stay as they are."""
    values = weight.float().numpy()
    return gguf.quants.quantize(values, TYPE) if values.ndim == 2 else values


def rounded(state):
    return {name: torch.from_numpy(gguf.quants.dequantize(quantized(weight), TYPE))
            if weight.ndim == 2 else weight for name, weight in state.items()}


def load_trunk(path):
    """Pebble of a GGUF, its matrices rounded to the type of the file to write."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    trunk = Pebble(Shape(vocab_size=len(tensors[tensor_name("embedding.weight")].data)))
    state = {name: torch.from_numpy(tensors[tensor_name(name)].data.astype(np.float32))
             for name in trunk.state_dict()}
    trunk.load_state_dict(rounded(state))
    return trunk.requires_grad_(False)


@torch.no_grad()
def hidden_rows(trunk, tokens):
    """Rows [batch, tokens, embed_dim] before the last norm."""
    num_tokens = tokens.shape[1]
    x = trunk.embedding(tokens)
    for block in trunk.blocks:
        x = block(x, trunk.cosines[:num_tokens], trunk.sines[:num_tokens])
    return x


def shifted(x, count=1):
    """x: [..., tokens, width], each row moved `count` tokens on; zeros come first."""
    return F.pad(x, (0, 0, count, 0))[..., :x.shape[-2], :]


def attend(q, keys, values):
    """Attention of a guess. keys, values: of the layer's read of the text, then of each guess on the
    way to this one, which is the last. All: [batch, heads, tokens, head_dim]. A query sees the text up
    to the token before the first guess, and the guesses behind it."""
    num_guesses = len(keys) - 1
    group = q.shape[1] // keys[0].shape[1]
    keys = [k.repeat_interleave(group, dim=1) for k in keys]
    values = [v.repeat_interleave(group, dim=1) for v in values]
    scale = q.shape[-1] ** -0.5
    own_keys = [shifted(k, num_guesses - i) for i, k in enumerate(keys[1:], 1)]
    own_values = [shifted(v, num_guesses - i) for i, v in enumerate(values[1:], 1)]
    mixed = []
    for begin in range(0, q.shape[2], CHUNK):
        end = min(begin + CHUNK, q.shape[2])
        some = slice(begin, end)
        visible = torch.ones(end - begin, end, dtype=torch.bool).tril(begin - num_guesses)
        scores = (q[:, :, some] @ keys[0][:, :, :end].mT).masked_fill(~visible, -1e9)
        own = [(q[:, :, some] * k[:, :, some]).sum(-1, keepdim=True) for k in own_keys]
        weights = (torch.cat([scores, *own], -1).float() * scale).softmax(-1).to(q.dtype)
        out = weights[..., :end] @ values[0][:, :, :end]
        for i, v in enumerate(own_values):
            out = out + weights[..., end + i, None] * v[:, :, some]
        mixed.append(out)
    return torch.cat(mixed, dim=2)


class MtpLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.token_norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)
        self.row_norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)
        self.join = nn.Linear(2 * shape.embed_dim, shape.embed_dim, bias=False)
        self.block = Block(shape)
        self.norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)

    def forward(self, trunk, tokens, rows, keys, values):
        """The layer's hidden rows. rows: of the token before each. Appends to `keys` and `values` those
        of this guess."""
        block, attention = self.block, self.block.attention
        num_tokens, head_dim = tokens.shape[1], attention.shape.head_dim
        cosines, sines = trunk.cosines[:num_tokens], trunk.sines[:num_tokens]
        x = self.join(torch.cat((self.token_norm(trunk.embedding(tokens)), self.row_norm(rows)), -1))
        normed = block.attention_norm(x)
        q, k, v = (project(normed).unflatten(-1, (-1, head_dim)).transpose(1, 2)
                   for project in (attention.q, attention.k, attention.v))
        keys.append(rotate(k, cosines, sines))
        values.append(v)
        mixed = attend(rotate(q, cosines, sines), keys, values)
        x = x + attention.out(mixed.transpose(1, 2).flatten(-2))
        return x + block.feed_forward(block.feed_forward_norm(x))


def guesses(trunk, layer, tokens, rows, count):
    """Logits [batch, tokens, vocab_size] of the next token, for each of `count` guesses: those of the
    guess with index i come from the trunk's row of i + 1 tokens before."""
    keys, values = [], []
    for _ in range(count):
        rows = layer(trunk, tokens, shifted(rows), keys, values)
        yield F.linear(layer.norm(rows), trunk.embedding.weight)


def loss_of(trunk, layer, tokens, kinds, rows, count):
    next_tokens = F.pad(tokens[:, 1:], (0, 1)).flatten()
    weights = WEIGHTS[F.pad(kinds[:, 1:], (0, 1)).flatten().long()]
    total = 0
    for logits in guesses(trunk, layer, tokens, rows, count):
        losses = F.cross_entropy(logits.flatten(0, 1).float(), next_tokens, reduction="none")
        total = total + (losses * weights).sum()
    return total / (count * weights.sum())


@torch.no_grad()
def check(groups, trunk, layer, count):
    """For each guess: how often it is right where those before it are, in thoughts and answers."""
    right, asked = [0] * count, [0] * count
    for problems, (tokens, kinds) in groups:
        # is_left[:, t]: token t + 1 is to be guessed, and the guesses before were right.
        is_left = kinds[:, 1:] > 0
        is_left[len(problems):] = False
        rows = hidden_rows(trunk, tokens)
        for i, logits in enumerate(guesses(trunk, layer, tokens, rows, count)):
            hits = logits[:, :-1].argmax(-1) == tokens[:, 1:]
            asked[i] += int(is_left.sum())
            right[i] += int((is_left & hits).sum())
            # The next guess is of one token later.
            is_left = F.pad((is_left & hits)[:, :-1], (1, 0)) & (kinds[:, 1:] > 0)
            is_left[len(problems):] = False
    return [round(r / a, 4) for r, a in zip(right, asked)]


def train(args, trunk, layer):
    device = torch.device("cpu")
    matrices = [w for w in layer.parameters() if w.ndim == 2]
    norms = [w for w in layer.parameters() if w.ndim != 2]
    optimizers = [Muon(matrices, args.muon_lr, weight_decay=0.01),
                  torch.optim.AdamW(norms, args.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)]
    peaks = (args.muon_lr, args.adam_lr)
    stream = data.Stream(args.problems, data.TRAINING_SEED + args.seed, 0, 1, (0, 10, 40))
    batches = data.Prefetch(data.Batches(stream, args.batch_tokens))
    groups = Check(args, device).groups
    began = time.monotonic()
    kept = collections.deque(maxlen=100)  # batches, which are read twice on average
    step, progress, losses = 0, 0.0, []
    while progress < 1:
        # One guess is learnt first, then several in a row.
        count = args.guesses if progress > 0.5 else 1
        for optimizer, peak in zip(optimizers, peaks):
            for group in optimizer.param_groups:
                group["lr"] = peak * min(1.0, (step + 1) / 20, 2 * (1 - progress))
        if step % 2 == 0:
            tokens, kinds = to_device(batches.next()[0], device)
            batch = (tokens, kinds, hidden_rows(trunk, tokens))
            kept.append(batch)
        else:
            batch = random.choice(kept)
        loss = loss_of(trunk, layer, *batch, count)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step += 1
        progress = (time.monotonic() - began) / (60 * args.minutes)
        if step % args.check_every == 0 or progress >= 1:
            shares = check(groups, trunk, layer, args.guesses)
            write(args, trunk, layer)
            print(json.dumps(dict(step=step, loss=round(sum(losses) / len(losses), 4), right=shares,
                                  processor_seconds=round(time.process_time()))), flush=True)
            losses = []
    batches.close()
    stream.close()


def half_split(weight, head_dim):
    """Rows of a matrix of queries or keys in the order of MiMo-V2's RoPE, where the first half of a
    head's channels turns with the second half."""
    heads = weight.view(-1, head_dim // 2, 2, weight.shape[1])
    return heads.transpose(1, 2).reshape(weight.shape)


def write(args, trunk, layer):
    shape = trunk.shape
    writer = gguf.GGUFWriter(args.out, "mimo2")
    write_shape(writer, shape, num_mtp_layers=1)
    num_blocks = shape.num_layers + 1
    writer.add_nextn_predict_layers(1)
    writer.add_expert_feed_forward_length(shape.feed_forward_dim)
    # The family has windows; that of the MTP layer is as long as the context.
    writer.add_sliding_window(shape.context)
    writer.add_rope_freq_base_swa(shape.rope_base)
    writer.add_sliding_window_pattern([block == shape.num_layers for block in range(num_blocks)])
    write_tokenizer(writer, data.vocabulary(args.problems))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)

    def add(name, weight):
        values = quantized(weight)
        writer.add_tensor(name, values, raw_dtype=TYPE if weight.ndim == 2 else None)

    state = dict(trunk.state_dict())
    prefix = f"blocks.{shape.num_layers}."
    state.update({prefix + name: weight for name, weight in layer.block.state_dict().items()})
    for block in range(num_blocks):
        q, k, v = (state.pop(f"blocks.{block}.attention.{part}.weight") for part in "qkv")
        joined = torch.cat((half_split(q, shape.head_dim), half_split(k, shape.head_dim), v))
        add(f"blk.{block}.attn_qkv.weight", joined)
    for name, weight in state.items():
        add(tensor_name(name), weight)
    add("output.weight", trunk.embedding.weight)  # which the family does not share
    for name, weight in (("eh_proj", layer.join.weight), ("enorm", layer.token_norm.weight),
                         ("hnorm", layer.row_norm.weight),
                         ("shared_head_norm", layer.norm.weight)):
        add(f"blk.{shape.num_layers}.nextn.{name}.weight", weight.detach())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", required=True, help="the program pebble_problems")
    parser.add_argument("--trunk", required=True, help="pebble.gguf")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="rates fall with the clock")
    parser.add_argument("--guesses", type=int, default=3, help="the layer learns so many in a row")
    parser.add_argument("--batch-tokens", type=int, default=1 << 11)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--check-every", type=int, default=50)
    parser.add_argument("--check-problems", type=int, default=8)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    trunk = load_trunk(args.trunk)
    layer = MtpLayer(trunk.shape)
    train(args, trunk, layer)


if __name__ == "__main__":
    main()
