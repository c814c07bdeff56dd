"""Decoders of the Llama, Qwen2 and Qwen3 families from GGUF files, with a place for eviction marks.

What ebb computes, in PyTorch: weights keep the names that the file gives them.
"""

import dataclasses

import gguf
import numpy as np
import torch
import torch.nn.functional as F

from attention import attend
from marks import HardDecisions, SoftDecisions
from model_marks import ADAPTER, QUERY, Marks

# How RoPE pairs channels: neighbours, or channel i with i + half.
PAIRS_NEIGHBOURS = {"llama": True, "qwen2": False, "qwen3": False}


@dataclasses.dataclass(frozen=True)
class Shape:
    family: str
    num_layers: int
    embed_dim: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    rope_base: float
    rope_scale: float  # positions are divided by it
    norm_epsilon: float
    context: int

    @property
    def group(self):
        return self.num_q_heads // self.num_kv_heads


def _read_shape(fields):
    family = fields["general.architecture"].contents()
    if family not in PAIRS_NEIGHBOURS:
        raise ValueError(f"family {family!r}: expected one of {', '.join(PAIRS_NEIGHBOURS)}")

    def key(name, default=None):
        field = fields.get(f"{family}.{name}")
        if field is None and default is None:
            raise ValueError(f"{family}.{name} is missing")
        return default if field is None else field.contents()

    scaling = key("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ValueError(f"{family}.rope.scaling.type {scaling!r}: expected none or linear")
    num_q_heads, embed_dim = key("attention.head_count"), key("embedding_length")
    return Shape(family=family, num_layers=key("block_count"), embed_dim=embed_dim,
                 num_q_heads=num_q_heads,
                 num_kv_heads=key("attention.head_count_kv", num_q_heads),
                 head_size=key("attention.key_length", embed_dim // num_q_heads),
                 rope_base=key("rope.freq_base", 10000.0),
                 rope_scale=key("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
                 norm_epsilon=key("attention.layer_norm_rms_epsilon"),
                 context=key("context_length"))


def read_marks(fields):
    """The file's Marks, or None."""
    family = fields["general.architecture"].contents()

    def key(name, default):
        field = fields.get(f"{family}.attention.dms.{name}")
        return default if field is None else field.contents()

    layout = key("layout", None)
    if layout is None:
        return None
    return Marks(layout=layout, window=key("window", 512), scale=key("alpha_scale", 100.0),
                 offset=key("alpha_offset", 5.0), shift=key("shift", 1))


class Decoder:
    """weights: name in the file -> tensor in float32. marks: None for a model without."""

    def __init__(self, shape, weights, marks=None):
        self.shape, self.weights, self.marks = shape, weights, marks
        device = weights["token_embd.weight"].device
        channels = torch.arange(0, shape.head_size, 2, dtype=torch.float64)
        speeds = shape.rope_base ** (-channels / shape.head_size) / shape.rope_scale
        if "rope_freqs.weight" in weights:
            speeds = speeds / weights["rope_freqs.weight"].double().cpu()
        angles = torch.arange(shape.context, dtype=torch.float64)[:, None] * speeds
        self.cosines, self.sines = angles.cos().float().to(device), angles.sin().float().to(device)

    @staticmethod
    def load(path, device="cpu"):
        reader = gguf.GGUFReader(path)
        weights = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            shape = [int(n) for n in reversed(tensor.shape)]
            values = np.array(values, dtype=np.float32, copy=True).reshape(shape)
            weights[tensor.name] = torch.from_numpy(values).to(device)
        return Decoder(_read_shape(reader.fields), weights, read_marks(reader.fields))

    def with_marks(self, marks):
        """A copy whose weights are its own and that marks rows: in the query layout the channels that
        carry the logits are left as they are, in the adapter's layout its norm is 1 and its product 0."""
        weights = {name: w.clone() for name, w in self.weights.items()}
        if marks.layout == ADAPTER:
            for layer in range(self.shape.num_layers):
                like = weights["token_embd.weight"]
                weights[f"blk.{layer}.attn_dms_alpha_norm.weight"] = like.new_ones(
                    self.shape.embed_dim)
                weights[f"blk.{layer}.attn_dms_alpha.weight"] = like.new_zeros(
                    self.shape.num_kv_heads, self.shape.embed_dim)
        return Decoder(self.shape, weights, marks)

    @property
    def window(self):
        """How far behind it a query sees every row, or None where nothing is evicted."""
        return self.marks.window if self.marks else None

    def soft_decisions(self, lengths, noise, tau):
        """For `states`, in training."""
        return SoftDecisions(self.marks, lengths, noise, tau)

    def hard_decisions(self, lengths):
        """For `states`, as at inference."""
        return HardDecisions(self.marks, lengths)

    def mark_rows(self):
        """Rows of attn_q, and elements of its bias, that carry the logits: the last channel of each
        group's first head."""
        s = self.shape
        return torch.arange(s.num_kv_heads) * s.group * s.head_size + s.head_size - 1

    def clear_mark_rows(self):
        """As the paper has it once the neuron is faded out (003, App. B): what the rows held would be
        noise in the logits."""
        rows = self.mark_rows()
        with torch.no_grad():
            for layer in range(self.shape.num_layers):
                self.weights[f"blk.{layer}.attn_q.weight"][rows] = 0
                bias = self.weights.get(f"blk.{layer}.attn_q.bias")
                if bias is not None:
                    bias[rows] = 0

    @property
    def head(self):
        """[words, width]: tied to the embedding where the file has no matrix of its own."""
        return self.weights.get("output.weight", self.weights["token_embd.weight"])

    def _norm(self, x, name):
        return F.rms_norm(x.float(), x.shape[-1:], self.weights[name], self.shape.norm_epsilon)

    def _product(self, x, name):
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _rotate(self, x):
        """x: [batch, heads, tokens, head size]."""
        num_tokens = x.shape[2]
        cosines, sines = self.cosines[:num_tokens], self.sines[:num_tokens]
        x = x.float()
        if PAIRS_NEIGHBOURS[self.shape.family]:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cosines - b * sines, a * sines + b * cosines), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cosines - b * sines, a * sines + b * cosines), -1)

    def _plain_queries(self, normed, layer):
        """Before RoPE, [batch, q heads, tokens, head size]."""
        q = self._product(normed, f"blk.{layer}.attn_q").unflatten(-1, (-1, self.shape.head_size))
        q = q.transpose(1, 2)
        if f"blk.{layer}.attn_q_norm.weight" in self.weights:
            q = self._norm(q, f"blk.{layer}.attn_q_norm.weight")
        return q

    def _queries(self, normed, layer, factor):
        """Queries behind RoPE, and the channels that carry the logits before it: both
        [batch, heads, tokens, ...], the latter None in other layouts."""
        s = self.shape
        q = self._plain_queries(normed, layer)
        if self.marks is None or self.marks.layout != QUERY:
            return self._rotate(q), None
        channels = q[:, ::s.group, :, -1]
        keep = torch.ones(s.num_q_heads, 1, s.head_size, device=q.device)
        keep[::s.group, :, -1] = factor
        return self._rotate(q * keep) * keep, channels

    def channels(self, x, normed, layer, factor=0.0):
        """Queries and the channels that carry the eviction logits. x: the residual before the
        layer's norm, normed: behind it."""
        q, channels = self._queries(normed, layer, factor)
        if self.marks is not None and self.marks.layout == ADAPTER:
            y = self._norm(x, f"blk.{layer}.attn_dms_alpha_norm.weight")
            channels = self._product(y, f"blk.{layer}.attn_dms_alpha").transpose(1, 2)
        return q, channels

    def keys_and_values(self, normed, layer):
        """Keys before RoPE and values, [batch, kv heads, tokens, head size]."""

        def heads(name):
            return self._product(normed, name).unflatten(-1, (-1, self.shape.head_size)).transpose(
                1, 2)

        k = heads(f"blk.{layer}.attn_k")
        if f"blk.{layer}.attn_k_norm.weight" in self.weights:
            k = self._norm(k, f"blk.{layer}.attn_k_norm.weight")
        return k, heads(f"blk.{layer}.attn_v")

    def _feed_forward(self, x, layer):
        y = self._norm(x, f"blk.{layer}.ffn_norm.weight")
        gate = F.silu(self._product(y, f"blk.{layer}.ffn_gate"))
        return x + self._product(gate * self._product(y, f"blk.{layer}.ffn_up"),
                                 f"blk.{layer}.ffn_down")

    def attend(self, x, layer, decide, factor):
        """The layer's attention, [batch, q heads, tokens, head size]."""
        normed = self._norm(x, f"blk.{layer}.attn_norm.weight")
        q, channels = self.channels(x, normed, layer, factor)
        k, v = self.keys_and_values(normed, layer)
        bias, window = None, 0
        if decide is not None:
            bias, window = decide(layer, self.marks.logits(channels)), self.marks.window
        return attend(q.to(v.dtype), self._rotate(k).to(v.dtype), v, bias, window)

    def states(self, tokens, decide=None, factor=0.0):
        """What the last norm gives, [batch, tokens, width]. tokens: [batch, tokens].
        decide(layer, logits) gives the bias of a layer's rows (marks.py); without it nothing is
        evicted. factor: of the channels that carry logits, where they are still fading."""
        x = F.embedding(tokens, self.weights["token_embd.weight"])
        for layer in range(self.shape.num_layers):
            mixed = self.attend(x, layer, decide, factor)
            x = x + self._product(mixed.transpose(1, 2).flatten(-2), f"blk.{layer}.attn_output")
            x = self._feed_forward(x, layer)
        return self._norm(x, "output_norm.weight")

    def logits(self, tokens, decide=None, factor=0.0):
        """[batch, tokens, words]."""
        return F.linear(self.states(tokens, decide, factor), self.head)
