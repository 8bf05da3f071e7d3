"""vllm.mamba-short-tail-block: which states of the convolution a chunk of a prompt leaves in the blocks of cache mode all.

python tests/known/vllm/mamba_short_tail_block.py RELEASE      exit code 1: the bug is there

A correction would copy the initial state of a chunk of up to two tokens into its last block, and let the kernel begin there.
It would then write the state at the first end of a block from the initial state and the chunk's own tokens, where the kernel
leaves that out (up to eight tokens) or reads tokens in front of the chunk (one or two of them in the block). The builder of
the metadata knows such chunks by numbers of the host.
"""

import os
import sys
from types import SimpleNamespace

os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}

import torch

from attnfix.compat.releases import fetch
from attnfix.prove import stubs

CHANNELS, WIDTH, SIZE, COLUMNS = 8, 4, 16, 8
#: (computed tokens, new ones) of each chunk of a step
STEPS = (
    ((16, 2),), ((10, 7),), ((14, 1),), ((0, 20), (15, 20)), ((0, 20), (14, 20)),
    ((0, 20), (13, 20)), ((16, 40),), ((0, 5), (0, 2)),
)  # fmt: skip


def kernel_of(module):
    """Lets the interpreter take masks of integers, and gives the kernel the grid of its programs alone."""
    from triton.runtime import interpreter

    builder = interpreter._interpreter
    own = {name: getattr(builder, name) for name in dir(builder) if not name.startswith("__")}
    own["load"] = lambda at, mask, *more: builder.load(at, mask.astype(bool), *more)
    own["store"] = lambda at, value, mask, *more: builder.store(at, value, mask.astype(bool), *more)
    interpreter._interpreter = SimpleNamespace(**own)
    stock = module._causal_conv1d_fwd_kernel
    programs: list[int] = []
    kernel = type("Kernel", (), {"__getitem__": lambda self, grid: stock[(programs[-1], 1)]})()
    module._causal_conv1d_fwd_kernel = kernel
    return programs


def metadata(lengths):
    """What the builder tells the kernel: one program for eight tokens of a chunk."""
    counts = [-(-length // 8) for length in lengths]
    rows = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], dtype=torch.int32)
    offsets = torch.tensor([at for count in counts for at in range(count)], dtype=torch.int32)
    plan = dict(
        nums=counts, tot=sum(counts), mlist=rows, mlist_len=len(rows), offsetlist=offsets, batch_ptr=rows,
        token_chunk_offset_ptr=offsets,
    )  # fmt: skip
    return SimpleNamespace(nums_dict={8: plan}, batch_ptr=rows, token_chunk_offset_ptr=offsets)


def wrong(module, programs, chunks):
    """Blocks of a step that hold another state than that of the tokens before their end, or of the chunk's end."""
    torch.manual_seed(0)
    table = (1 + torch.arange(COLUMNS * len(chunks), dtype=torch.int32)).view(len(chunks), COLUMNS)
    states = torch.full((1 + table.numel(), WIDTH - 1, CHANNELS), -7.0).transpose(1, 2)
    known = [torch.cat([torch.zeros(WIDTH - 1, CHANNELS), torch.randn(done + new, CHANNELS)]) for done, new in chunks]
    begins = [max((done - 1) // SIZE, 0) for done, _ in chunks]
    firsts, lasts = [done // SIZE for done, _ in chunks], [(done + new - 1) // SIZE for done, new in chunks]
    for row, (done, _) in enumerate(chunks):
        if done:
            states[table[row, begins[row]]] = known[row][done : done + WIDTH - 1].t()
    before = states.clone()
    x = torch.cat([tokens[WIDTH - 1 + done :] for tokens, (done, _) in zip(known, chunks)]).t()
    numbers = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    plan = metadata([new for _, new in chunks])
    programs.append(plan.nums_dict[8]["tot"])
    module.causal_conv1d_fn(
        x, torch.randn(CHANNELS, WIDTH), None, states, numbers([0, *torch.tensor([new for _, new in chunks]).cumsum(0)]),
        cache_indices=table, has_initial_state=torch.tensor([done > 0 for done, _ in chunks]), activation="silu",
        block_idx_first_scheduled_token=numbers(firsts), block_idx_last_scheduled_token=numbers(lasts),
        initial_state_idx=numbers(begins), num_computed_tokens=numbers([done for done, _ in chunks]),
        block_size_to_align=SIZE, metadata=plan,
    )  # fmt: skip
    found = []
    for row, (done, new) in enumerate(chunks):
        for column in range(firsts[row], lasts[row] + 1):
            end = min((column + 1) * SIZE, done + new)
            if not torch.allclose(states[table[row, column]], known[row][end : end + WIDTH - 1].t()):
                found.append(f"{new} tokens behind {done}: the state behind {end}")
        shared = table[row, begins[row]]
        if begins[row] < firsts[row] and not torch.equal(states[shared], before[shared]):
            found.append(f"{new} tokens behind {done}: the cached state that they began with")
    return found


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    from vllm.model_executor.layers.mamba.ops import causal_conv1d
    from vllm.v1.attention.backends import mamba_attn

    if not hasattr(mamba_attn.BaseMambaAttentionMetadataBuilder, "_compute_prefix_caching_block_indices"):
        print(f"vllm {release}: no cache mode all")
        return 0
    programs = kernel_of(causal_conv1d)
    found = [one for chunks in STEPS for one in wrong(causal_conv1d, programs, chunks)]
    print(f"vllm {release}: {len(found)} states are wrong", *found, sep="; ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
