"""Model Runner V1 and the pinned memory of its inputs, on a GPU that is behind: 0.14.0-0.33.0.

Real: the config, the runner by its own constructor, its buffers of inputs, `synchronize_input_prep`, and `_pool` with the wait
for what it returns. Emulated: the GPU, which does its work in the order of submission, copies at once where nothing is before
them, and a forward pass when somebody waits for it; that pass, which reads the inputs; and the rest of the step.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, replaced

from .construction import DENSE, Worker
from .model_runner_v1 import RUNNER

_STEPS = 6


class Case(NamedTuple):
    """A server of one request a step: `tokens` of each step, and whether a prompt ends in it."""

    pooling: bool = False
    ahead: bool = False
    chunked: bool = True
    tokens: tuple[int, ...] = (48,) * _STEPS
    ends: tuple[bool, ...] = (False,) * (_STEPS - 1) + (True,)


class Gpu:
    def __init__(self) -> None:
        self.submitted = self.done = 0
        self.work: list[tuple[bool, Callable[[], Any]]] = []  # (whether it takes time, what it does), the oldest first

    def submit(self, work: Callable[[], Any], takes_time: bool = False) -> None:
        self.work.append((takes_time, work))
        self.submitted += 1
        while self.work and not self.work[0][0]:
            self._next()

    def finish(self, until: int | None = None) -> None:
        while self.work and (until is None or self.done < until or not self.work[0][0]):
            self._next()

    def _next(self) -> None:
        self.work.pop(0)[1]()
        self.done += 1


@contextmanager
def driven(gpu: Gpu) -> Iterator[None]:
    import torch

    class Event:
        def __init__(self, *args: Any, **kwargs: Any):
            self.at = 0

        def record(self, *args: Any) -> None:
            self.at = gpu.submitted

        def synchronize(self) -> None:
            gpu.finish(self.at)

    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=gpu.finish)
    with ExitStack() as stack:
        for owner, name, value in (
            (torch, "Event", Event),
            (torch.cuda, "Event", Event),
            (torch.cuda, "Stream", lambda *args, **kwargs: stream),
            (torch.cuda, "current_stream", lambda device=None: stream),
            (torch.cuda, "default_stream", lambda device=None: stream),
            (torch.cuda, "stream", lambda other: nullcontext()),
            (torch.cuda, "synchronize", lambda device=None: gpu.finish()),
            (torch.accelerator, "synchronize", lambda device=None: gpu.finish()),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield


def _copied(gpu: Gpu, buffer: Any) -> Any:
    """Inside, copies out of the buffer that nobody waits for are the GPU's work."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    memory = buffer.cpu.untyped_storage().data_ptr()

    class Copied(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is Tensor.copy_ and kwargs.get("non_blocking") and args[1].untyped_storage().data_ptr() == memory:
                gpu.submit(lambda: args[0].copy_(args[1]))
                return args[0]
            return function(*args, **kwargs)

    return Copied()


class InputPrep(Cases):
    modules = (RUNNER,)
    measure = "share of tokens that are computed in the place of others"

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        gpu = Gpu()
        scheduler = {"async_scheduling": case.ahead, "enable_chunked_prefill": case.chunked}
        more: dict[str, Any] = {"scheduler": scheduler, "model_config": {}}
        if case.pooling:
            more["model_config"] = {"runner": "pooling"}
        try:
            worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", **more)
        except ValueError as error:  # the engine refuses
            raise NoSuchPath(str(error)) from error
        with driven(gpu), worker, torch.inference_mode():
            runner = import_module(RUNNER).GPUModelRunner(worker.config, torch.device("cpu"))
            with _copied(gpu, runner.input_ids), _gpu_platform():
                return _serve(case, gpu, runner, random.Random(seed))


def _serve(case: Case, gpu: Gpu, runner: Any, draw: random.Random) -> Observation:
    import torch

    given: list[Any] = []
    seen: list[Any] = []
    computed = 0
    for tokens, ends in zip(case.tokens, case.ends):
        given.append(torch.tensor([draw.randrange(5, 128) for _ in range(tokens)], dtype=torch.int32))
        with runner.synchronize_input_prep():
            runner.input_ids.np[:tokens] = given[-1].numpy()
            there = runner.input_ids.copy_to_gpu(tokens)
        gpu.submit(partial(_read, there, seen), takes_time=True)
        computed += tokens
        if case.pooling:
            output = _pooled(runner, tokens, computed, computed if ends else computed + 1)
            if hasattr(output, "get_output"):
                output.get_output()
    gpu.finish()
    out, right = torch.cat(seen), torch.cat(given)
    return Observation(float((out != right).double().mean()), hashlib.sha256(out.numpy().tobytes()).hexdigest())


def _read(there: Any, seen: list[Any]) -> None:
    seen.append(there.clone())


def _pooled(runner: Any, tokens: int, computed: int, prompt: int) -> Any:
    """What the runner returns for the step of a request whose prompt is computed so far."""
    import numpy as np
    import torch

    params = [SimpleNamespace(late_interaction_params=None)]
    cursor = SimpleNamespace(get_finished_mask=lambda: [computed == prompt])
    metadata = SimpleNamespace(
        prompt_lens=torch.tensor([prompt]), pooling_params=params, build_pooling_cursor=lambda *args, **kwargs: None,
        get_pooling_cursor=lambda: cursor,
    )  # fmt: skip
    runner.input_batch = SimpleNamespace(
        num_reqs=1, pooling_params={"request": None}, get_pooling_metadata=lambda: metadata, req_ids=["request"],
        req_id_to_index={"request": 0},
    )  # fmt: skip
    lengths = runner.optimistic_seq_lens_cpu if hasattr(runner, "optimistic_seq_lens_cpu") else runner.seq_lens.cpu
    lengths[0] = computed
    runner.model = SimpleNamespace(pooler=lambda **kwargs: [torch.zeros(1)])
    return runner._pool(torch.zeros(tokens, 1), tokens, np.array([tokens], dtype=np.int32), None)


@contextmanager
def _gpu_platform() -> Iterator[None]:
    """The runner's module asks its platform whether streams are those of CUDA."""
    platform = type(import_module("vllm.platforms").current_platform)
    with replaced(platform, "is_cuda_alike", lambda self: True):
        yield
