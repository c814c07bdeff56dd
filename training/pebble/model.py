"""A small decoder of the Llama family: what pebble is, and what ebb runs it as."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    vocab_size: int = 512
    context: int = 2048
    embed_dim: int = 128
    num_layers: int = 4
    num_q_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    feed_forward_dim: int = 256
    rope_base: float = 100000.0
    norm_epsilon: float = 1e-5


def rope_table(shape, device):
    """Cosines and sines, [context, head_dim / 2] each."""
    channels = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float64)
    speeds = shape.rope_base ** (-channels / shape.head_dim)
    angles = torch.arange(shape.context, device=device, dtype=torch.float64)[:, None] * speeds
    return angles.cos().float(), angles.sin().float()


def rotate(x, cosines, sines):
    """Neighbouring channels are a pair, as in GGUF's Llama. x: [batch, heads, tokens, head_dim]."""
    pairs = x.float().unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), dim=-1)
    return turned.flatten(-2).to(x.dtype)


# Query tokens that a CPU works on at once: those after them are never looked at, and scores of some
# megabytes stay in its cache. Three times as fast as all at once, twice as fast as the fused kernel.
CHUNK = 128


def attend(q, k, v):
    """Causal attention. q, k, v: [batch, heads, tokens, head_dim]; fewer heads of k and v than of q
    serve several of q each."""
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    batch, num_q_heads, num_tokens, head_dim = q.shape
    num_kv_heads = k.shape[1]
    group = num_q_heads // num_kv_heads
    mixed = []
    for begin in range(0, num_tokens, CHUNK):
        end = min(begin + CHUNK, num_tokens)
        visible = torch.ones(end - begin, end, dtype=torch.bool, device=q.device).tril(begin)
        # The heads of a group stand below each other: they share k and v.
        queries = q[:, :, begin:end].reshape(batch, num_kv_heads, group * (end - begin), head_dim)
        scores = (queries @ k[:, :, :end].mT).float() * head_dim ** -0.5
        scores = scores.view(batch, num_kv_heads, group, end - begin, end)
        weights = torch.where(visible, scores, float("-inf")).softmax(-1).to(v.dtype)
        weights = weights.view(batch, num_kv_heads, group * (end - begin), end)
        out = weights @ v[:, :, :end]
        mixed.append(out.view(batch, num_q_heads, end - begin, head_dim))
    return torch.cat(mixed, dim=2)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.embed_dim, shape.num_q_heads * shape.head_dim, bias=False)
        self.k = nn.Linear(shape.embed_dim, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v = nn.Linear(shape.embed_dim, shape.num_kv_heads * shape.head_dim, bias=False)
        self.out = nn.Linear(shape.num_q_heads * shape.head_dim, shape.embed_dim, bias=False)

    def forward(self, x, cosines, sines):
        def heads(projected):  # [batch, heads, tokens, head_dim]
            return projected.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

        q = rotate(heads(self.q(x)), cosines, sines)
        k = rotate(heads(self.k(x)), cosines, sines)
        mixed = attend(q, k, heads(self.v(x)))
        return self.out(mixed.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate = nn.Linear(shape.embed_dim, shape.feed_forward_dim, bias=False)
        self.up = nn.Linear(shape.embed_dim, shape.feed_forward_dim, bias=False)
        self.down = nn.Linear(shape.feed_forward_dim, shape.embed_dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x, cosines, sines):
        x = x + self.attention(self.attention_norm(x), cosines, sines)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Pebble(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab_size, shape.embed_dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.embed_dim, eps=shape.norm_epsilon)
        cosines, sines = rope_table(shape, "cpu")
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                fan_in = weight.shape[1]
                scale = 0.02 if name == "embedding.weight" else 0.5 / math.sqrt(fan_in)
                if name.endswith(("out.weight", "down.weight")):
                    scale /= math.sqrt(2 * shape.num_layers)
                nn.init.normal_(weight, std=scale)

    def compile_blocks(self):
        """All blocks share what is compiled, once for each length."""
        for block in self.blocks:
            block.compile(dynamic=False)

    def forward(self, tokens):
        """Logits [batch, tokens, vocab_size] of the next token. tokens: [batch, tokens]."""
        num_tokens = tokens.shape[1]
        x = self.embedding(tokens)
        cosines, sines = self.cosines[:num_tokens], self.sines[:num_tokens]
        for block in self.blocks:
            x = block(x, cosines, sines)
        return F.linear(self.norm(x), self.embedding.weight)
