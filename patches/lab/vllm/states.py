"""A runner for the scheduler of `scheduling`, whose layers say which tokens a request's recurrent state holds: 0.25.0-0.33.0.

    with Engine(NEMOTRON_H, drafts=2, caching=False) as engine:
        runner = Runner(engine, seed=1)
        request = runner.ask(prompt=20, output=8)
        runner.step()
        runner.wrong    # states and outputs that were of other tokens than the request's, so far; of runner.seen

All is wrong if a step left the scheduler with another table of drafts, or asks for another number of them, or ended the server.

With an `Engine` that is `ahead`, all is wrong, too, if a state was right and is not once its request goes on. And those do not
count whose step a correction of padded prompts has to leave as it is: who begins with one token where nobody verifies drafts;
and who decodes where nobody has drafts, and nothing begins that would bring some.

Nor does a request of Gated DeltaNet count, in any `Engine`, once it decodes without drafts beside those of others, because the
step had no tokens left, after some of its last drafts were accepted: up to 0.31 layers then begin with another state, which is
another bug.

Real: the scheduler and its steps, the tables of blocks, the order of a batch (`reorder_batch…` of the V1 runner, or of V2
`sort_batch_req_ids`), and the metadata builder of the layers, by its own constructor. Emulated: the rest of the runner
(lengths, who is prefilled, how many drafts were accepted), and the layers. A state is a chain over the tokens that went into
it, as a recurrence is; a layer reads and writes it where its metadata says, as the kernels of Mamba2 and of Gated DeltaNet do.
Drafts are words that the request may accept; those that the scheduler pads a request with are words that it never does. What a
KV connector brings is there when the request begins.

`mamba_cache_mode` as the engine's config has it. "none": one block a request, and one for each draft. "align": what is computed
in a step begins and ends in the block of its last token; the runner moves the state there before a step, and behind it to the
block that accepted drafts have filled, as `worker.mamba_utils` of the engine does. "all": a layer leaves a state in each block,
and the runner says in which one the last step ended. No request here begins with a state that this server has cached.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.vllm.shared import unpadded

from .models import NEMOTRON_H, QWEN3_NEXT
from .scheduling import Case, Engine, Served

#: Tokens that there are
WORDS = 1 << 30
#: Steps of a server in `arrivals`; tokens that are asked for by those that stay all the time, times tokens of a step
_STEPS, _LONG = 18, 60
#: A state that nobody of this server wrote: what a block holds before
_STRANGE = -1


class Ended(Exception):
    """A layer's assertion ends the server."""


class _Request:
    """known: its tokens so far; computed: how many are in its state; accepted: of the last step, the sampled one too; keeps: of
    its drafts in each step, None if that is drawn; judged: whether it counts what its state holds; right: whether that was its
    own tokens so far."""

    def __init__(self, request: Any, keeps: int | None):
        self.request, self.known, self.keeps = request, list(request.all_token_ids), keeps
        self.prompt, self.computed, self.accepted = len(self.known), 0, 1
        self.judged = self.right = True

    @property
    def over(self) -> bool:
        """Whether it has all its tokens, which the scheduler may not know yet."""
        return len(self.known) >= self.request.num_prompt_tokens + self.request.max_tokens


