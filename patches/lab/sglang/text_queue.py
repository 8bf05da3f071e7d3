"""A server of texts to embed: its scheduler's part, on a machine without a GPU.

    server = text_queue.Server(Scheduler, BERT, page, chunk, cached, unified)
    server.embed(text); …; server.run()
    server.wrong, server.tokens  # of the KV that texts have read

Real: `ServerArgs`, `ModelConfig`, the pools and their allocator, the radix cache, `Req`, the scheduler's handling of a request,
`PrefillAdder`, `ScheduleBatch` with its preparation for prefill, and the processing of its result. Played: the scheduler's
loop, and the model. It writes into a token's slot what that token has seen: in an encoder all that its prefill has, else the
tokens up to it.
"""

from __future__ import annotations

import zlib
from array import array
from types import SimpleNamespace
from typing import Any

from . import construction, tracked_states
from .engine import accepted, module

BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2,
    "num_hidden_layers": 1, "vocab_size": 64, "max_position_embeddings": 512, "type_vocab_size": 2, "pad_token_id": 0,  # nosec B105
    "torch_dtype": "float16",
}  # fmt: skip
#: A decoder that embeds
MISTRAL = {**construction.LLAMA, "max_position_embeddings": 512, "architectures": ["MistralModel"], "model_type": "mistral"}


class Server(tracked_states.Server):
    """`unified`: with the radix cache of all models in the newest releases; without `cached`: --disable-radix-cache."""

    generates = False

    def __init__(
        self, scheduler: type, config: dict[str, Any], page: int, chunk: int, cached: bool = True, unified: bool = False,
        flags: tuple[str, ...] = ("--attention-backend", "torch_native"),
    ):  # fmt: skip
        import torch

        flags += ("--chunked-prefill-size", str(chunk), "--page-size", str(page))
        flags += () if cached else ("--disable-radix-cache",)
        served = self.served = construction.serve(*flags, config=config, requests=16, draft=False)
        self.encodes, self.overlap, self.args = config["architectures"] != ["MistralModel"], False, served.server_args
        self.pool, self.allocator = served.req_to_token_pool, served.token_to_kv_pool_allocator
        self.slots, self.rows = self.allocator.available_size(), self.pool.available_size()
        self.tree = _tree(served, unified)
        self.processor = self._processor()
        self.seen = torch.zeros(self.slots + page, dtype=torch.int64)
        self.wrong = self.tokens = self.arrived = 0
        #: Of each batch, how many tokens of a text were cached, and how many are computed
        self.batches: list[Any] = []
        self.scheduler = type("Queue", (scheduler,), {"__init__": _init, "_add_request_to_queue": _queue})(self)

    def embed(self, text: list[int]) -> None:
        self.arrived += 1
        io, wanted = module("managers.io_struct"), module("sampling.sampling_params").SamplingParams(max_new_tokens=0)
        wanted.normalize(None)
        given = {"rid": f"text-{self.arrived}", "input_text": "", "sampling_params": wanted}
        given["input_ids"] = array("q", text) if hasattr(module("managers.schedule_batch"), "array") else text
        given |= dict.fromkeys(("image_inputs", "mm_inputs", "token_type_ids"))
        self.scheduler.handle_embedding_request(io.TokenizedEmbeddingReqInput(**accepted(io.TokenizedEmbeddingReqInput, given)))

    def run(self) -> bool:
        """Batches, until the queue is empty. False where a text is cut: its first part is wrong, or right, by itself; and where
        no text gets a place in a batch."""
        while self.scheduler.waiting_queue:
            if not self.step():
                return False
        return True

    def step(self, prefill: bool = True) -> bool:
        schedule, policy, queue = module("managers.schedule_batch"), module("managers.schedule_policy"), self.scheduler
        adder = policy.PrefillAdder(
            self.tree.page_size, self.tree, self.allocator, schedule.ScheduleBatch(reqs=[], batch_is_full=False), 0.5,
            queue.max_prefill_tokens, queue.chunked_prefill_size,
        )  # fmt: skip
        for request in queue.waiting_queue:
            request.init_next_round_input(self.tree)
            more = accepted(adder.add_one_req, {"truncation_align_size": getattr(queue, "truncation_align_size", None)})
            if adder.add_one_req(request, has_chunked_req=False, **more) is not policy.AddReqResult.CONTINUE:
                break
        if not adder.can_run_list:
            return False
        queue.waiting_queue = [one for one in queue.waiting_queue if one not in adder.can_run_list]
        algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        batch = schedule.ScheduleBatch.init_new(
            adder.can_run_list, self.pool, self.allocator, self.tree, self.served.model_config, False, algorithm
        )
        batch.prepare_for_extend()
        rows = self.pool.req_to_token[batch.req_pool_indices]
        for request, row, begin, more in zip(batch.reqs, rows, batch.prefix_lens, batch.extend_lens, strict=True):
            self._forward(list(request.origin_input_ids), row.long(), begin, begin + more)
        self.batches.append(list(zip(batch.prefix_lens, batch.extend_lens)))
        if adder.new_chunked_req is None:
            self.processor.process_batch_result_prefill(batch, _result(len(batch.reqs)))
        return adder.new_chunked_req is None

    def _forward(self, text: list[int], row: Any, begin: int, end: int) -> None:
        """Each token's slot gets what the token has seen."""
        import torch

        def sees(end: int) -> Any:
            ends = [end if self.encodes else at + 1 for at in range(end)]
            return torch.tensor([zlib.crc32(bytes(text[:one])) for one in ends])

        self.seen[row[begin:end]] = sees(end)[begin:]
        whole = sees(len(text))[:end]
        self.wrong += int((self.seen[row[:end]] != whole).sum()) + int(self.encodes and begin > 0)
        self.tokens += end

    def lost(self) -> int:
        """Slots that are neither free nor cached, and rows that are not free."""
        slots = self.slots - self.allocator.available_size() - self.tree.evictable_size()
        return slots + self.rows - self.pool.available_size()


