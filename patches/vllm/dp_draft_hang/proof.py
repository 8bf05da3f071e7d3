"""Proof of vllm.dp-draft-hang: exchanges of a rank that idles, beside those of a rank that drafts.

Real: the config; the runner and its drafter, by their own constructors; the worker's dummy batch, the runner's dummy run, and
all that `EagleProposer.propose` runs in a step; the builder of the layer's metadata; the context of a pass, which exchanges
numbers of tokens. Emulated: the other rank, which answers with the same numbers; and the models, which count their passes.
Spared: one draft, a rank alone, and a run for profiling.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, code_of, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Alone, Worker
from attnfix.patches.lab.vllm.model_runner_v1 import RUNNER, streams
from attnfix.patches.lab.vllm.models import folder_of

from .wrap import repeated

_WORKER, _EAGLE = "vllm.v1.worker.gpu_worker", "vllm.v1.spec_decode.eagle"
_PAGE = 16


class Case(NamedTuple):
    """drafts of a step; ranks; dummy batches in a row. requests: of the rank that drafts. profile: the run is for profiling."""

    drafts: int = 3
    ranks: int = 2
    batches: int = 1
    requests: int = 3
    profile: bool = False


class Proof(Cases):
    modules = (RUNNER, _EAGLE, _WORKER)
    kernel = "none"
    measure = "exchanges that an idle rank makes too often or too rarely, per exchange of a rank that drafts"
    bug = (Case(), Case(drafts=2, ranks=4, requests=1), Case(drafts=5, batches=3))
    spared = (Case(drafts=1), Case(drafts=1, batches=2, requests=1), Case(ranks=1), Case(profile=True))
    broken = {
        "the correction does nothing": (repeated, lambda real, once, passes: once),
        "one pass is missed": (repeated, lambda real, once, passes: real(once, passes - 1)),
        "there is a pass too many": (repeated, lambda real, once, passes: real(once, passes + 1)),
    }

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        names = code_of(self.engine[_EAGLE].EagleProposer.dummy_run).co_names
        if "num_speculative_tokens" in names or "set_forward_context" not in names:
            raise NoSuchPath("a dummy run drafts as often as a step does")

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        with streams(), torch.compiler.set_stance("force_eager"), ExitStack() as stack:
            ranks = _Ranks(case, self.engine)
            stack.enter_context(replaced(torch.distributed, "all_reduce", ranks.exchange))
            stack.enter_context(replaced(import_module("vllm.platforms").current_platform, "device_type", "cpu"))
            return ranks.played()


class _Ranks:
    """A rank that drafts and one that idles, one after the other. seen: what each exchanges and passes, by the order."""

    def __init__(self, case: Case, engine: dict[str, Any]):
        self.case, self.engine = case, engine
        self.seen: list[Any] = []
        self.exchanges = 0
        drafter = {**DENSE, "architectures": ["EagleLlamaForCausalLM"]}
        self.worker = Worker(
            DENSE, backend="flash_attn.FlashAttentionBackend", page_size=_PAGE, graphs="PIECEWISE",
            cache={"enable_prefix_caching": False},
            speculative={"method": "eagle", "model": folder_of(drafter), "num_speculative_tokens": case.drafts},
        )  # fmt: skip
        config: Any = self.worker.config
        config.parallel_config.data_parallel_size = case.ranks
        if config.compilation_config.cudagraph_capture_sizes is None:  # 0.10.1 sets them where it chooses the kind of graph
            config._set_cudagraph_sizes()
        self.worker._groups["_DP"] = _Group(case.ranks)

    def exchange(self, tensor: Any, *args: Any, **options: Any) -> None:
        """The others give what this rank gives. tensor: int32 [..., ranks], zero but for this rank's column, the first."""
        tensor[..., 1:] = tensor[..., :1]
        self.exchanges += 1
        self.seen.append(tensor.tolist())

    def played(self) -> Observation:
        import torch

        with self.worker as worker:
            layer = worker.layer()
            name, builder = worker.name_of(layer), worker.builder([layer])
            runner = self.engine[RUNNER].GPUModelRunner(worker.config, torch.device("cpu"))
            runner.model, runner.drafter.model, runner.drafter.attn_layer_names = self._model, _Drafter(self), [name]
            runner.drafter.indexer_layer_names, runner.drafter.draft_indexer_metadata_builder = [], None
            group = SimpleNamespace(metadata_builder=builder, metadata_builders=[builder], get_metadata_builder=lambda: builder)
            runner.attn_groups, runner.attn_metadata_builders = [[group]], [builder]
            runner.drafter.attn_metadata_builder = builder
            self._draft(runner.drafter)
            right = 1 if self.case.profile else self.exchanges
            found = [self._idle(runner) for _ in range(self.case.batches)]
        wrong = max(abs(exchanges - right) for exchanges in found) / max(right, 1)
        return Observation(wrong, hashlib.sha256(repr(self.seen).encode()).hexdigest())

    def _draft(self, drafter: Any) -> None:
        """Behind a step in which each request has one new token."""
        import torch

        count = self.case.requests
        tokens = torch.zeros(count, dtype=torch.int32)
        given = dict(
            target_token_ids=tokens, target_positions=torch.full((count,), 20),
            target_hidden_states=torch.zeros(count, drafter.hidden_size, dtype=drafter.dtype), next_token_ids=tokens,
            last_token_indices=None, common_attn_metadata=self.worker.batch([20] * count, [1] * count), sampling_metadata=None,
        )  # fmt: skip
        known = signature(drafter.propose).parameters
        self.seen.append(drafter.propose(**{name: given[name] for name in given if name in known}).tolist())

    def _idle(self, runner: Any) -> int:
        """How often the drafter of a rank without requests exchanges, or that of a rank which takes its profile."""
        worker = object.__new__(self.engine[_WORKER].Worker)
        worker.model_runner = runner
        if self.case.profile:
            runner._dummy_run(_PAGE, is_profile=True)
        else:
            worker.execute_dummy_batch()
        return self.exchanges

    def _model(self, input_ids: Any, **more: Any) -> Any:
        """Whose own exchange came before."""
        import torch

        self.exchanges = 0
        return torch.zeros(len(input_ids), self.worker.config.model_config.get_hidden_size())


class _Group(Alone):
    """Whom `torch.distributed` is asked to exchange with."""

    device, device_group, cpu_group = "cpu", None, None


class _Drafter:
    """A model that counts its passes."""

    def __init__(self, ranks: _Ranks):
        self.ranks = ranks

    def __call__(self, input_ids: Any, positions: Any, hidden_states: Any, inputs_embeds: Any = None) -> Any:
        self.ranks.seen.append(len(input_ids))
        return hidden_states, hidden_states

    def compute_logits(self, hidden_states: Any, *more: Any) -> Any:
        return hidden_states[:, :8]