class Runner:
    """v2: whether rows are sorted, who is at its prompt, and what Mamba2's builder is told, as Model Runner V2 has it (from
    0.26.0). refused: share of drafts that a grammar refuses."""

    def __init__(self, engine: Engine, seed: int, v2: bool = False, refused: float = 0.0):
        self.engine, self.draw, self.v2, self.refused = engine, random.Random(seed), v2, refused
        groups = engine.kv_cache_config.kv_cache_groups
        self.group, spec = next(
            (at, group.kv_cache_spec) for at, group in enumerate(groups) if type(group.kv_cache_spec).__name__ == "MambaSpec"
        )
        import torch

        builder = spec.mamba_type.get_class().get_builder_cls()
        self.builder = builder(spec, list(groups[self.group].layer_names), engine.config, torch.device("cpu"))
        self.mode, self.size = engine.config.cache_config.mamba_cache_mode, spec.block_size
        self.brought = engine.config.kv_transfer_config is not None
        self.states: dict[int, int] = {}  # block -> chain
        self.last: dict[str, int] = {}  # request -> column of the block in which its last step ended
        self.requests: dict[str, _Request] = {}
        self.wrong = self.seen = 0
        self.misled = self.harmed = False
        self.log: list[Any] = []

    def words(self, count: int) -> list[int]:
        return [self.draw.randrange(WORDS) for _ in range(count)]

    def ask(self, prompt: int, output: int, keeps: int | None = None) -> Any:
        request = self.engine.add(self.words(prompt), output)
        self.requests[request.request_id] = _Request(request, keeps)
        return request

    def observe(self) -> Observation:
        share = 1.0 if self.misled or self.harmed else self.wrong / max(self.seen, 1)
        return Observation(share, hashlib.sha256(repr(self.log).encode()).hexdigest())

    def step(self) -> Any:
        """One step of the engine: what was scheduled."""
        table = self.engine.scheduler.dynamic_sd_lookup
        try:
            step = self.engine.step(self._run)
        except Ended:
            self.misled = True
            raise
        self.misled |= self.engine.scheduler.dynamic_sd_lookup is not table
        self.misled |= table is None and step.num_spec_tokens_to_schedule != self.engine.drafts
        return step

    def _run(self, step: Any) -> tuple[dict[str, list[int]], set[str]]:
        """What each request gets, and whose drafts a grammar refuses."""
        names = self._in_order(step)
        if not names:
            return {}, set()
        drafts = {name: len(step.scheduled_spec_decode_tokens.get(name, ())) for name in names}
        for name, held in self._begun(step).items():
            self._begin(self.requests[name], name, held)
        rows = {name: self._tokens(name, step.num_scheduled_tokens[name], drafts[name]) for name in names}
        padded = {name for name in names if drafts[name] and name in self._begun(step)}
        if self.engine.ahead:
            self._leave_out(step, drafts, padded)
        if self.engine.model is QWEN3_NEXT and any(drafts.values()):
            for name in {name for name in names if not drafts[name]} - {*self._begun(step)}:
                self.requests[name].judged &= self.requests[name].accepted == 1
        after = self._layer(names, rows, drafts)
        begun, sampled = self._begun(step), {}
        for name in names:
            kept = 0 if name in padded else drafts[name]
            sampled[name] = self._sample(name, rows[name], after[name], kept, goes_on=name not in begun)
        self.log.append(sorted((name, len(rows[name]), drafts[name], sampled[name]) for name in names))
        return sampled, {name for name in names if self.refused and self.draw.random() < self.refused}

    def _leave_out(self, step: Any, drafts: dict[str, int], padded: set[str]) -> None:
        """Those that do not count."""
        begun, new = self._begun(step), step.num_scheduled_tokens
        if any(drafts[name] for name in new if name not in padded):
            return
        left = padded | {name for name in begun if new[name] == 1}
        if not left:
            left = {name for name in new if name not in begun and self.requests[name].computed >= self.requests[name].prompt}
        for name in left:
            self.requests[name].judged = False

    def _begun(self, step: Any) -> dict[str, int]:
        """Requests that are scheduled for the first time, or again after a preemption -> tokens that are computed."""
        cached = step.scheduled_cached_reqs
        begun = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        held = zip(cached.req_ids, cached.num_computed_tokens)
        return begun | {name: computed for name, computed in held if name in cached.resumed_req_ids}

    def _begin(self, running: _Request, name: str, held: int) -> None:
        """Its blocks hold what their last owner left; but for what a connector has brought."""
        running.computed, running.accepted, running.known = held, 1, list(running.request.all_token_ids)
        self.last.pop(name, None)
        if self.v2:  # what is computed again after a preemption is its prompt, too
            running.prompt = len(running.known)
        if held and self.brought:
            self.states[self._table(name)[self._column(held)]] = chain(running.known[:held])

    def _tokens(self, name: str, count: int, drafts: int) -> list[int]:
        running = self.requests[name]
        return running.known[running.computed : running.computed + count - drafts] + self.words(drafts)

    def _sample(self, name: str, row: list[int], after: list[int], drafts: int, goes_on: bool) -> list[int]:
        """What the request gets; and whether its state and its outputs are of its own tokens."""
        running = self.requests[name]
        over = running.over
        begin, at_prompt = running.computed, running.computed + len(row) < len(running.known)
        accepted = 0 if at_prompt else self.draw.randint(0, drafts) if running.keeps is None else min(running.keeps, drafts)
        kept = len(running.known) - begin + accepted if not at_prompt else len(row)
        running.known += [] if at_prompt else row[len(running.known) - begin :][:accepted]
        running.computed, running.accepted = begin + kept, 1 + accepted
        right = chains(running.known)[begin : begin + kept]
        column = self._column(begin + len(row))
        if running.judged and not over:
            wrong = (after[:kept] != right) + (self.states.get(self._table(name)[column + accepted]) != right[-1])
            self.seen, self.wrong = self.seen + 2, self.wrong + wrong
            self.harmed |= self.engine.ahead and bool(wrong) and running.right and goes_on
            running.right = not wrong
        self._finish(name, column, begin + len(row) - drafts, whole=len(row) == 1 + self.engine.drafts)
        if at_prompt:
            return []
        sampled = running.known[begin + kept - accepted :] + self.words(1)
        running.known.append(sampled[-1])
        return sampled

    def _column(self, tokens: int) -> int:
        """Where in a request's table the state behind so many tokens is."""
        return 0 if self.mode == "none" else max(tokens - 1, 0) // self.size

    def _prepare(self, name: str, scheduled: int) -> None:
        """Mode "align": the state that the request goes on from, in the block in which this step ends."""
        running, table = self.requests[name], self._table(name)
        column, before = self._column(running.computed + scheduled), self.last.get(name, self._column(running.computed))
        if running.computed and before != column:
            self.states[table[column]] = self.states.get(table[before + running.accepted - 1], _STRANGE)
            running.accepted = 1
        self.last[name] = column

    def _finish(self, name: str, column: int, unverified: int, whole: bool) -> None:
        """Where the step ended. unverified: tokens behind which the first state is. whole: whether it was as long as a
        verification."""
        running, table = self.requests[name], self._table(name)
        if self.mode == "all":
            self.last.pop(name, None)
            if whole:
                self.last[name] = column
        filled = running.computed // self.size * self.size
        if self.mode == "align" and filled >= unverified:
            target = self._column(filled)
            self.states[table[target]] = self.states.get(table[column + filled - unverified], _STRANGE)
            if target == column:
                running.accepted = 1

    def _table(self, name: str) -> list[int]:
        blocks: list[int] = self.engine.scheduler.kv_cache_manager.get_block_ids(name)[self.group]
        return blocks

    def _in_order(self, step: Any) -> list[str]:
        """The rows of the batch, as the runner sorts them."""
        import numpy as np

        names, begun = list(step.num_scheduled_tokens), self._begun(step)
        computed = np.array([begun.get(name, self.requests[name].computed) for name in names])
        if self.v2:
            return self._in_order_of_v2(step, names, begun, computed)
        batch = SimpleNamespace(
            req_ids=names, num_computed_tokens_cpu=computed,
            num_prompt_tokens=np.array([self.requests[name].prompt for name in names]),
        )  # fmt: skip

        def swap(a: int, b: int) -> None:
            for rows in (batch.req_ids, batch.num_computed_tokens_cpu, batch.num_prompt_tokens):
                rows[a], rows[b] = rows[b], rows[a]

        batch.swap_states = swap
        utils: Any = import_module("vllm.v1.attention.backends.utils")
        utils.reorder_batch_to_split_decodes_and_prefills(batch, step, 1 + self.engine.drafts)
        return names

    def _in_order_of_v2(self, step: Any, names: list[str], begun: dict[str, int], computed: Any) -> list[str]:
        import numpy as np

        module: Any = import_module("vllm.v1.worker.gpu.model_runner")
        if not hasattr(module.GPUModelRunner, "gather_batch_req_state"):  # up to 0.27.1
            return list(module.sort_batch_req_ids(step.num_scheduled_tokens, 1 + self.engine.drafts))
        if not names:
            return []
        prompts = np.array(
            [len(one.known) if name in begun else one.prompt for name in names for one in (self.requests[name],)]
        )
        states = SimpleNamespace(
            req_id_to_index={name: row for row, name in enumerate(names)}, prefill_len=SimpleNamespace(np=prompts),
            num_computed_prefill_tokens=np.minimum(computed, prompts), max_seq_len=prompts + len(names),
        )  # fmt: skip
        runner = SimpleNamespace(
            req_states=states, decode_query_len=1 + self.engine.drafts, kv_cache_config=self.engine.kv_cache_config,
            use_pp=True, pcp_manager=None, adaptive_verification=None,
        )  # fmt: skip
        batch, _ = module.GPUModelRunner.gather_batch_req_state(runner, step, False)
        rows = [names.index(name) for name in batch.req_ids]
        new, drafts = step.num_scheduled_tokens, step.scheduled_spec_decode_tokens
        mine = {
            "num_scheduled_tokens": [new[name] for name in batch.req_ids], "idx_mapping_np": rows,
            "prefill_len_np": prompts[rows],
            "num_draft_tokens_np": [len(drafts.get(name, ())) for name in batch.req_ids],
            "num_computed_prefill_tokens_np": states.num_computed_prefill_tokens[rows],
            "is_prefilling_np": (computed < prompts)[rows], "max_seq_len_np": states.max_seq_len[rows],
        }  # fmt: skip
        given = {name: value for name, value in batch._asdict().items() if name in mine and value is not None}
        self.misled |= any(value.tolist() != list(mine[name]) for name, value in given.items())  # it has gone to another
        return list(batch.req_ids)

    def _layer(self, names: list[str], rows: dict[str, list[int]], drafts: dict[str, int]) -> dict[str, list[int]]:
        """The state after each token of each request, as a layer computes them from the builder's metadata."""
        import torch

        running = [self.requests[name] for name in names]
        columns = 1 + self.engine.drafts
        if self.mode == "align":
            for name in names:
                self._prepare(name, len(rows[name]))
        if self.mode != "none":
            columns += self.engine.config.model_config.max_model_len // self.size
        tables = [self._table(name)[:columns] for name in names]
        batch = self.engine.worker.batch(
            context=[each.computed for each in running], new=[len(rows[name]) for name in names],
            block_table_tensor=torch.tensor([table + [0] * (columns - len(table)) for table in tables], dtype=torch.int32),
            is_prefilling=torch.tensor([each.computed < each.prompt for each in running]),
        )  # fmt: skip
        more = {}
        if any(drafts.values()) or self.v2:
            more["num_accepted_tokens"] = torch.tensor([each.accepted for each in running], dtype=torch.int32)
            whole = [drafts[name] if len(rows[name]) == 1 + drafts[name] > 1 else -1 for name in names]
            more["num_decode_draft_tokens_cpu"] = torch.tensor(whole, dtype=torch.int32)
            if self.mode == "all":
                more["prev_last_scheduled_idx"] = torch.tensor([self.last.get(name, -1) for name in names], dtype=torch.int32)
        metadata = self.builder.build(common_prefix_len=0, common_attn_metadata=batch, **more)
        tokens = [token for name in names for token in rows[name]]
        if hasattr(metadata, "spec_sequence_masks"):
            runs = _of_gdn(metadata)
        else:
            runs = _of_mamba_all(metadata, self.size) if self.mode == "all" else of_mamba(metadata)
        out = [_STRANGE] * len(tokens)
        for at, read, written in runs:
            state = self.states.get(read, _STRANGE) if read is not None else 0
            for place, block in zip(at, written):
                out[place] = state = hash((state, tokens[place]))
                if block is not None:
                    self.states[block] = state
        starts = batch.query_start_loc_cpu.tolist()
        return {name: out[begin:end] for name, begin, end in zip(names, starts, starts[1:])}


