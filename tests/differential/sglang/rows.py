"""What each attention layer is handed in a step, and what it returned, against float64.

Which tokens of which requests a batch computes is read from the scheduler's `Req`s before the engine lays the batch out: what
`ForwardBatch` and the backend make of it is what is tried. In a speculative step the tokens that are verified are those that
the drafter said, in the places where the engine put them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from attnfix.patches.lab.sglang.engine import module

from .. import reference
from ..protocol import Output, Settings, Tolerance
from . import adapters, device, images, mamba2, mla, models, space
from .texts import Texts

_EXACT = Tolerance(0.25, 0.5)  # of what is right or wrong, and nothing between


class Span(NamedTuple):
    """Tokens begin … end of a request, the batch's one at `place`, which it computes in its rows from `row` on.

    branch: of a drafter's tree. Rows of a tree that is verified are not tokens in a line: `Tree` says what they are.
    """

    place: int
    row: int
    request: int
    begin: int
    end: int
    branch: int = 0

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.end - self.begin)


class Tree(NamedTuple):
    """What a verification looks at, of one request. depths: of each row, 0 is the last token that is accepted already.
    above: [rows, rows], True where a row's way to the root has the other one, or is it. tokens: of each row."""

    depths: list[int]
    above: Any
    tokens: list[int]


def tree(next_token: list[int], next_sibling: list[int], tokens: list[int]) -> Tree:
    """From the links of the engine's own: a row's first child, and the next child of the same row; -1 for none."""
    import torch

    above, depths = torch.eye(len(tokens), dtype=torch.bool), [0] + [-1] * (len(tokens) - 1)
    for row in range(len(tokens)):  # a parent comes before its children
        child = next_token[row]
        while child != -1:
            above[child] |= above[row]
            depths[child] = depths[row] + 1
            child = next_sibling[child]
    return Tree(depths, above, tokens)


