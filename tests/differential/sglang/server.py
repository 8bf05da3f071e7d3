"""A server of one case, step by step: its scheduler runs the engine's own event loop.

A step is one turn of that loop. Before each attention layer the model's queries, keys and values are replaced by drawn ones
(`texts`); behind it, its output is compared with float64. The model's logits are replaced by those of a model that is sure of
the text, so that the real sampler draws it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
import warnings
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.sglang.engine import accepted, module

from .. import reference
from ..protocol import Case, Step
from . import adapters, device, flash_attention, images, kernels, launch, mamba2, mla, models, rows, space
from .rows import Rows
from .texts import Texts


def load() -> None:
    """Import what any case needs, and put the stand-ins in place."""
    launch.ease()
    device.install()
    importlib.import_module("sglang.srt.managers.scheduler")
    kernels.install()
    mamba2.install()
    adapters.install()
    images.install()
    launch.settle(mla.settle_weights, mamba2.settle_weights)
    launch.on_hopper()


class Server:
    def __init__(self, case: Case):
        warnings.simplefilter("ignore")
        self.case = case
        settings = case["settings"]
        os.environ.update(space.environment(settings))
        if (used := space.backends(settings)) & {"trtllm_mla", "trtllm_mha"}:
            launch.on_blackwell(used)
        self.config, self.requests = models.config(settings), case["requests"]
        self.args = launch.server_args(self.config, settings, models.draft(settings))
        self.texts = Texts(case, self.config["vocab_size"], space.narrow(settings), self._values)
        self.turn, self.found, self.error = 0, Step([]), None
        self._mine, self._engines = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self._wait()

    def step(self) -> Step | None:
        if self.turn and self._over():
            return None
        self._engines.release()
        self._wait()
        return self.found

    def _wait(self) -> None:
        self._mine.acquire()
        if self.error:
            raise self.error

    def _over(self) -> bool:
        """Whether every request has come, and nothing is left to do for any of them."""
        scheduler, arrivals = self.scheduler, (request["arrives"] for request in self.requests)
        busy = scheduler.waiting_queue or scheduler.last_batch or not scheduler.running_batch.is_empty()
        return not busy and self.turn > max(arrivals, default=-1)

    # In the scheduler's thread

    def _live(self) -> None:
        """The life of the scheduler, in a thread of its own: its loop goes on for ever."""
        import torch

        try:
            self.rows = Rows(self.case["settings"], self.config, self.texts)
            hooks = torch.nn.modules.module
            hooks.register_module_module_registration_hook(self.rows.watch)
            with launch.surroundings(self.args, self.case["settings"]), torch.no_grad():
                self.scheduler = launch.scheduler(self.args)
                self._watch()
                overlapping = "event_loop_overlap" if self.scheduler.enable_overlap else "event_loop_normal"
                (getattr(self.scheduler, "run_event_loop", None) or getattr(self.scheduler, overlapping))()
        except BaseException as error:
            self.error = error
            self._mine.release()

    def _watch(self) -> None:
        scheduler = self.scheduler
        if hasattr(scheduler, "request_receiver"):  # 0.5.13 and later
            scheduler.request_receiver = _Receiver(self._arriving)
        else:
            scheduler.recv_requests = self._arriving
        run, runner = scheduler.run_batch, scheduler.tp_worker.model_runner
        kernels.poison(runner)
        self.rows.target = {id(part) for part in runner.model.modules()}

        def run_batch(batch: Any, *args: Any, **kwargs: Any) -> Any:
            self.rows.expect(batch)
            result = run(batch, *args, **kwargs)
            self.found = Step(self.rows.kinds, self.rows.outputs)
            self.found.metadata = reference.digest(getattr(runner.attn_backend, "forward_metadata", None))
            return result

        scheduler.run_batch = run_batch
        if hasattr(worker := getattr(scheduler, "draft_worker", None), "verify"):
            verify = worker.verify

            def verified(batch: Any, *args: Any, **kwargs: Any) -> Any:
                self.rows.verifies(args[0] if args and hasattr(args[0], "draft_token") else batch.spec_info)
                return verify(batch, *args, **kwargs)

            worker.verify = verified

    def _arriving(self, *_: Any, **__: Any) -> list[Any]:
        """What the loop asks for at the begin of each turn: the last one is over."""
        self._mine.release()
        self._engines.acquire()
        self.found, self.turn = Step([]), self.turn + 1
        return [self._request(n) for n, request in enumerate(self.requests) if request["arrives"] == self.turn - 1]

    def _request(self, number: int) -> Any:
        messages, sampling = module("managers.io_struct"), module("sampling.sampling_params")
        wanted = sampling.SamplingParams(max_new_tokens=self.requests[number]["output"], ignore_eos=True, temperature=0.0)
        wanted.normalize(None)
        kind = messages.TokenizedGenerateReqInput
        tokens = self.texts.tokens[number][: self.requests[number]["prompt"]]
        if image := self.texts.images[number]:
            tokens[image[0] : image[0] + image[1]] = [images.PLACEHOLDER] * image[1]
        packed = "array" in str(inspect.signature(kind).parameters["input_ids"].annotation)  # 0.5.13 and later
        return kind(**accepted(kind, {
            "rid": str(number), "input_text": None, "input_ids": array("q", tokens) if packed else tokens,
            "input_embeds": None, "mm_inputs": image and images.given(image, self._embeddings(image)), "token_type_ids": None,
            "sampling_params": wanted,
            "return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "token_ids_logprob": None,
            "stream": False, "lora_id": self._adapter(number),
        }))  # fmt: skip

    def _embeddings(self, image: list[int]) -> Any:
        return images.embeddings(image, self.config["hidden_size"], self.case["seed"])

    def _values(self, image: list[int]) -> list[int]:
        return images.values(image, self._embeddings(image))

    def _adapter(self, number: int) -> str | None:
        """The engine's id of the adapter that a request names."""
        if not (adapter := self.texts.adapters[number]):
            return None
        loaded = self.scheduler.tp_worker.model_runner.lora_manager.lora_refs.values()
        return next(one.lora_id for one in loaded if one.lora_name == adapters.name(adapter))