def of_mamba(metadata: Any) -> Any:
    """(places of the tokens, block that is read or None for zeros, block that is written after each) of each request."""
    decodes, start = metadata.num_decodes, metadata.num_decode_tokens
    if decodes:
        spec = metadata.num_accepted_tokens is not None
        starts = metadata.query_start_loc_d.tolist() if spec else range(decodes + 1)
        accepted = metadata.num_accepted_tokens.tolist() if spec else [1] * decodes
        for at, blocks in enumerate(metadata.state_indices_tensor_d.tolist()[:decodes]):
            yield range(starts[at], starts[at + 1]), blocks[accepted[at] - 1], blocks
    if metadata.num_prefills:
        starts = [start + at for at in metadata.query_start_loc_p.tolist()]
        for at, block in enumerate(metadata.state_indices_tensor_p.tolist()):
            places = range(starts[at], starts[at + 1])
            read = block if metadata.has_initial_states_p[at] else None
            yield places, read, [None] * (len(places) - 1) + [block]


def _of_mamba_all(metadata: Any, size: int) -> Any:
    """The same where each block keeps a state."""
    decodes, start = metadata.num_decodes, metadata.num_decode_tokens
    ends = metadata.block_idx_last_scheduled_token.tolist()
    if decodes and metadata.block_idx_last_scheduled_token_prev_step is None:
        raise Ended
    if decodes:
        begins = metadata.block_idx_last_scheduled_token_prev_step.tolist()
        starts, accepted = metadata.query_start_loc_d.tolist(), metadata.num_accepted_tokens.tolist()
        for at, blocks in enumerate(metadata.state_indices_tensor_d.tolist()[:decodes]):
            yield range(starts[at], starts[at + 1]), blocks[begins[at] + accepted[at] - 1], blocks[ends[at] :]
    if metadata.num_prefills:
        starts = [start + at for at in metadata.query_start_loc_p.tolist()]
        begins, computed = metadata.block_idx_last_computed_token.tolist()[decodes:], metadata.num_computed_tokens_p.tolist()
        for at, blocks in enumerate(metadata.state_indices_tensor_p.tolist()):
            places = range(starts[at], starts[at + 1])
            read = blocks[begins[at]] if metadata.has_initial_states_p[at] else None
            behind = range(computed[at] + 1, computed[at] + len(places))
            between = [None if tokens % size else blocks[tokens // size - 1] for tokens in behind]
            yield places, read, [*between, blocks[ends[decodes + at]]]


def _of_gdn(metadata: Any) -> Any:
    spec = metadata.spec_sequence_masks is not None
    if spec:
        starts, tokens = metadata.spec_query_start_loc.tolist(), metadata.spec_token_indx.tolist()
        blocks = metadata.spec_state_indices_tensor.tolist()
        for at, kept in enumerate(metadata.num_accepted_tokens.tolist()[: len(starts) - 1]):
            yield tokens[starts[at] : starts[at + 1]], blocks[at][kept - 1], blocks[at]
    if metadata.num_prefills or metadata.num_decodes:
        starts = metadata.non_spec_query_start_loc.tolist()
        tokens = metadata.non_spec_token_indx.tolist() if spec else list(range(starts[-1]))
        initial = metadata.has_initial_state
        for at, block in enumerate(metadata.non_spec_state_indices_tensor.tolist()[: len(starts) - 1]):
            places = tokens[starts[at] : starts[at + 1]]
            read = None if initial is not None and not initial[at] else block
            yield places, read, [None] * (len(places) - 1) + [block]


def chain(tokens: list[int]) -> int:
    """The state behind these tokens."""
    return chains(tokens)[-1]


def chains(tokens: list[int], state: int = 0) -> list[int]:
    """The state after each of the tokens."""
    after = []
    for token in tokens:
        state = hash((state, token))
        after.append(state)
    return after


# What is asked of a server

Talk = Callable[[Runner], None]


def arrivals(
    prompts: Mapping[int, Sequence[Any]], *, beside: Sequence[int] = (), answer: Sequence[int] = range(4, 14),
    fit: Callable[[int], int] = int, steps: int = _STEPS,
) -> Talk:  # fmt: skip
    """Prompts of so many tokens before each of these steps; of a range or a tuple, one is drawn. beside: prompts of requests
    that decode all the time. answer: tokens that are asked for, drawn alike. fit: what is asked in the place of a length."""

    def talk(runner: Runner) -> None:
        draw = runner.draw
        for prompt in beside:
            runner.ask(prompt, _LONG * (1 + runner.engine.drafts))
        for at in range(steps):
            for length in prompts.get(at, ()):
                runner.ask(fit(length if isinstance(length, int) else draw.choice(length)), draw.choice(answer))
            runner.step()

    return talk


def ends_meet(shortest: int = 1, waves: int = 8) -> Talk:
    """Prompts of so many tokens, and others that a connector brings, begin where requests end: at their last token, which the
    step under way gives; at the context limit, where there is no room for drafts; because their clients go away.

    None is at the limit where that is a bug by itself: Gated DeltaNet, and mode "all".
    """

    def talk(runner: Runner) -> None:
        context = runner.engine.config.model_config.max_model_len
        limit = runner.mode != "all" and runner.engine.model is NEMOTRON_H
        for wave in range(waves):
            first = runner.ask(9, 1 + wave % 3)
            if limit:
                runner.ask(context - 6 + wave % 3, context)
            for at in range(6):
                runner.step()
                if at == 1 and wave % 4 == 3 and not first.is_finished():
                    runner.engine.abort(first)
                runner.ask(shortest, 1 + wave % 2)  # the step that it begins in is its last one, or the next
                if runner.brought:
                    runner.ask(5, 1)

    return talk


def limit_meets(prompt: int, waves: int = 3) -> Talk:
    """Such prompts begin in each step of a request that has all its drafts accepted up to the context limit: in its last
    steps it is alone, and has none."""

    def talk(runner: Runner) -> None:
        context, drafts = runner.engine.config.model_config.max_model_len, runner.engine.drafts
        for _ in range(waves):
            runner.ask(context - 3 - drafts, context, keeps=drafts)
            for _ in range(7):
                runner.step()
                runner.ask(prompt, 1)

    return talk


def refusing(talk: Talk, share: float = 0.5) -> Talk:
    """The same, while a grammar refuses this share of all drafts."""

    def refuse(runner: Runner) -> None:
        runner.refused = share
        talk(runner)

    return refuse


def within_a_block(prompt: int) -> int:
    """A prompt of about this length, whose last token has room for three drafts in its block of 16: in mode "align", 0.27.0 to
    0.28.0 clip a padded row at the end of a block. What comes of that is another bug, and not one of Mamba2."""
    begin, last = divmod(prompt - 1, 16)
    return 16 * begin + last % 11 + 2


class States(Served):
    """Base of the proofs about what states hold."""

    measure = "share of states and outputs that are of other tokens"
    kind: Any = Runner

    def run(self, case: Case, seed: int) -> Observation:
        def talk(runner: Runner) -> None:
            with suppress(Ended):
                case.talk(runner)

        return super().run(Case(talk, case.launch), seed)


# Ways to break `vllm.shared.unpadded`: they get `unpadded`, then the scheduler


def _padded_but_once(real: Any, scheduler: Any) -> Any:
    once = not hasattr(scheduler, "once")
    scheduler.once = True
    return real(scheduler) if once else nullcontext()


def _left(real: Any, scheduler: Any) -> Any:
    real(scheduler).__enter__()
    return nullcontext()


def _of_fewer(real: Any, scheduler: Any) -> Any:
    scheduler.num_spec_tokens -= 1
    context = real(scheduler)
    scheduler.num_spec_tokens += 1
    return context


PADDINGS = {
    "prompts are padded": (unpadded.unpadded, lambda real, scheduler: nullcontext()),
    "the first request alone is not padded": (unpadded.unpadded, _padded_but_once),
    "the table stays": (unpadded.unpadded, _left),
    "a table of fewer drafts": (unpadded.unpadded, _of_fewer),
}
