"""Draft extend through the engine's own CUDA graph runners, for tests of the fixes of its replay: code for a fresh process."""

SPECULATIVE = (
    "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "4", "--cuda-graph-bs", "1", "2", "4", "--max-running-requests", "8",
)  # fmt: skip

#: `error_of(backend, model, …)`: attention of a replay against float64, of requests whose tokens are `prefix` before the step
HEAD = f"""
import torch
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.lab import emulators
from attnfix.patches.lab.sglang import captured, construction, engine
from attnfix.patches.lab.proof import replaced

PREFIX, ROWS, ACCEPTED = [20, 31, 9], [3, 1, 5], [1, 4, 2]
SPECULATIVE = {SPECULATIVE!r}
draw = torch.Generator().manual_seed(5)

def states():
    import attnfix
    return {{row["fix"]: (row["state"], row["counters"]["corrections"]) for row in attnfix.status()}}
"""

TRITON = """
def recorded(backend):
    return lambda graph: replaced(backend, "extend_attention_fwd", graph.recorded(backend.extend_attention_fwd))

def models_of(served, backends):
    return [captured.DraftModel(served, one, recorded(one), 4 * 8) for one in backends]

def filled(served):
    keys, values = (buffer(0) for buffer in (served.token_to_kv_pool.get_key_buffer, served.token_to_kv_pool.get_value_buffer))
    for cache in (keys, values):
        cache.copy_(torch.randn(cache.shape, generator=draw))
    for row, prefix in zip(ROWS, PREFIX):
        served.request(prefix + 4, row)
    return keys, values

def stage(served, model, front, caches):
    # The window of a layer begins `front` tokens before the step, and ends with it
    model.q.copy_(torch.randn(model.q.shape, generator=draw))
    table, width = served.req_to_token_pool.req_to_token, 4 + front
    for at, (row, prefix) in enumerate(zip(ROWS, PREFIX)):
        slots = table[row, prefix - front : prefix + 4].long()
        for rows, cache in zip((model.k, model.v), caches):
            rows[at * width : (at + 1) * width] = cache[slots]

def error_of(served, model, front, caches):
    table, width, worst = served.req_to_token_pool.req_to_token, 4 + front, 0.0
    q = model.q.unflatten(1, (model.layer.tp_q_head_num, -1))
    for at, (row, prefix) in enumerate(zip(ROWS, PREFIX)):
        rows, slots = slice(at * width, (at + 1) * width), table[row, : prefix + 4].long()
        right = emulators.attention(q[rows], *(cache[slots] for cache in caches), model.layer.scaling, causal=True)[0]
        out = model.out[rows].view(right.shape).double()
        error = float((out - right).norm() / right.norm())
        worst = max(worst, error if error == error else float("inf"))
    return worst
"""

#: The draft extend of every layer under --enable-multi-layer-eagle: the error of each
MULTI_LAYER = (
    HEAD
    + TRITON
    + """
served = construction.serve("--attention-backend", "triton", "--enable-multi-layer-eagle", *SPECULATIVE, window=True)
backends = [served.backend("triton_backend:TritonAttnBackend") for _ in range(3)]
models, caches = models_of(served, backends), filled(served)
graphs = served.multi_layer_draft_extend(backends, models)

def errors():
    for layer, model in enumerate(models):
        stage(served, model, layer, caches)
    batch = served.draft_extend_batch(PREFIX, ROWS, ACCEPTED, graphs.get_runner(0))
    captured.multi_layer_step(graphs, batch, ACCEPTED)
    return [error_of(served, model, layer, caches) for layer, model in enumerate(models)]
"""
)

#: The same of a server with one draft layer
ONE_LAYER = (
    HEAD
    + TRITON
    + """
served = construction.serve("--attention-backend", "triton", *SPECULATIVE)
backend = served.backend("triton_backend:TritonAttnBackend")
(model,), caches = models_of(served, [backend]), filled(served)
graphs = served.draft_extend(backend, model)

def errors():
    stage(served, model, 0, caches)
    graphs.replay(served.draft_extend_batch(PREFIX, ROWS, ACCEPTED, graphs))
    return [error_of(served, model, 0, caches)]
"""
)

#: The same of a DeepSeek model on TRT-LLM MLA, whose decode kernel is emulated
MLA = (
    HEAD
    + """
from contextlib import contextmanager
from types import SimpleNamespace

served = construction.serve(
    "--attention-backend", "trtllm_mla", "--page-size", "32", *SPECULATIVE, config=construction.DEEPSEEK,
    tokens=2048, blackwell=True,
)
file = engine.module("layers.attention.trtllm_mla_backend")
backend = served.backend("trtllm_mla_backend:TRTLLMMLABackend")

@contextmanager
def recorded(graph):
    kernel = graph.recorded(emulators.trtllm_batch_decode_with_kv_cache_mla)
    file.flashinfer = SimpleNamespace(decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache_mla=kernel))
    yield

cache = served.token_to_kv_pool.get_key_buffer(0)
cache.copy_(torch.randn(cache.shape, generator=draw))
for row, prefix in zip(ROWS, PREFIX):
    served.request(prefix + 4, row)
model = captured.DraftModel(served, backend, recorded, 4 * 8)
graphs = served.draft_extend(backend, model)

def errors():
    model.q.copy_(torch.randn(model.q.shape, generator=draw))
    graphs.replay(served.draft_extend_batch(PREFIX, ROWS, ACCEPTED, graphs))
    worst, heads, lora = 0.0, model.layer.tp_q_head_num, model.layer.v_head_dim
    for at, (row, prefix) in enumerate(zip(ROWS, PREFIX)):
        rows = slice(4 * at, 4 * at + 4)
        latent = cache[served.req_to_token_pool.req_to_token[row, : prefix + 4].long()].expand(-1, heads, -1)
        q = model.q[rows].unflatten(1, (heads, -1))
        right = emulators.attention(q, latent, latent[..., :lora], model.layer.scaling, causal=True)[0]
        worst = max(worst, float((model.out.view(-1, heads, lora)[rows].double() - right).norm() / right.norm()))
    return [worst]
"""
)