def _around(
    part: Any, before: Callable[[Any, tuple, dict[str, Any]], tuple[tuple, dict[str, Any]]],
    after: Callable[[Any, tuple, dict[str, Any], Any], None] = lambda *call: None,
) -> None:  # fmt: skip
    """Around each call of a module: some models call `forward` itself, where torch's hooks are not asked."""
    forward = part.forward

    def around(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = before(part, args, kwargs)
        out = forward(*args, **kwargs)
        after(part, args, kwargs, out)
        return out

    part.forward = around


class Rows:
    def __init__(self, settings: Settings, config: dict[str, Any], texts: Texts):
        import torch

        self.settings, self.config, self.texts = settings, config, texts
        self.dtype = getattr(torch, settings["dtype"])
        self.attention = module("layers.radix_attention").RadixAttention
        self.kinds: list[str] = []
        self.outputs: list[Output] = []
        self.target: set[int] = set()  # of the target model's modules, once the server is constructed
        self._extends: list[Span] = []
        self._decodes: list[tuple[int, int]] = []  # (place, request) of those that decode
        self._done: dict[int, int] = {}  # request -> tokens whose keys are in the cache
        #: (whether of the drafter, request, branch) -> position -> token, where a draft is not what the text says
        self._wrong: dict[tuple[bool, int, int], dict[int, int]] = {}
        self._branches = space.branches(settings)
        self._width = space.drafted(settings) if space.speculates(settings) else 1  # of a request in a verification
        self._links: tuple[list[list[int]], list[list[int]]] | None = None  # of each request: children, siblings
        self._trees: dict[int, Tree] = {}  # request -> what is verified
        self._accepted: dict[int, int] = {}  # request -> tokens that its last verification leaves in the cache
        self._steps = 0  # of the drafter, in this step of the server
        self._added: Any = None  # of the layer that runs: rows before adapters, their input, rows with what adapters add

    def expect(self, batch: Any) -> None:
        """A batch is about to run."""
        self._done |= {number: self._done[number] + more for number, more in self._accepted.items()}
        self._extends, self._decodes, self.outputs, self._accepted = [], [], [], {}
        self._wrong, self._trees, self._steps, kinds = {}, {}, 0, set()
        numbers = [int(request.rid) for request in batch.reqs]
        taken = [self._taken(number, request) for number, request in zip(numbers, batch.reqs)]
        if batch.forward_mode.is_extend():
            rows = itertools.accumulate(batch.extend_lens, initial=0)
            for place, (row, number, begin, count) in enumerate(zip(rows, numbers, batch.prefix_lens, batch.extend_lens)):
                decodes = batch.forward_mode.is_mixed() and count == 1  # else one that was retracted begins anew
                if decodes and self._done.get(number, 0) >= self.texts.prompts[number]:
                    begin = self._done[number]
                if taken[place]:
                    self._extends.append(Span(place, row, number, begin, begin + count))
                kinds.add(self._kind(number, begin, begin + count))
                self._done[number] = begin + count
        elif batch.forward_mode.is_decode():
            self._decodes = [(place, number) for place, number in enumerate(numbers) if taken[place]]
            self._accepted = {number: 1 for _, number in self._decodes}
            kinds.add("decode")
        else:
            kinds.add("idle")
        self.kinds = sorted(kinds)

    def verifies(self, about: Any) -> None:
        """The engine is about to verify trees; about: what it made of the drafts."""
        self._width = int(about.draft_token_num)
        if self._branches > 1:
            names = ("retrieve_next_token", "retrieve_next_sibling"), ("retrive_next_token", "retrive_next_sibling")
            children, siblings = next(pair for pair in names if hasattr(about, pair[0]))
            self._links = getattr(about, children).tolist(), getattr(about, siblings).tolist()

    def _taken(self, number: int, request: Any) -> bool:
        """Whether the server took the request: of one that is too long it computes a token of its own, and says so."""
        return list(request.origin_input_ids) == self.texts.tokens[number][: self.texts.prompts[number]]

    def _kind(self, number: int, begin: int, end: int) -> str:
        """What a request does in a batch that extends."""
        before, prompt = self._done.get(number, 0), self.texts.prompts[number]
        if begin >= prompt:
            return "decode"  # in a mixed batch
        if begin > before:
            return "cached"
        return "chunk" if begin or end < prompt else "fresh"

    # Hooks of torch's modules. What they do in a graph that is captured is done again by each replay

    def watch(self, owner: Any, name: str, part: Any) -> None:
        """A model is given a part."""
        if type(owner).__name__ == images.ARCHITECTURE and name == "model":
            part.register_forward_pre_hook(self._embedded, with_kwargs=True)
        if mla.is_latent(owner):
            self._watch_latent(owner, name, part)
        elif mamba2.is_recurrent(part):
            self._watch_recurrent(owner, part)
        elif adapters.takes(part):
            self._watch_adapters(part)
        elif isinstance(part, self.attention):
            _around(part, self._handed, self._returned)
        elif type(part).__name__ == "LogitsProcessor":
            part.register_forward_hook(lambda layer, args, out: device.act(lambda: self._sure(layer, args[3], out)))

    def _handed(self, layer: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Before an attention layer: its queries, keys and values become the drawn ones."""
        import torch

        with device.unrecorded():
            given = tuple(one.clone(memory_format=torch.contiguous_format) for one in args[:3])
        batch, added = self._batch(args, kwargs), self._added
        self._added = None
        if self.settings["adapters"]:
            device.act(lambda: self._compare_added(layer, batch, added))
        device.act(lambda: self._fill(layer, batch, dict(zip("qkv", given))))
        return (*given, *args[3:]), kwargs

    def _embedded(self, model: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """A language model gets what its tokens and images were made of."""
        batch, rows = kwargs["forward_batch"], kwargs["input_embeds"]
        device.act(lambda: self._compare_images(batch, rows))

    def _watch_adapters(self, part: Any) -> None:
        """A layer's projection is given adapters. What they add is copied: a rotation may be in place."""
        real = part.apply_lora

        def apply_lora(base: Any, x: Any, *args: Any) -> Any:
            before, given = base.clone(), x.clone()
            out = real(base, x, *args)
            self._added = before, given, out.clone()
            return out

        part.apply_lora = apply_lora

    def _watch_recurrent(self, owner: Any, layer: Any) -> None:
        """A decoder layer is given a layer with recurrent states: what that projects becomes drawn."""
        layer.layer_id = owner.layer_id

        def entered(_: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
            self._recurrent = kwargs["forward_batch"]
            return args, kwargs

        def projected(_: Any, args: Any, out: Any) -> None:
            batch, rows = self._recurrent, out[0]
            device.act(lambda: self._fill(layer, batch, {"p": rows}))

        def left(_: Any, args: tuple) -> None:
            batch, out = self._recurrent, args[0]
            device.act(lambda: self._compare_recurrent(layer, batch, out))

        _around(owner, entered)
        layer.in_proj.register_forward_hook(projected)
        layer.norm.register_forward_pre_hook(left)

    def _returned(self, layer: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        """Behind an attention layer."""
        batch, sinks = self._batch(args, kwargs), kwargs.get("sinks")
        device.act(lambda: self._compare(layer, batch, out, sinks))

    def _watch_latent(self, owner: Any, name: str, part: Any) -> None:
        """A layer with latent attention is given a part: what projections and the latent's norm return becomes drawn."""
        mla.settle(owner, part)
        what = {"q_proj": "q", "kv_a_proj_with_mqa": "k", "kv_a_layernorm": "k"}.get(name)
        if what:
            part.register_forward_hook(lambda part, args, out: self._projected(owner, what, out))
        elif name == "o_proj":
            owner.register_forward_pre_hook(self._entered, with_kwargs=True)
            part.register_forward_pre_hook(lambda part, args: self._left(owner, args[0]))

    def _entered(self, layer: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        self._latent = kwargs["forward_batch"] if "forward_batch" in kwargs else args[2]

    def _projected(self, layer: Any, what: str, out: Any) -> None:
        batch, rows = self._latent, out[0] if isinstance(out, tuple) else out
        device.act(lambda: self._fill(layer, batch, {what: rows}))

    def _left(self, layer: Any, out: Any) -> None:
        batch = self._latent
        device.act(lambda: self._compare(layer, batch, out, None))

    @staticmethod
    def _batch(args: tuple, kwargs: dict[str, Any]) -> Any:
        return args[3] if len(args) > 3 else kwargs["forward_batch"]

    def _spans(self, drafts: bool, mode: Any) -> list[Span]:
        """What the batch computes in this forward pass of one of the two models."""
        if mode.is_decode() and not drafts:
            return [Span(place, place, number, at := self._done[number], at + 1) for place, number in self._decodes]
        if mode.is_decode():
            step, wide = self._steps, self._branches
            return [
                Span(place, place * wide + branch, number, at := self._done[number] + step, at + 1, branch)
                for place, number in self._decodes
                for branch in range(wide)
            ]
        if mode.is_target_verify():
            width = self._width
            return [Span(place, place * width, number, at := self._done[number], at + width) for place, number in self._decodes]
        if drafts and not self._extends:  # behind a verification, of the accepted tokens
            width = self._width
            return [
                Span(place, place * width, number, at := self._done[number], at + self._accepted[number])
                for place, number in self._decodes
            ]
        return self._extends

    def _fill(self, layer: Any, batch: Any, given: dict[str, Any]) -> None:
        drafts = id(layer) not in self.target
        spans = self._spans(drafts, batch.forward_mode)
        if not spans:
            return
        if layer.layer_id == 0 and "q" in given:
            self._read_drafts(drafts, batch, spans)
            self._laid_out(drafts, batch, spans)
        for what, rows in given.items():
            heads, dim = self._shape(layer, what)
            # Of a latent, at times without what is behind it; other models may have a dimension before the rows
            rows = rows.view(len(rows), heads, -1) if mla.is_latent(layer) else rows.view(-1, heads, dim)
            for span in spans:
                drawn = self._of_span(what, layer, drafts, span, batch)
                rows[span.rows] = drawn[..., : rows.shape[-1]]
        kind = "draft" if drafts else "verify" if batch.forward_mode.is_target_verify() else None
        padded = (
            "padded"
            if len(batch.input_ids) > spans[-1].rows.stop and not (drafts and not batch.forward_mode.is_decode())
            else None
        )
        self.kinds = sorted({*self.kinds, *filter(None, (kind, padded))})

    def _read_drafts(self, drafts: bool, batch: Any, spans: list[Span]) -> None:
        """Which tokens the drafter said, and how many of them the target will accept."""
        mode, tokens = batch.forward_mode, None
        if mode.is_target_verify() or (drafts and mode.is_decode()):
            tokens = batch.input_ids.tolist()
        elif drafts:
            self._wrong.clear()
        if tokens and self._is_tree(drafts, batch):
            self._read_trees(tokens, spans)
            return
        for span in spans if tokens else ():
            wrong = self._wrong.setdefault((drafts, span.request, span.branch), {})
            for row, at in zip(range(span.row, span.rows.stop), range(span.begin, span.end)):
                if wrong or tokens[row] != self.texts.tokens[span.request][at + drafts]:
                    wrong[at] = tokens[row]
            if not drafts:
                self._accepted[span.request] = max(min(wrong, default=span.end) - span.begin, 1)

    def _is_tree(self, drafts: bool, batch: Any) -> bool:
        return self._branches > 1 and not drafts and batch.forward_mode.is_target_verify()

    def _read_trees(self, tokens: list[int], spans: list[Span]) -> None:
        """What hangs on what in the trees that are verified, and how far down the target will follow them."""
        assert self._links
        for span in spans:
            said, text = tokens[span.rows], self.texts.tokens[span.request]
            self._trees[span.request] = found = tree(*(link[span.place] for link in self._links), said)
            right = [said[row] == text[span.begin + depth] for row, depth in enumerate(found.depths)]
            whole = [depth for row, depth in enumerate(found.depths) if all(right[at] for at in found.above[row].nonzero())]
            self._accepted[span.request] = 1 + max(whole, default=0)

    def _laid_out(self, drafts: bool, batch: Any, spans: list[Span]) -> None:
        """Whether the engine gave each row its token and its position."""
        name = "draft " * drafts
        tokens, positions = [], []
        for _, _, number, begin, end, branch in spans:
            wrong = self._wrong.get((drafts, number, branch), {})
            text = self.texts.tokens[number]
            if self._is_tree(drafts, batch):
                tokens += [text[begin], *self._trees[number].tokens[1:]]
                positions += [begin + depth for depth in self._trees[number].depths]
                continue
            tokens += [
                text[at + drafts] if at not in wrong or (at == begin and not drafts) else wrong[at] for at in range(begin, end)
            ]
            positions += range(begin, end)
        for what, given, wanted in (("tokens", batch.input_ids, tokens), ("positions", batch.positions, positions)):
            given = given.tolist()
            if self.settings["images"] and what == "tokens":  # the model puts its last token there, when it has seen the image
                given, wanted = ([min(token, self.config["vocab_size"] - 1) for token in tokens] for tokens in (given, wanted))
            found = [value for span in spans for value in given[span.rows]]
            bad = next((row for row, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), None)
            error = math.inf if bad is not None or len(found) != len(wanted) else 0.0
            self.outputs.append(Output(name + what, error, reference.digest(found), _EXACT, f"row {bad}"))

    def _of_span(self, what: str, layer: Any, drafts: bool, span: Span, batch: Any) -> Any:
        """The rows that it computes."""
        if not self._is_tree(drafts, batch):
            return self._drawn(what, layer, drafts, span.request, span.branch)[span.begin : span.end]
        import torch

        drawn, found, rows = self._drawn(what, layer, drafts, span.request), self._trees[span.request], []
        for token, depth in zip(found.tokens, found.depths):
            at = span.begin + depth
            if token == self.texts.tokens[span.request][at]:
                rows.append(drawn[at])
            else:
                rows.append(self.texts.of_a_draft(what, layer.layer_id, span.request, at, token, drawn[0]))
        return torch.stack(rows)

    def _given(self, layer: Any, drafts: bool, span: Span, batch: Any, window: int | None) -> tuple[Any, Any, Any, Any]:
        """What the reference is given: keys, values, positions of the rows, and which keys each row of a tree sees."""
        import torch

        number, latent, found = span.request, mla.is_latent(layer), self._trees.get(span.request)
        keys = {what: self._drawn(what, layer, drafts, number, span.branch)[: span.end] for what in "kv"[: 2 - latent]}
        seen = None
        if self._is_tree(drafts, batch) and found:
            keys = {
                what: torch.cat([rows[: span.begin], self._of_span(what, layer, drafts, span, batch)])
                for what, rows in keys.items()
            }
            seen = torch.cat([torch.ones(len(found.depths), span.begin, dtype=torch.bool), found.above], 1)
            if window is not None:
                depths = torch.tensor(found.depths)
                at = torch.cat([torch.arange(span.begin), span.begin + depths])
                seen = seen & (at > (span.begin + depths)[:, None] - window)
        k, v = mla.of_each_head(layer, keys["k"]) if latent else (keys["k"], keys["v"])
        return k, v, range(span.begin, span.end), seen

    def _drawn(self, what: str, layer: Any, drafts: bool, number: int, branch: int = 0) -> Any:
        """The request's rows, those of wrong drafts among them."""
        rows = self.texts.rows(what, layer.layer_id, number, *self._shape(layer, what), self.dtype, drafts)
        if wrong := self._wrong.get((drafts, number, branch)):
            rows = rows.clone()
            for at, token in wrong.items():
                rows[at] = self.texts.of_a_draft(what, layer.layer_id, number, at, token, rows[0])
        return rows

    @staticmethod
    def _shape(layer: Any, what: str) -> tuple[int, int]:
        if mla.is_latent(layer):
            return mla.shape(layer, what)
        if what == "p":
            return 1, mamba2.width(layer)
        return {
            "q": (layer.tp_q_head_num, layer.qk_head_dim), "k": (layer.tp_k_head_num, layer.qk_head_dim),
            "v": (layer.tp_v_head_num, layer.v_head_dim),
        }[what]  # fmt: skip

    def _compare(self, layer: Any, batch: Any, out: Any, sinks: Any) -> None:
        import torch

        drafts = id(layer) not in self.target
        spans = self._spans(drafts, batch.forward_mode)
        if not spans:
            return
        latent = mla.is_latent(layer)
        attention = models.attention(models.LLAMA if drafts and not latent else self.config, layer.layer_id)
        (heads, _), (_, dim) = self._shape(layer, "q"), self._shape(layer, "v")
        rows, true, beside, labels = out.reshape(-1, heads, dim), [], [], []
        mode = "extend" if self._extends and not drafts else "decode" if batch.forward_mode.is_decode() and not drafts else ""
        for span in spans:
            k, v, positions, seen = self._given(layer, drafts, span, batch, attention.window)
            given = self._of_span("q", layer, drafts, span, batch), k, v, positions
            what = {"scale": attention.scale, "window": attention.window, "soft_cap": attention.soft_cap}
            if seen is not None:
                what |= {"window": None, "causal": False, "mask": seen}
            true.append(reference.attention(*given, **what, sinks=sinks if attention.sinks else None))
            if space.rounds_weights(self.settings, mode):
                cached = span.end if batch.forward_mode.is_decode() else span.begin
                about = {"narrow": space.narrow(self.settings), "cached": cached}
                beside.append(reference.of_narrow_weights(*given, **what, **about))
            labels += [f"request {span.request}, token {at}" for at in range(span.begin, span.end)]
        found, name = torch.cat([rows[span.rows] for span in spans]), f"{'draft ' * drafts}layer {layer.layer_id}"
        off = torch.cat(beside) if beside else 0.0
        self.outputs.append(reference.compare(name, found, torch.cat(true), labels, beside=off))

    def _compare_images(self, batch: Any, rows: Any) -> None:
        """Whether each token of an image got its own embedding, in chunks and behind cached ones, too."""
        import torch

        for span in self._spans(False, batch.forward_mode):
            image = self.texts.images[span.request]
            at = range(max(span.begin, image[0]), min(span.end, image[0] + image[1])) if image else ()
            if image and at:
                wanted = images.embeddings(image, rows.shape[-1], self.texts.seed)[at.start - image[0] : at.stop - image[0]]
                found = rows[span.row + at.start - span.begin : span.row + at.stop - span.begin]
                error = 0.0 if torch.equal(found, wanted.to(rows.dtype)) else math.inf
                label = f"request {span.request}, tokens {at.start} to {at.stop}"
                self.outputs.append(Output("images", error, reference.digest(found), _EXACT, label))

    def _compare_added(self, layer: Any, batch: Any, added: Any) -> None:
        """Whether each row got what its request's adapter adds, by Triton's kernels. added: None where none ran."""
        if id(layer) not in self.target:
            return  # a drafter has no adapters
        worst, label = 0.0, ""
        for span in self._spans(False, batch.forward_mode):
            adapter = self.texts.adapters[span.request]
            error = math.inf if adapter else 0.0
            if added:
                before, x, after = (rows[span.rows].double() for rows in added)
                wanted = adapters.added(self.config, adapter or 1, x)
                off = after - before - (wanted if adapter else 0)
                error = float((off.norm(dim=-1) / wanted.norm(dim=-1)).nan_to_num(math.inf).max())
            if error >= worst:
                worst, label = error, f"request {span.request}, tokens {span.begin} to {span.end}"
        # Without bits: which slot an adapter has, and so what is computed together, follows from a folder's name
        self.outputs.append(Output(f"adapters of layer {layer.layer_id}", worst, "", _EXACT, label))

    def _compare_recurrent(self, layer: Any, batch: Any, out: Any) -> None:
        import torch

        found, true, beside, labels = [], [], [], []
        for span in self._spans(False, batch.forward_mode):
            expected, off = mamba2.expected(layer, self._drawn("p", layer, False, span.request)[: span.end, 0], span.begin)
            found.append(out[span.rows])
            true.append(expected)
            beside.append(off)
            labels += [f"request {span.request}, token {at}" for at in range(span.begin, span.end)]
        if found:
            want, within = torch.cat(true), reference.tolerance(out.dtype)
            off = within.right * (torch.cat(beside) - 1).clamp_min(0)
            rows = torch.cat(found).view(want.shape)
            self.outputs.append(reference.compare(f"layer {layer.layer_id}", rows, want, labels, within, off))

    def _sure(self, layer: Any, batch: Any, out: Any) -> None:
        """The model's logits become those of the text's next tokens; a drafter's, at times, those of others."""
        drafts, mode, logits = id(layer) not in self.target, batch.forward_mode, out.next_token_logits
        spans = self._spans(drafts, mode)
        logits.zero_()
        each_row = len(logits) > 1 and (mode.is_target_verify() or (drafts and not self._extends and not mode.is_decode()))
        for span in spans:
            text, positions = self.texts.tokens[span.request], range(span.begin, span.end)
            rows = range(span.row, span.rows.stop) if each_row else [span.row if drafts and mode.is_decode() else span.place]
            if self._is_tree(drafts, batch):
                positions = [span.begin + depth for depth in self._trees[span.request].depths]
            for row, at in zip(rows, positions if each_row else positions[-1:]):
                if drafts and self._branches > 1:
                    wrong = self._wrong.get((drafts, span.request, span.branch), {})
                    first, second = self.texts.candidates(span.request, at + 2, wrong)
                    logits[row, first], logits[row, second] = 8, 7
                else:
                    token = self.texts.proposed(span.request, at + 2) if drafts else text[at + 1]
                    logits[row, min(token, logits.shape[1] - 1)] = 1  # in an image nobody asks for it
        if drafts and mode.is_decode():
            self._steps += 1
