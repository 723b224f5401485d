"""Gates, recurrent states and latent attention in plain float64 loops; shares no code with the package."""

import math

import numpy as np


def sigmoid(x):
    x = np.asarray(x, np.float64)
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def softmax(x):
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def causal_conv(x, history, taps):
    """-> the output and the history after it."""
    inputs = [row.astype(np.float64) for row in (*history, *x)]
    count = taps.shape[1]
    output = np.zeros(x.shape)
    for t in range(len(x)):
        for tap in range(count):
            output[t] += taps[:, tap] * inputs[t + tap]
    return output * sigmoid(output), np.array(inputs[len(inputs) - count + 1 :]).reshape(count - 1, -1)


def forget_gate(z, bias, rate, lower_bound):
    decay = np.empty(z.shape)
    for (t, h, d), value in np.ndenumerate(z.astype(np.float64)):
        raw = value + float(bias[h, d])
        if lower_bound is None:
            decay[t, h, d] = math.exp(-float(rate[h]) * (max(raw, 0) + math.log1p(math.exp(-abs(raw)))))
        else:
            decay[t, h, d] = math.exp(lower_bound * float(sigmoid(float(rate[h]) * raw)))
    return decay


def delta_rule(q, k, v, beta, decay, state):
    """-> the output and the state after it."""
    q, k, v, beta, decay = (a.astype(np.float64) for a in (q, k, v, beta, decay))
    state = state.astype(np.float64)
    output = np.zeros(v.shape)
    for t in range(len(q)):
        for h in range(state.shape[0]):
            kept = np.diag(decay[t, h]) @ state[h]
            error = v[t, h] - kept.T @ k[t, h]
            state[h] = kept + beta[t, h] * np.outer(k[t, h], error)
            output[t, h] = state[h].T @ q[t, h]
    return output, state


def latent_attention(q, cache, rank, start, scale):
    q, cache = q.astype(np.float64), cache.astype(np.float64)
    output = np.zeros((*q.shape[:2], rank))
    for t, h in np.ndindex(*q.shape[:2]):
        seen = cache[: start + t + 1]
        output[t, h] = softmax(scale * (seen @ q[t, h])) @ seen[:, :rank]
    return output


def matmul_heads(matrix, x, offset, rows, transposed):
    per_head = len(matrix) // x.shape[1]
    output = []
    for h in range(x.shape[1]):
        block = matrix[h * per_head + offset : h * per_head + offset + rows].astype(np.float64)
        output.append(x[:, h] @ (block if transposed else block.T))
    return np.stack(output, axis=1)


def attention_residual(sources, query, eps):
    output = np.zeros(sources[0].shape)
    for t in range(len(output)):
        mine = [source[t].astype(np.float64) for source in sources]
        scores = np.array([s @ query / math.sqrt((s @ s) / len(s) + eps) for s in mine])
        for share, s in zip(softmax(scores), mine, strict=True):
            output[t] += share * s
    return output
