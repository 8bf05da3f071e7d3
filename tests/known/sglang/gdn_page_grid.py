"""sglang.gdn-page-grid: which position's state the engine keeps under which key, with pages of 128 tokens.

python tests/known/sglang/gdn_page_grid.py RELEASE      exit code 1: the bug is there
"""

import sys
from types import SimpleNamespace

from attnfix.compat.releases import fetch
from attnfix.prove import stubs

PAGE, CHUNK = 128, 64  # tokens of a page; tokens behind each of which the kernel leaves a state
PROMPTS = (128, 130, 200, 256, 300, 330, 640, 29123)
#: What the engine's helpers read from its settings
SETTINGS = {
    "mamba_cache_chunk_size": lambda: max(CHUNK, PAGE),
    "mamba_extra_buffer_lazy_enabled": lambda: False,
    "get_global_server_args": lambda: SimpleNamespace(
        mamba_cache_chunk_size=max(CHUNK, PAGE), page_size=PAGE, enable_mamba_extra_buffer_lazy=lambda: False
    ),
}  # fmt: skip


def main(release: str) -> int:
    import torch

    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    from sglang.srt.layers.attention import hybrid_linear_attn_backend as backends
    from sglang.srt.managers import schedule_batch as batches

    for module in filter(None, (backends, batches, sys.modules.get("sglang.srt.runtime_context"))):
        for name in SETTINGS.keys() & vars(module).keys():
            setattr(module, name, SETTINGS[name])
    pool = SimpleNamespace(get_mamba_ping_pong_other_idx=lambda index: 1 - index)
    model = SimpleNamespace(hf_text_config=SimpleNamespace())
    batch = SimpleNamespace(req_to_token_pool=pool, tree_cache=SimpleNamespace(page_size=PAGE), model_config=model)
    backend = SimpleNamespace(device="cpu", mamba_chunk_size=CHUNK)
    wrong = []
    for tokens in PROMPTS:
        request = SimpleNamespace(prefix_indices=[], extend_input_len=tokens, extend_range=SimpleNamespace(length=tokens))
        request.mamba_next_track_idx, request.mamba_branching_seqlen = 0, None
        request.mamba_ping_pong_track_buffer, request.kv = torch.tensor([7, 8]), request
        entry = batches.ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend(batch, request)
        step = SimpleNamespace(
            mamba_track_mask=torch.tensor([entry.track_mask]), mamba_track_indices=torch.tensor([entry.track_index]),
            mamba_track_seqlens=torch.tensor([entry.track_seqlen]), extend_seq_lens=torch.tensor([tokens]),
            extend_prefix_lens=torch.tensor([0]),
        )  # fmt: skip
        states, *_ = backends.MambaAttnBackendBase._init_track_ssm_indices(backend, torch.tensor([3]), step)
        position = int(states[0]) * CHUNK if len(states) else tokens
        key = request.mamba_last_track_seqlen
        wrong += [f"key {key} has the state of {position}"] if position != key else []
    print(f"sglang {release}: {len(wrong)} of {len(PROMPTS)} wrong", *wrong[-1:], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