class _Receiver:
    """In the place of the receiver of requests: what came from a tokenizer's process comes from the case."""

    def __init__(self, arriving: Callable[..., list[Any]]):
        self.recv_requests = arriving


def _otherwise(change: Callable[[models.Attention], dict[str, Any]]) -> Callable[[], AbstractContextManager[Any]]:
    """The reference computes another attention than the model's."""
    real = models.attention

    def mutated(config: dict[str, Any], layer_id: int) -> models.Attention:
        one = real(config, layer_id)
        return replace(one, **change(one))

    return lambda: replaced(models, "attention", mutated)


def _row_kept_back() -> AbstractContextManager[Any]:
    """The last token of what a batch computes is not handed to attention."""
    real = Rows._fill

    def fill(self: Rows, layer: Any, batch: Any, given: dict[str, Any]) -> None:
        lost = [rows[-1].clone() for rows in given.values()]
        real(self, layer, batch, given)
        for handed, row in zip(given.values(), lost):
            handed[-1] = row

    return replaced(Rows, "_fill", fill)


def _mask_shifted() -> AbstractContextManager[Any]:
    """A row sees the key behind its own."""
    real = flash_attention._attend

    def attend(
        q: Any, keys: Any, begins: Any, most: Any, descales: Any, scale: Any, causal: bool, window: Any, *more: Any
    ) -> Any:
        return real(q, keys, begins, most, descales, scale, False, (window[0], 1) if causal else window, *more)

    return replaced(flash_attention, "_attend", attend)


def _another_page() -> AbstractContextManager[Any]:
    """Each page is the one behind it."""
    real = flash_attention._memory
    return replaced(flash_attention, "_memory", lambda pages: real(pages) + 1)


