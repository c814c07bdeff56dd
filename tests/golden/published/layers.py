"""Made-up sequences as tensors, and the decisions of published code carried out on them."""
import torch


def of_layer(sequence, layer, vector, positions):
    """Keys or values of the layer's kv heads, with the position as one more channel.

    [1, heads, rows, head_dim + 1]
    """
    return torch.tensor([[[[*vector(layer, head, p), p] for p in positions]
                          for head in range(sequence.KV_HEADS)]], dtype=torch.float64)


def positions_of(rows):
    """What that channel says, a list for each head."""
    return rows[0, ..., -1].long().tolist()


def masses(sequence, group, queries):
    """Attention of the group's query heads, 0 for later rows; [heads, queries, rows]."""
    given = torch.zeros(len(sequence.q_heads(group)), len(queries), len(sequence.alive[group]),
                        dtype=torch.float64)
    for i, query in enumerate(queries):
        of_query = torch.from_numpy(sequence.masses(group, query))
        given[:, i, :of_query.shape[1]] = of_query
    return given


def run(sequence, step_of, steps):
    """As sequence.run(): prefill, then decode steps, `step_of` being the published code's.

    step_of(step, queries) returns for each group the positions left after the step, and the scores
    of the rows before its decision, or None.
    """
    seen = []
    for step in range(steps + 1):
        queries = range(sequence.prompt)
        if step > 0:
            for rows in sequence.alive:
                rows.append(sequence.now)
            queries = [sequence.now]
            sequence.now += 1
        results = step_of(step, queries)
        groups = [{"positions": rows} for rows in sequence.alive]
        for seen_of_group, (_, scores) in zip(groups, results):
            if scores is not None:
                seen_of_group["scores"] = [round(score, 7) for score in scores]
        sequence.alive = [list(left) for left, _ in results]
        if step in (0, 1, steps // 3, steps - steps // 8, steps):
            seen.append({"step": step, "groups": groups})
    return seen
