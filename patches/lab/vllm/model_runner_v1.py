"""The V1 model runner behind the scheduler of `scheduling`, for what it keeps of a step for the next one: 0.19.0-0.33.0.

Real: the scheduler, the cache manager and the config, for a hybrid model with MTP; the runner and its batch, by their own
constructors; and of the runner `_update_states`, `_prepare_inputs`, `_update_states_after_model_execute`, `_bookkeeping_sync`
and all that they call on the host. Not run, and done here in its place and order: what `execute_model` and `sample_tokens` do
besides. Emulated: the layers, the sampler and the drafter (tokens are drawn), the kernel that finds slots, the kernels that
move states in mode "align" (no state is moved: its count stays), and the engine that copies to the host. A copy of the counts
lands when the talk says so, and at the latest when the runner waits for its event.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Observation, replaced

from .scheduling import SCHEDULER, Case, Engine, Served

RUNNER = "vllm.v1.worker.gpu_model_runner"
DRAFTS = 2
_BLOCK = 16
#: When a copy lands. The first is an idle GPU, the last one that is behind
AT_ONCE, BEFORE_CLOSING, BEFORE_ORDERING, WHEN_WAITED = MOMENTS = (
    "at once", "before gaps are closed", "before rows are ordered", "when waited for"
)  # fmt: skip


class _CopyEngine:
    """Copies of the counts that are on their way to the host."""

    def __init__(self, moment: str):
        self.moment = moment
        self.under_way: list[tuple[Any, Any]] = []

    def copy(self, there: Any, values: Any) -> None:
        self.under_way.append((there, values.clone()))
        self.at(AT_ONCE)

    def at(self, moment: str) -> None:
        if self.moment == moment:
            self.land()

    def land(self) -> None:
        while self.under_way:
            there, values = self.under_way.pop(0)
            there.copy_(values)


class _Event:
    """Of a device: who waits for it has the copies that were under way."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.copies: _CopyEngine | None = None

    def record(self, *args: Any) -> None: ...

    def synchronize(self) -> None:
        if self.copies:
            self.copies.land()


class _Stream:
    def __init__(self, *args: Any, **kwargs: Any): ...

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...


@contextmanager
def streams() -> Iterator[None]:
    """Streams and events of a GPU, whose work is done when it is asked for."""
    import torch

    with ExitStack() as stack:
        for owner, name, value in (
            (torch, "Event", _Event),
            (torch.cuda, "Event", _Event),
            (torch.cuda, "Stream", _Stream),
            (torch.cuda, "current_stream", lambda device=None: _Stream()),
            (torch.cuda, "stream", lambda stream: nullcontext()),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield


class Counting:
    """The engine's scheduler and runner. Each row of a step says behind how many tokens of the last one it continues."""

    def __init__(self, engine: Engine, seed: int):
        import torch

        self.engine, self.draw = engine, random.Random(seed)
        self.ahead = engine.config.scheduler_config.async_scheduling
        self.align = engine.config.cache_config.mamba_cache_mode == "align"
        self.runner = runner = import_module(RUNNER).GPUModelRunner(engine.config, torch.device("cpu"))
        sizes = [group.kv_cache_spec.block_size for group in engine.kv_cache_config.kv_cache_groups]
        of_kernels = "kernel_block_sizes" in signature(runner.may_reinitialize_input_batch).parameters
        runner.may_reinitialize_input_batch(engine.kv_cache_config, *[sizes] * of_kernels)
        runner.kv_cache_config = engine.kv_cache_config
        runner.reorder_batch_threshold = 1 + engine.drafts  # as Gated DeltaNet's metadata has it
        runner.model = SimpleNamespace(get_mamba_state_copy_func=lambda: None)
        runner._get_mamba_state_copy_funcs = lambda: None  # from 0.33.0
        buffers = _moves_no_state(runner.max_num_reqs)
        runner._get_mamba_bufs = runner._get_mamba_copy_bufs = lambda: buffers
        self.copies = _CopyEngine(AT_ONCE)
        runner.num_accepted_tokens_event.copies = self.copies
        batch = runner.input_batch
        batch.block_table.compute_slot_mapping = lambda *args, **kwargs: None
        _before(batch, "condense", lambda: self.copies.at(BEFORE_CLOSING))
        _before(runner, "_may_reorder_batch", lambda: self.copies.at(BEFORE_ORDERING))
        self.accepted: dict[str, int] = {}  # of those that were sampled in the last step
        self.answered: set[str] = set()
        self.wrong: set[str] = set()
        self.seen: list[Any] = []

    def ask(self, answered: tuple[int, int]) -> None:
        """A new prompt, some of which begin as others do."""
        begin = [self.draw.choice((3, 4))] * self.draw.choice((0, 0, 2 * _BLOCK))
        prompt = begin + [self.draw.randrange(5, 128) for _ in range(self.draw.randint(4, 40))]
        self.engine.add(prompt, self.draw.randint(*answered))

    def run(self, step: Any) -> dict[str, list[int]]:
        """The tokens that each request gets."""
        runner = self.runner
        correct = runner._update_states(step)
        for name in (*step.finished_req_ids, *(step.preempted_req_ids or ()), *step.scheduled_cached_reqs.resumed_req_ids):
            self.accepted.pop(name, None)
        if not step.total_num_scheduled_tokens:
            return {}
        return self._compute(step, correct)

    def _compute(self, step: Any, correct: Any) -> dict[str, list[int]]:
        import numpy as np

        runner, batch = self.runner, self.runner.input_batch
        names = list(batch.req_ids)
        runner._prepare_inputs(step, np.array([step.num_scheduled_tokens[name] for name in names], dtype=np.int32))
        counts = runner.num_accepted_tokens.gpu[: len(names)]
        if self.align:  # where states are moved first, by what the host has
            counts = batch.num_accepted_tokens_cpu_tensor[: len(names)]
        computed, prompts = (array[: len(names)].tolist() for array in (batch.num_computed_tokens_cpu, batch.num_prompt_tokens))
        # Who reads its count: all that have a state, where it may be moved by the host; else those that have drafts accepted
        begun = [held > 0 if self.align else held >= prompt for held, prompt in zip(computed, prompts)]
        right = [self.accepted.get(name, 1) for name in names]
        for name, goes_on, one, other in zip(names, begun, counts.tolist(), right):
            if goes_on:
                self.answered.add(name)
            if goes_on and one != other:
                self.wrong.add(name)
        self.seen.append((names, counts.tolist(), runner.num_computed_tokens[: len(names)].tolist()))
        if correct:
            correct()
        return self._sample(step, names)

    def _sample(self, step: Any, names: list[str]) -> dict[str, list[int]]:
        import torch

        runner, batch = self.runner, self.runner.input_batch
        unknown = runner.discard_request_mask.np[: len(names)].tolist()  # still at their prompts
        ids = torch.full((len(names), 1 + self.engine.drafts), -1)
        sampled: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            drafts = len(step.scheduled_spec_decode_tokens.get(name, ()))
            tokens = [self.draw.randrange(3, 128) for _ in range(1 + self.draw.randint(0, drafts))]
            ids[at, : len(tokens)] = torch.tensor(tokens)
            if not unknown[at]:
                sampled[name] = tokens
        self.accepted = {name: len(tokens) for name, tokens in sampled.items()}
        runner._update_states_after_model_execute(ids, step)
        batch.prev_sampled_token_ids = runner.valid_sampled_token_count_gpu = None
        runner._draft_token_ids = torch.ones(len(names), self.engine.drafts, dtype=torch.int32)
        counts = torch.tensor([len(sampled.get(name, ())) for name in names], dtype=torch.int32)
        runner._copy_valid_sampled_token_count(ids[:, 0].int(), counts)
        output = import_module("vllm.v1.outputs").SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)
        if not self.ahead:  # its tokens are copied to the host behind the counts, and waited for
            self.copies.land()
        given = dict(
            scheduler_output=step, sampler_output=output, logits=None, hidden_states=torch.zeros(1, 1),
            num_scheduled_tokens=step.total_num_scheduled_tokens, spec_decode_metadata=None,
        )  # fmt: skip
        wanted = signature(runner._bookkeeping_sync).parameters
        runner._bookkeeping_sync(**{name: value for name, value in given.items() if name in wanted})
        return sampled

    def observe(self) -> Observation:
        return Observation(len(self.wrong) / len(self.answered), hashlib.sha256(repr(self.seen).encode()).hexdigest())