def _branches_seen() -> AbstractContextManager[Any]:
    """A row of a tree sees all rows before it, those of other branches among them."""
    import torch

    real = rows.tree

    def tree(*links: Any) -> Any:
        found = real(*links)
        return found._replace(above=torch.ones_like(found.above).tril())

    return replaced(rows, "tree", tree)


def _state_lags() -> AbstractContextManager[Any]:
    """A recurrent state has not seen the last token before a batch."""
    import torch

    real = mamba2.expected

    def expected(layer: Any, rows: Any, start: int) -> tuple[Any, Any]:
        return real(layer, torch.cat([rows[: start - 1], rows[start:]]), start - 1) if start else real(layer, rows, start)

    return replaced(mamba2, "expected", expected)


def _adapters_left_out() -> AbstractContextManager[Any]:
    """The reference has the keys and values of a text whatever the adapter."""
    real = Rows._given

    def given(self: Rows, *args: Any) -> Any:
        mine, self.texts = self.texts, self.texts.whatever_the_adapter()
        try:
            return real(self, *args)
        finally:
            self.texts = mine

    return replaced(Rows, "_given", given)


def _another_adapter() -> AbstractContextManager[Any]:
    """Each adapter should add what the other one does."""
    real = adapters.added
    return replaced(adapters, "added", lambda config, adapter, x: real(config, 3 - adapter, x))


def _embeddings_shifted() -> AbstractContextManager[Any]:
    """Each token of an image gets what the one behind it should."""
    model = module("models.registry").ModelRegistry.models[images.ARCHITECTURE]
    real = model.get_image_feature
    return replaced(model, "get_image_feature", lambda self, items: real(self, items).roll(-1, 0))


def _cache_key(change: Callable[[Any, Any], tuple[Any, Any]]) -> AbstractContextManager[Any]:
    """What the engine's radix cache finds keys by: change(tokens, the key of a request's own)."""
    kind = module("mem_cache.radix_cache").RadixKey
    real = kind.__init__

    def made(self: Any, token_ids: Any, extra_key: Any = None, *args: Any, **kwargs: Any) -> None:
        real(self, *change(token_ids, extra_key), *args, **kwargs)

    return replaced(kind, "__init__", made)


def _one_key_for_adapters() -> AbstractContextManager[Any]:
    return _cache_key(lambda tokens, key: (tokens, None))


def _one_key_for_images() -> AbstractContextManager[Any]:
    last = models.VOCABULARY - 1
    return _cache_key(lambda tokens, key: (type(tokens)("q", [min(token, last) for token in tokens]), key))


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "window wrong by one": _otherwise(lambda one: {"window": one.window and one.window + 1}),
    "the scale is left out": _otherwise(lambda one: {"scale": 1.0}),
    "the soft cap is left out": _otherwise(lambda one: {"soft_cap": 0.0}),
    "sinks are left out": _otherwise(lambda one: {"sinks": False}),
    "a row is lost": _row_kept_back,
    "the mask is shifted": _mask_shifted,
    "another page": _another_page,
    "branches see each other": _branches_seen,
    "a state lags by a token": _state_lags,
    "adapters are left out": _adapters_left_out,
    "another adapter": _another_adapter,
    "embeddings are shifted": _embeddings_shifted,
    "the cache knows no adapter": _one_key_for_adapters,
    "the cache knows no image": _one_key_for_images,
}
#: Mutation -> settings that it must be seen in
SEEN_IN: dict[str, dict[str, Any]] = {
    "window wrong by one": {"model": "windows"},
    "the soft cap is left out": {"model": "soft-cap"},
    "sinks are left out": {"model": "windows-sinks"},
    "a state lags by a token": {"model": "hybrid"},
    "adapters are left out": {"adapters": 2},
    "another adapter": {"adapters": 2},
    "the cache knows no adapter": {"adapters": 2},
    "embeddings are shifted": {"images": True},
    "the cache knows no image": {"images": True},
    "branches see each other": {
        "attention-backend": "triton",
        "speculative-algorithm": "EAGLE",
        "speculative-eagle-topk": 2,
    },
}
FAULTS: dict[str, Callable[[], None]] = {}
