"""Proof of vllm.image-mask-race: on which tokens the GPU finds images, where it is behind.

Real: the config, the runner by its own constructor, its buffer, `_gather_mm_embeddings`, and `synchronize_input_prep`.
Emulated: the GPU of `lab/vllm/input_prep`; requests, their images and what the encoder makes of them; the rest of a step, whose
tokens are waited for where scheduling is not asynchronous. Spared: servers that wait, and memory that is not pinned.
"""

from __future__ import annotations

import hashlib
import random
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.vllm.construction import DENSE, Worker
from attnfix.patches.lab.vllm.input_prep import Gpu, driven
from attnfix.patches.lab.vllm.model_runner_v1 import RUNNER

from . import wrap

_STEPS, _WIDTH = 6, 4
#: Releases that write the mask of a step when the event of its inputs is recorded
_OUTSIDE = "GPUModelRunner._determine_batch_execution_and_padding"


class Case(NamedTuple):
    """ahead: asynchronous scheduling. drafts: a drafter of hidden states, whose batch is padded. requests: of a step. pinned:
    the runner's buffers are."""

    ahead: bool = False
    drafts: bool = False
    requests: int = 2
    padded: bool = True
    pinned: bool = True
    where: str = ""


class Proof(Cases):
    modules = (RUNNER,)
    measure = "share of masks that are those of others"
    needs = "GPUModelRunner.__init__: is_mm_embed"
    absent = "masks of images are written elsewhere"
    bug: tuple[Case, ...] = (
        Case(drafts=True),
        Case(drafts=True, requests=4),
        Case(ahead=True, drafts=True, requests=1),
        Case(ahead=True, where=_OUTSIDE),
        Case(ahead=True, requests=3, where=_OUTSIDE),
    )
    spared = (
        Case(),
        Case(requests=4),
        Case(drafts=True, padded=False),
        Case(pinned=False, drafts=True),
        Case(pinned=False, ahead=True),
    )
    broken = {
        "masks share their memory": (wrap.fresh, lambda real, memory: memory),
        "two masks in a row share their memory": (wrap.fresh, lambda real, memory: _every_other(real, memory)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        gpu = Gpu()
        worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", scheduler={"async_scheduling": case.ahead})
        with driven(gpu), worker, torch.inference_mode():
            runner = import_module(RUNNER).GPUModelRunner(worker.config, torch.device("cpu"))
            runner.pin_memory = case.pinned
            runner.is_mm_embed = runner._make_buffer(runner.max_num_tokens, dtype=torch.bool)  # as for a model with images
            runner.speculative_config = _drafter(case) if case.drafts else None
            with _copied(gpu, runner):
                return _Server(case, gpu, runner, seed).serve(inside=not self._has(_OUTSIDE))


class _Server:
    def __init__(self, case: Case, gpu: Gpu, runner: Any, seed: int):
        self.case, self.gpu, self.runner, self.draw = case, gpu, runner, random.Random(seed)
        self.seen: list[Any] = []
        self.right: list[Any] = []

    def serve(self, inside: bool) -> Observation:
        """inside: whether a mask is written before the event of its step is recorded."""
        import torch

        for number in range(_STEPS):
            step = self._arrive(number)
            with self.runner.synchronize_input_prep():
                if inside:
                    self._encode(step)
            if not inside:
                self._encode(step)
            self.gpu.submit(lambda: None, takes_time=True)
            if self.case.drafts and not self.case.padded:
                self.gpu.finish()
            if self.case.drafts:
                self._gather(step, 1)
            if not self.case.ahead:
                self.gpu.finish()
        self.gpu.finish()
        wrong = sum(not torch.equal(one, other) for one, other in zip(self.seen, self.right, strict=True))
        bits = hashlib.sha256(torch.cat(self.seen).numpy().tobytes()).hexdigest()
        return Observation(wrong / len(self.right), bits)

    def _arrive(self, number: int) -> Any:
        """A step of requests of its own, some of whose prompts are computed so far."""
        import torch

        place = import_module("vllm.multimodal.inputs").PlaceholderRange
        self.runner.requests, self.runner.encoder_cache, scheduled = {}, {}, {}
        for at in range(self.case.requests):
            name, features, end = f"{number}-{at}", [], 0
            for image in range(self.draw.randint(1, 3)):
                begin, length = end + self.draw.randint(1, 9), self.draw.randint(4, 20)
                end = begin + length
                parts = torch.tensor([self.draw.random() < 0.7 for _ in range(length)]) if self.draw.random() < 0.4 else None
                features.append(SimpleNamespace(mm_position=place(begin, length, parts), identifier=f"{name}-{image}"))
                self.runner.encoder_cache[f"{name}-{image}"] = torch.zeros(length, _WIDTH)
            computed = self.draw.randint(0, 6)
            self.runner.requests[name] = SimpleNamespace(num_computed_tokens=computed, mm_features=features)
            scheduled[name] = self.draw.randint(end - computed, end - computed + 9)
        self.runner.input_batch = SimpleNamespace(req_ids=list(scheduled))
        return SimpleNamespace(num_scheduled_tokens=scheduled, total_num_scheduled_tokens=sum(scheduled.values()))

    def _encode(self, step: Any) -> None:
        """What the encoder does takes time, and the mask of its images stands behind that."""
        self.gpu.submit(lambda: None, takes_time=True)
        self._gather(step, 0)

    def _gather(self, step: Any, ahead: int) -> None:
        """ahead: by how many tokens the drafter is."""
        _, mask = self.runner._gather_mm_embeddings(step, shift_computed_tokens=ahead)
        self.gpu.submit(lambda: self.seen.append(mask.clone()))
        self.right.append(self._mask(step, ahead))

    def _mask(self, step: Any, ahead: int) -> Any:
        import torch

        rows = []
        for name, tokens in step.num_scheduled_tokens.items():
            request, row = self.runner.requests[name], torch.zeros(256, dtype=torch.bool)
            for one in (feature.mm_position for feature in request.mm_features):
                row[one.offset : one.offset + one.length] = True if one.is_embed is None else one.is_embed
            rows.append(row[request.num_computed_tokens + ahead :][:tokens])
        return torch.cat(rows)


def _drafter(case: Case) -> Any:
    """The engine's config of a drafter, as far as the runner asks it in a step."""
    config = object.__new__(import_module("vllm.config").SpeculativeConfig)
    vars(config).update(method="mtp", disable_padded_drafter_batch=not case.padded)
    return config


def _copied(gpu: Gpu, runner: Any) -> Any:
    """Inside, copies into the GPU's mask are the GPU's work. What is not pinned is read at once."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    there, pinned = runner.is_mm_embed.gpu.untyped_storage().data_ptr(), runner.pin_memory

    class Copied(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is Tensor.copy_ and kwargs.get("non_blocking") and args[0].untyped_storage().data_ptr() == there:
                values = args[1] if pinned else args[1].clone()
                gpu.submit(lambda: args[0].copy_(values))
                return args[0]
            return function(*args, **kwargs)

    return Copied()


def _every_other(real: Any, memory: Any) -> Any:
    """Memory of its own for the first of two masks."""
    _taken.append(memory)
    return real(memory) if len(_taken) % 2 else memory


_taken: list[Any] = []
