"""Losses of a retrofit. States are what the last norm gives, [tokens, width]."""

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

# Tokens whose logits exist at once: a vocabulary of 150,000 makes 2.4 GB of 4,096.
TOKENS_AT_ONCE = 4096


def kl(student, teacher, reverse):
    """Sum over tokens of KL(teacher, student), or KL(student, teacher). Logits: [tokens, words]."""
    s, t = student.float().log_softmax(-1), teacher.float().log_softmax(-1)
    a, b = (s, t) if reverse else (t, s)
    return F.kl_div(b, a, reduction="sum", log_target=True)


def _in_parts(function, *tensors):
    """Sum of function over parts of the tokens; on the way back each part is computed anew."""
    total = 0
    for part in zip(*(t.split(TOKENS_AT_ONCE) for t in tensors)):
        total = total + checkpoint(function, *part, use_reentrant=False,
                                   preserve_rng_state=False)
    return total


def distillation(student, student_head, teacher, teacher_head, reverse=False):
    """Mean over tokens of the divergence of next-token distributions, T = 1 (003, 4)."""

    def part(s, t):
        return kl(F.linear(s, student_head), F.linear(t, teacher_head), reverse)

    return _in_parts(part, student, teacher) / len(student)


def language_model(student, student_head, next_tokens):
    """Mean cross-entropy of the text itself."""

    def part(s, labels):
        return F.cross_entropy(F.linear(s, student_head).float(), labels, reduction="sum")

    return _in_parts(part, student, next_tokens) / len(student)


def too_few_marks(shares, target):
    """Mean over texts of max(a* - marked share, 0) (003, 3.2): one-sided, so a text that marks more
    is not held back. Times layers and kv heads it is the paper's sum per token."""
    return (target - shares).clamp(min=0).mean()
