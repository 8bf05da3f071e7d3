"""A pool of blocks that layers with and without a window share, on the runners V1 (0.19.0-0.33.0) and V2 (0.19.0-0.26.0).

Real: the config, the layers, and what each keeps in the cache; the scheduler and the cache manager; both runners, by their own
constructors, with their `initialize_kv_cache`, and what they do to requests before a step. Interpreted: the engine's kernels.
Emulated: attention, which reads whole blocks and multiplies what is masked by zero, as kernels do; the operator that writes the
cache; the sampler; a connector, which has written what it brings before the step.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Observation, observe

from .kernels import found
from .model_runner_v1 import streams
from .models import DENSE
from .scheduling import SCHEDULER, Case, Engine, Served, case

__all__ = ["ALL_FULL", "RUNNERS", "WINDOWS", "SharedPool", "case", "talk"]

RUNNERS = {"V1": "vllm.v1.worker.gpu_model_runner", "V2": "vllm.v1.worker.gpu.model_runner"}
_V2, _BUFFERS = "VLLM_USE_V2_MODEL_RUNNER", "vllm.v1.worker.gpu.buffer_utils"
WINDOW, _TOKENS = 40, 128
#: Gemma 3's kinds of layers: three with a window, one without
WINDOWS: dict[str, Any] = {
    **DENSE, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": WINDOW,
    "layer_types": [*["sliding_attention"] * 3, "full_attention"],
}  # fmt: skip
ALL_FULL = {**WINDOWS, "layer_types": ["full_attention"] * 4}


class Pool(Engine):
    """The engine of one of the runners, whose caches are in memory."""

    def __init__(self, model: dict[str, Any] = WINDOWS, *, runner: str = "V1", **more: Any):
        self._runner = runner
        super().__init__(model, **{"blocks": 60, "max_tokens": 64, "context": 256, "max_requests": 4, **more})

    def _add_layers(self) -> None:
        for at, kind in enumerate(self.config.model_config.hf_text_config.layer_types):
            self.worker.layer(at, per_layer_sliding_window=WINDOW if kind == "sliding_attention" else None)

    def _specs(self) -> dict[str, Any]:
        import torch

        self._add_layers()
        self.runner = import_module(RUNNERS[self._runner]).GPUModelRunner(self.config, torch.device("cpu"))
        specs: dict[str, Any] = self.runner.get_kv_cache_spec()
        return specs

    def _construct(self) -> None:
        super()._construct()
        nobody = SimpleNamespace(add_request=_nothing, apply_staged_writes=_nothing, remove_request=_nothing)
        if self._runner == "V2":  # what a model brings
            self.runner.decode_query_len = 1
            self.runner.model_state = self.runner.sampler = self.runner.prompt_logprobs_worker = nobody
        self.runner.initialize_kv_cache(self._cache_of_runner())
        if getattr(self.kv_cache_config, "needs_kv_cache_zeroing", False) and hasattr(self.runner, "_init_kv_zero_meta"):
            self.runner._init_kv_zero_meta()

    def _cache_of_runner(self) -> Any:
        return self.kv_cache_config

    def prepare(self, step: Any) -> None:
        """What the runner does to its requests before it computes a step."""
        runner = self.runner
        if self._runner == "V1":
            with getattr(runner, "synchronize_input_prep", nullcontext)():  # from 0.11.0
                runner._update_states(step)
            return
        for part in (runner.finish_requests, runner.free_states, runner.add_requests, runner.update_requests):
            part(step)
        runner.block_tables.apply_staged_writes()


def _nothing(*args: Any, **kwargs: Any) -> None: ...


class Attending:
    """Requests whose layers attend to what is in the pool."""

    def __init__(self, engine: Pool, seed: int):
        import torch

        self.engine, self.draw = engine, random.Random(seed)
        make = torch.Generator().manual_seed(seed)
        # Of a token and of a place: a prefix that requests share has the same keys and values
        self.of_token, self.of_place = (torch.randn(3, count, 2, 64, generator=make) for count in (_TOKENS, 256))
        self.out: list[Any] = []
        self.reference: list[Any] = []
        for layer in sorted(self._layers(), key=lambda layer: layer.dtype.itemsize):  # the pool was in use for long
            for half in layer.halves:
                half.copy_(torch.randn(half.shape, generator=make).to(layer.dtype))

    def ask(self, prompt: int, output: int, shared: int = 0) -> Any:
        """A prompt of so many tokens, some of which begin as others do."""
        return self.engine.add([3] * shared + [self.draw.randrange(4, _TOKENS) for _ in range(prompt - shared)], output)

    def step(self) -> None:
        self.engine.step(self._run)

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        running, cached = self.engine.scheduler.requests, step.scheduled_cached_reqs
        begun = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        if self.engine.config.kv_transfer_config is not None:
            for name, computed in begun.items():
                for layer in self._layers():
                    layer.empty(name, computed)
                    layer.write(name, self._known(name, range(computed)), range(computed))
        self.engine.prepare(step)
        begun |= dict(zip(cached.req_ids, cached.num_computed_tokens))
        sampled = {}
        for name, new in step.num_scheduled_tokens.items():
            places = range(begun[name], begun[name] + new)
            for layer in self._layers():
                layer.write(name, self._known(name, places), places)
                self._attend(layer, name, places)
            self._recur(name)
            if places.stop >= running[name].num_tokens:
                sampled[name] = [self.draw.randrange(4, _TOKENS)]
        return (sampled,)

    def _known(self, name: str, places: range) -> Any:
        """Queries, keys and values, [3, tokens, heads, d]."""
        tokens = list(self.engine.scheduler.requests[name].all_token_ids)[places.start : places.stop]
        return self.of_token[:, tokens] + self.of_place[:, places.start : places.stop]

    def _attend(self, layer: _Layer, name: str, places: range) -> None:
        """All heads, of the step's queries. `reference`: of the tokens that are seen alone."""
        import torch

        first = max(0, places.start + 1 - layer.window) // layer.size * layer.size if layer.window else 0
        end = -(-places.stop // layer.size) * layer.size
        keys, values = layer.read(name, range(first, end))
        query = self._known(name, places)[0]
        at, of = torch.arange(first, end), torch.tensor(places)[:, None]
        seen = (at <= of) & (at > of - (layer.window or end))
        self.out.append(_attention(query, keys.float(), values.float(), seen))
        known = self._known(name, range(first, places.stop))[1:].to(layer.dtype).double()
        self.reference.append(_attention(query.double(), known[0], known[1], seen[:, : places.stop - first]))

    def _recur(self, name: str) -> None:
        """What the step leaves of the request in layers without attention."""

    def _layers(self) -> Iterator[_Layer]:
        for at, group in enumerate(self.engine.kv_cache_config.kv_cache_groups):
            for name in group.layer_names:
                if type(group.kv_cache_spec).__name__ != "MambaSpec":
                    yield _Layer(self.engine, at, name)

    def observe(self) -> Observation:
        import torch

        return observe(torch.cat(self.out), torch.cat(self.reference))


def _attention(query: Any, keys: Any, values: Any, seen: Any) -> Any:
    """[queries, heads, d]; seen: [queries, tokens]."""
    import torch

    scores = torch.einsum("qhd,khd->hqk", query, keys) / 8
    shares = torch.where(seen, scores, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", shares, values)


class _Layer:
    def __init__(self, engine: Pool, group: int, name: str):
        import torch

        spec = engine.kv_cache_config.kv_cache_groups[group].kv_cache_spec
        layer = engine.config.compilation_config.static_forward_context[name]
        spec = getattr(spec, "kv_cache_specs", {name: spec})[name]
        self.engine, self.group, self.size, self.window = engine, group, spec.block_size, layer.sliding_window
        self.dtype = torch.float8_e4m3fn if spec.dtype == torch.uint8 else spec.dtype
        cache = layer.kv_cache[0] if isinstance(layer.kv_cache, list) else layer.kv_cache  # up to 0.18, of a pipeline's part
        self.halves = _halves(cache.view(self.dtype))

    def write(self, name: str, known: Any, places: range) -> None:
        slots = self._slots(name, places)
        for half, values in zip(self.halves, known[1:]):
            size = half.shape[1]
            mine = slots >= size  # the null block is nobody's
            half[slots[mine] // size, slots[mine] % size] = values[mine].to(self.dtype)

    def empty(self, name: str, tokens: int) -> None:
        """Whole blocks for so many tokens: connectors bring blocks, with whatever their sender has behind the last token."""
        end = -(-tokens // self.size) * self.size
        self.write(name, [None, *[half.new_zeros(end, *half.shape[2:]) for half in self.halves]], range(end))

    def read(self, name: str, places: range) -> list[Any]:
        slots = self._slots(name, places)
        return [half[slots // half.shape[1], slots % half.shape[1]] for half in self.halves]

    def _slots(self, name: str, places: range) -> Any:
        import torch

        blocks = self.engine.scheduler.kv_cache_manager.get_block_ids(name)[self.group]
        return torch.tensor([blocks[place // self.size] * self.size + place % self.size for place in places], dtype=torch.int64)


def _halves(cache: Any) -> tuple[Any, Any]:
    """Keys and values, [blocks of the kernel, tokens, heads, d], of a backend's layout: as `Worker.laid_out` has them."""
    if cache.ndim == 4:
        keys, values = cache.transpose(1, 2).chunk(2, -1)
        return keys, values
    return (cache[0], cache[1]) if cache.shape[0] == 2 else (cache[:, 0], cache[:, 1])


def talk(waves: int = 2, shared: int = 0) -> Callable[[Attending], None]:
    """Waves of requests, each of which begins where the last one decodes."""

    def ask(server: Attending) -> None:
        for _ in range(waves):
            for _ in range(server.draw.choice((1, 2))):
                server.ask(max(shared + 1, server.draw.randint(20, 110)), server.draw.randint(10, 40), shared)
            for _ in range(server.draw.randint(8, 20)):
                server.step()

    return ask


@contextmanager
def served_by(runner: str) -> Iterator[None]:
    """The model runner is asked for, and a GPU sees the host's memory."""
    buffers: Any = found(_BUFFERS) or SimpleNamespace()  # of V2
    buffers.is_uva_available = lambda: True
    for name in [name for name in vars(buffers) if name.startswith("get_") and name.endswith("_view_from_cpu_tensor")]:
        setattr(buffers, name, lambda tensor: tensor)
    former = os.environ.get(_V2)
    os.environ[_V2] = str(int(runner == "V2"))
    try:
        with streams():
            yield
    finally:
        os.environ.pop(_V2)
        os.environ.update({} if former is None else {_V2: former})


class SharedPool(Served):
    """Base of the proofs."""

    modules: tuple[str, ...] = (*RUNNERS.values(), SCHEDULER)
    kernel = "interpreted"
    kind: Any = Attending
    pool: Any = Pool

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        runner = case.launch.get("runner", "V1")
        with served_by(runner), torch.compiler.set_stance("force_eager"), (pool := self.pool(**case.launch)):
            server = self.kind(pool, seed)
            case.talk(server)
            seen: Observation = server.observe()
        return seen