def _before(owner: Any, name: str, then: Any) -> None:
    real = getattr(owner, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        then()
        return real(*args, **kwargs)

    setattr(owner, name, function)


def _copied(server: Counting) -> Any:
    """Inside, what is copied to the host's counts without a wait is given to the engine that copies."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    memory = server.runner.input_batch.num_accepted_tokens_cpu_tensor.untyped_storage().data_ptr()

    class Copied(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is Tensor.copy_ and kwargs.get("non_blocking") and args[0].untyped_storage().data_ptr() == memory:
                server.copies.copy(*args[:2])
                return args[0]
            return function(*args, **kwargs)

    return Copied()


def _moves_no_state(rows: int) -> Any:
    """The buffers of mode "align" in steps in which no state fills its block: the counts are all that goes to the host."""
    import torch

    counts, at = torch.zeros(rows, dtype=torch.int32), SimpleNamespace(gpu=None)

    def run_fused_postprocess(num_reqs: int, num_accepted_tokens_gpu: Any, **others: Any) -> None:
        counts[:num_reqs] = num_accepted_tokens_gpu[:num_reqs]

    postprocess = SimpleNamespace(
        is_initialized=True, num_accepted_tokens_out=counts, run_fused_postprocess=run_fused_postprocess,
        mamba_state_idx_buf=at, num_scheduled_tokens_buf=at, num_computed_tokens_buf=at, num_draft_tokens_buf=at,
    )  # fmt: skip
    spec = SimpleNamespace(block_size=1 << 30)
    return SimpleNamespace(postprocess_align=postprocess, mamba_group_ids=[], mamba_spec=spec, offset=0)


def requests(
    arrive: float, together: int, answered: tuple[int, int], moment: str = AT_ONCE, steps: int = 60
) -> Callable[[Counting], None]:
    """Requests come one by one, each with this chance, while fewer than so many wait. moment: when copies land.

    The scheduler is a step ahead of what is sampled, where it is asynchronous.
    """

    def talk(server: Counting) -> None:
        server.copies.moment = moment
        under_way: list[Any] = []
        with _copied(server):
            for _ in range(steps):
                while len(server.engine.scheduler.waiting) < together and server.draw.random() < arrive:
                    server.ask(answered)
                while len(under_way) > server.ahead:
                    server.engine.finish(*under_way.pop(0))
                step = server.engine.schedule()
                under_way.append((step, server.run(step)))

    return talk


class RunnerV1(Served):
    """Base of the proofs. `needs` is of the runner's module."""

    modules: tuple[str, ...] = (RUNNER, SCHEDULER)
    kind = Counting

    def run(self, case: Case, seed: int) -> Observation:
        """A function that the engine compiles runs as it is written: to compile it takes longer than all else here."""
        import torch

        with streams(), torch.compiler.set_stance("force_eager"):
            return super().run(case, seed)
