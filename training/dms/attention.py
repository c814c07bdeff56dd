"""Causal attention with a bias per row that counts behind a window, and its gradient.

  scores[q, k] = q . k / sqrt(head size) + (bias[k] where q - k > window, else 0);  -inf where k > q

bias is log(1 - a) of the row's eviction decision a (003, Fig. 2b): 0 keeps, -inf evicts. Three forms
of the same sums: `dense` for tests, `chunked` with a gradient of its own, and `flex` for long texts on a
GPU, which is compiled anew for each shape.
"""

import functools
import math

import torch

# Query tokens that are worked on at once: keys behind them are never looked at. On a CPU the scores stay
# in its cache; a GPU is given few large products.
CPU_CHUNK, GPU_CHUNK = 128, 512
# Tokens from which on a GPU takes `flex`: before, its compilation costs more than it gains.
FLEX_TOKENS = 2049


def distances(begin, end, first_key, device):
    """query - key, [end - begin, end - first_key]."""
    queries = torch.arange(begin, end, device=device)[:, None]
    return queries - torch.arange(first_key, end, device=device)


def dense(q, k, v, bias, window):
    """All scores at once. q: [batch, q heads, tokens, head size]; k, v: [batch, kv heads, ...];
    bias: [batch, kv heads, tokens] or None."""
    group = q.shape[1] // k.shape[1]
    far = distances(0, q.shape[2], 0, q.device)
    scores = q @ k.repeat_interleave(group, 1).mT * q.shape[-1] ** -0.5
    if bias is not None:
        row = bias.repeat_interleave(group, 1)[:, :, None, :]
        scores = scores + torch.where(far > window, row, 0.0)
    scores = torch.where(far >= 0, scores, -math.inf)
    return scores.softmax(-1) @ v.repeat_interleave(group, 1)


def _spans(num_tokens, device):
    chunk = CPU_CHUNK if device.type == "cpu" else GPU_CHUNK
    return [(begin, min(begin + chunk, num_tokens)) for begin in range(0, num_tokens, chunk)]


class _Chunked(torch.autograd.Function):
    """Works through the queries in chunks; keeps the attention weights for the way back, which is
    half of tokens^2 numbers a head."""

    @staticmethod
    def forward(ctx, q, k, v, bias, window):
        batch, num_q_heads, num_tokens, head_size = q.shape
        num_kv_heads = k.shape[1]
        pairs, group = batch * num_kv_heads, num_q_heads // num_kv_heads
        scale = head_size ** -0.5
        queries = q.reshape(pairs, group, num_tokens, head_size)
        keys = k.reshape(pairs, num_tokens, head_size)
        values = v.reshape(pairs, num_tokens, head_size)
        rows = None if bias is None else bias.reshape(pairs, 1, num_tokens)
        out = torch.empty_like(queries)
        kept = []
        for begin, end in _spans(num_tokens, q.device):
            # From here on keys lie in the window of some query.
            near = max(0, begin - window) if rows is not None else begin
            some = queries[:, :, begin:end].reshape(pairs, -1, head_size)
            if rows is None:
                scores = torch.bmm(some * scale, keys[:, :end].mT)
            else:
                far_bias = rows[:, :, :end].clone()
                far_bias[:, :, near:] = 0
                scores = torch.baddbmm(far_bias, some, keys[:, :end].mT, alpha=scale)
            band = scores.view(pairs, group, end - begin, end)[..., near:]
            band += _band(rows, begin, end, near, window, q)
            weights = scores.softmax(-1)
            mixed = torch.bmm(weights, values[:, :end])
            out[:, :, begin:end] = mixed.view(pairs, group, end - begin, head_size)
            kept.append(weights)
        ctx.save_for_backward(queries, keys, values, *kept)
        ctx.shapes = q.shape, k.shape, None if bias is None else bias.shape
        ctx.window = window
        return out.view(q.shape)

    @staticmethod
    def backward(ctx, grad_out):
        queries, keys, values, *kept = ctx.saved_tensors
        q_shape, k_shape, bias_shape = ctx.shapes
        pairs, group, num_tokens, head_size = queries.shape
        scale = head_size ** -0.5
        grad_out = grad_out.reshape(queries.shape)
        grad_q = torch.empty_like(queries)
        grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)
        grad_bias = None if bias_shape is None else queries.new_zeros(pairs, num_tokens)
        for weights, (begin, end) in zip(kept, _spans(num_tokens, queries.device)):
            some = queries[:, :, begin:end].reshape(pairs, -1, head_size)
            given = grad_out[:, :, begin:end].reshape(pairs, -1, head_size)
            grad_v[:, :end].baddbmm_(weights.mT, given)
            grad_weights = torch.bmm(given, values[:, :end].mT)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q[:, :, begin:end] = torch.bmm(grad_scores, keys[:, :end]).mul_(scale).view(
                pairs, group, end - begin, head_size)
            grad_k[:, :end].baddbmm_(grad_scores.mT, some, alpha=scale)
            if grad_bias is not None:
                near = max(0, begin - ctx.window)
                grad_bias[:, :near] += grad_scores[:, :, :near].sum(1)
                behind = _behind(begin, end, near, ctx.window, queries.device)
                band = grad_scores.view(pairs, group, end - begin, end)[..., near:]
                grad_bias[:, near:end] += (band.sum(1) * behind).sum(1)
        return (grad_q.view(q_shape), grad_k.view(k_shape), grad_v.view(k_shape),
                None if grad_bias is None else grad_bias.view(bias_shape), None)


@functools.lru_cache(maxsize=64)
def _ahead(begin, end, near, device):
    """-inf where a key lies ahead of the query, else 0: [end - begin, end - near]."""
    return torch.where(distances(begin, end, near, device) < 0, -math.inf, 0.0)


@functools.lru_cache(maxsize=64)
def _behind(begin, end, near, window, device):
    """Whether a key lies behind the query's window."""
    return distances(begin, end, near, device) > window


def _band(rows, begin, end, near, window, like):
    """What the scores of keys near..end get: [pairs or 1, 1, end - begin, end - near]."""
    ahead = _ahead(begin, end, near, like.device).to(like.dtype)
    if rows is None:
        return ahead
    return torch.where(_behind(begin, end, near, window, like.device), rows[:, :, None, near:end], ahead)


def chunked(q, k, v, bias, window):
    """Shapes as in `dense`."""
    return _Chunked.apply(q, k, v, bias, window)


@functools.lru_cache(maxsize=16)
def _causal_mask(num_tokens, device):
    from torch.nn.attention.flex_attention import create_block_mask
    return create_block_mask(lambda b, h, q, k: q >= k, None, None, num_tokens, num_tokens,
                             device=device)


@functools.cache
def _flex_kernel(compiled):
    from torch.nn.attention.flex_attention import flex_attention
    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention


def flex(q, k, v, bias, window):
    """Shapes as in `dense`. PyTorch's flex attention takes the gradient of a captured bias."""
    group = q.shape[1] // k.shape[1]

    def add_bias(score, b, h, query, key):
        return score + torch.where(query - key > window, bias[b, h // group, key], 0.0)

    return _flex_kernel(q.is_cuda)(
        q, k, v, score_mod=None if bias is None else add_bias,
        block_mask=_causal_mask(q.shape[2], q.device), enable_gqa=group > 1)


def attend(q, k, v, bias=None, window=0):
    """The fastest form for the device. Shapes as in `dense`."""
    if q.is_cuda and q.shape[2] >= FLEX_TOKENS:
        return flex(q, k, v, bias, window)
    return chunked(q, k, v, bias, window)
