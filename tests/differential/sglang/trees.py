"""sgl_kernel's operators on speculative trees, which releases before 0.5.15 have no Triton twin of.

Source: `build_tree_efficient` and `VerifyTreeGreedy` in `eagle_utils.cu` of sgl_kernel 0.3.
"""

from __future__ import annotations

from typing import Any

_FULL = 0  # of the modes of a mask: beside the tree's own tokens it has all those before them


def build_tree_kernel_efficient(
    parents: Any, selected: Any, seq_lens: Any, mask: Any, positions: Any, index: Any, next_token: Any, next_sibling: Any,
    topk: int, depth: int, drafted: int, mode: int,
) -> None:  # fmt: skip
    """Positions, links and masks of `drafted` tokens for each request, of which the first is its last verified one.

    parents: [requests, topk * (depth - 1) + 1], the token of the tree that each group of `topk` hangs on; selected:
    [requests, drafted - 1], which tokens of the whole tree were taken; index, next_token, next_sibling: [requests, drafted],
    -1 where there is none; mask: flat bools, `drafted` rows of each request.
    """
    if int(mode) > 1:
        raise NotImplementedError("a packed mask")
    begin = 0
    for b, length in enumerate(seq_lens.tolist()):
        taken, hangs = selected[b].tolist(), parents[b].tolist()
        before = [_parent(taken, hangs, at, topk) for at in range(drafted - 1)]  # 0 is the root, i + 1 the token taken i-th
        width = length + drafted if int(mode) == _FULL else drafted
        rows = mask[begin : begin + drafted * width].view(drafted, width)
        begin += rows.numel()
        rows[:, -drafted:] = False
        rows[:, -drafted] = True
        for token in range(drafted):
            at, steps = token, 0
            while at:
                rows[token, at - drafted] = True
                at, steps = before[at - 1], steps + 1
            positions[b * drafted + token] = length + steps
            index[b, token] = b * drafted + token
        for token in range(drafted - 1, 0, -1):
            parent = before[token - 1]
            next_sibling[b, token] = next_token[b, parent]
            next_token[b, parent] = token


def _parent(taken: list[int], hangs: list[int], at: int, topk: int) -> int:
    group = taken[at] // topk
    return taken.index(hangs[group]) + 1 if group else 0


def verify_tree_greedy(
    predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, retrive_index: Any, retrive_next_token: Any,
    retrive_next_sibling: Any, target_predict: Any,
) -> None:  # fmt: skip
    """Follow what the target says down each tree. candidates: [requests, drafted]; target_predict: a token for each of them."""
    said = target_predict.flatten()
    for b in range(len(candidates)):
        last, accepted, at = int(retrive_index[b, 0]), 0, 0
        accept_index[b, 0] = last
        while accepted + 1 < accept_index.shape[1]:
            at = int(retrive_next_token[b, at])
            while at != -1 and candidates[b, at] != said[last]:
                at = int(retrive_next_sibling[b, at])
            if at == -1:
                break
            predicts[last] = said[last]
            accepted, last = accepted + 1, int(retrive_index[b, at])
            accept_index[b, accepted] = last
        accept_token_num[b] = accepted
        predicts[last] = said[last]