def _init(scheduler: Any, server: Server) -> None:
    """The played loop takes texts as they come, and asks no policy."""
    policies = module("managers.schedule_policy")
    policy = object.__new__(policies.SchedulePolicy)
    policy.policy = policies.CacheAwarePolicy.LPM
    args, context = server.args, module("runtime_context")
    chunk = (context.get_schedule() if hasattr(context, "get_schedule") else args).chunked_prefill_size
    vars(scheduler).update(
        model_config=server.served.model_config, tree_cache=server.tree, max_prefill_tokens=args.max_prefill_tokens,
        chunked_prefill_size=chunk if chunk > 0 else None, chunked_req=None, server_args=args, tokenizer=None,
        max_req_input_len=500, waiting_queue=[], policy=policy,
        kv_events_publisher=SimpleNamespace(enable_kv_cache_events=False),
    )  # fmt: skip


def _queue(scheduler: Any, request: Any) -> None:
    scheduler.waiting_queue.append(request)


def _result(texts: int) -> Any:
    import torch

    none = dict.fromkeys(("copy_done", "pooled_hidden_states", "bid"))
    return SimpleNamespace(embeddings=torch.zeros(texts, 1), can_run_cuda_graph=False, **none)


def _tree(served: Any, unified: bool) -> Any:
    """What the server finds cached prefixes in."""
    context, disabled = module("runtime_context"), served.server_args.disable_radix_cache
    if hasattr(context, "get_memory"):
        disabled = context.get_memory().disable_radix_cache
    given = {
        "req_to_token_pool": served.req_to_token_pool, "token_to_kv_pool_allocator": served.token_to_kv_pool_allocator,
        "page_size": served.page_size, "disable": disabled,
    }  # fmt: skip
    params, chunks = module("mem_cache.cache_init_params"), module("mem_cache.chunk_cache")
    if unified or (disabled and chunks is None):
        parts = module("mem_cache.unified_cache.components") or module("mem_cache.unified_cache_components")  # up to 0.5.16
        given["tree_components"] = (parts.ComponentType.FULL,)
        return module("mem_cache.unified_radix_cache").UnifiedRadixCache(params.CacheInitParams(**given))
    kind = chunks.ChunkCache if disabled else module("mem_cache.radix_cache").RadixCache
    return kind(params.CacheInitParams(**given)) if params else kind(**accepted(kind, given))
