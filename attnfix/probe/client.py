"""A running server over HTTP: what it says of itself, and its answers. vLLM's OpenAI path and sglang's own."""

from __future__ import annotations

import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from attnfix.compat import untrusted

from .answers import Answer, Died, ProbeError, Question, Refused
from .wire import Wire, brief

#: Log-probabilities asked for: what `--max-logprobs` of vLLM allows by default
TOP = 20
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_LAG = 10  # times that the counters are read until they have counted a question
_GRACE_S = 10  # that a server may take to show that it lives
_BUSY_S = 120  # that sglang's /health may take, which a token of some request answers
_NAME = 1000  # letters of a name
_MOST = 1 << 32  # of any size that is told
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.M)
_LABEL = re.compile(r'\b(\w+)="([^"]*)"')


@dataclass
class Facts:
    """What the server's own pages tell. flags: of its command line, where it says them; else what its metrics have of them.
    complete: whether those are all. block: tokens of a page of the cache. chunk: of a step. capacity: of the whole cache.
    longest: prompt and answer. drafts: tokens that a step of speculation verifies beside the last one; 0: no speculation."""

    engine: str
    release: str | None
    model: str | None
    flags: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    block: int = 16
    chunk: int | None = None
    window: int | None = None
    longest: int | None = None
    capacity: int | None = None
    ranks: int = 1
    drafts: int = 0
    fixes: tuple[str, ...] = ()  # attnfix's, in place there


def connect(
    url: str,
    key: str | None = None,
    timeout_s: float = 120,
    transport: httpx.BaseTransport | None = None,
) -> Server:
    """The server at `url`. Raises ProbeError where none of either engine answers. SSL_CERT_FILE names certificates to trust."""
    wire = Wire(url, key, timeout_s, transport)
    try:
        for kind in (Vllm, Sglang):  # sglang has no /version, and a vLLM in development mode has a /server_info
            if facts := kind.look(wire):
                return kind(wire, facts)
    except httpx.HTTPError as error:
        wire.close()
        raise ProbeError(f"{url} does not answer: {brief(error)}") from error
    except ProbeError:
        wire.close()
        raise
    wire.close()
    raise ProbeError(f"{url} answers neither as a vLLM nor as an sglang server")


class Server(ABC):
    """One server, which one thread asks."""

    _last: Question | None = None  # that it answered

    def __init__(self, wire: Wire, facts: Facts):
        self.wire, self.facts = wire, facts
        self.asked = self.tokens = 0  # the load put on it
        self.verified = 0  # steps of speculation that answers told of
        self.drafted = self._drafts()  # counted by the server so far, None where it counts none
        self._marks: dict[str, str] = {}

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    @classmethod
    @abstractmethod
    def look(cls, wire: Wire) -> Facts | None:
        """What a server of this engine says of itself; None: it is none."""

    @abstractmethod
    def _request(self, question: Question) -> tuple[str, dict[str, Any]]:
        """Path and body."""

    @abstractmethod
    def _answer(self, body: Any) -> Answer: ...

    @abstractmethod
    def tokenize(self, text: str) -> list[int] | None:
        """None: this server has no tokenizer, or does not show it."""

    def _headers(self) -> dict[str, str]:
        """Of every question: one replica of several answers them all."""
        return {}

    @abstractmethod
    def _drafts(self) -> float | None:
        """Steps of speculation, by the server's own count."""

    @abstractmethod
    def _mark(self) -> dict[str, str]:
        """What one process says of itself and never changes: its seed, when its counters began."""

    def several(self, looks: int = 1) -> bool:
        """Whether more than one server has answered at this address: a router, or replicas behind one name."""
        for _ in range(looks):
            try:
                seen = self._mark()
            except (httpx.HTTPError, ProbeError):
                continue
            if any(self._marks.get(name, value) != value for name, value in seen.items()):
                return True
            self._marks |= seen
        return False

    def speculates(self) -> bool | None:
        """Whether drafts were verified while it was asked; None: no speculation is said to be on."""
        if not self.facts.drafts:
            return None
        try:
            counted = self._drafts()
        except (httpx.HTTPError, ProbeError):
            counted = None
        return self.verified > 0 or (counted is not None and counted > (self.drafted or 0))

    def ask(self, question: Question) -> Answer:
        return self._post(question)

    def _post(self, question: Question) -> Answer:
        self.asked += 1
        self.tokens += len(question.tokens) + question.new * question.samples
        path, body = self._request(question)
        try:
            reply = self.wire.post(path, body, self._headers())
        except httpx.TransportError as error:
            raise self._lost(question, error) from error
        if reply.status != 200:
            if "not JSON compliant" in reply.text:  # a NaN among the log-probabilities
                return Answer(not_finite=True)
            if reply.status >= 500 and not self._lives():
                raise self._died(question, f"status {reply.status}")
            raise Refused(f"status {reply.status}: {' '.join(reply.text.split())[:200]}")
        try:
            answer = self._answer(reply.json())
            self.verified += answer.verified or 0
            self._last = question
            return answer
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Refused(f"an answer of another form: {type(error).__name__} {brief(error)}") from error

    def ask_all(self, questions: Sequence[Question], apart_s: float = 0.004, cached: int | None = None) -> list[Answer]:
        """At once, but so that they arrive in this order. cached: which of them alone should find something in the cache."""
        return self._at_once(questions, apart_s)

    def _at_once(self, questions: Sequence[Question], apart_s: float) -> list[Answer]:
        gone = threading.Event()

        def later(at: int) -> Answer:
            time.sleep(at * apart_s)
            if gone.is_set():
                raise Refused("the server died under one that was asked before")
            try:
                return self._post(questions[at])
            except Died:
                gone.set()
                raise

        with ThreadPoolExecutor(len(questions)) as pool:
            futures = [pool.submit(later, at) for at in range(len(questions))]
        for future in futures:
            if isinstance(error := future.exception(), Died):
                asked = "; ".join(dict.fromkeys(question.why for question in questions))
                raise Died({**error.question, "why": asked}, error.reason) from error
        return [future.result() for future in futures]

    def alive(self) -> bool:
        """Whether it answers, and says that its engine does, within a few seconds."""
        until = time.monotonic() + _GRACE_S
        while True:
            try:
                if self.wire.get("/health", _GRACE_S / 2).status < 500:
                    return True
            except Refused:
                return True
            except httpx.ConnectError:
                return False
            except httpx.TransportError:
                pass
            if time.monotonic() > until:
                return False
            time.sleep(1)

    def must_live(self) -> None:
        """Raises Died, of the last question that it answered, where it does not live any more."""
        if self._last and not self._lives():
            raise self._died(self._last, "it answered, and does not live any more")

    def _lives(self) -> bool:
        """Whether its engine lives, if late: for a token of any request, sglang's /health waits up to 20 s by default."""
        if self.alive():
            return True
        try:
            return self.wire.get("/health", _BUSY_S).status < 500
        except Refused:
            return True
        except httpx.TransportError:
            return False

    def _lost(self, question: Question, error: httpx.TransportError) -> ProbeError:
        reason = brief(error)
        if self._lives() and not self.several():  # what was started anew has died
            return Refused(f"no answer: {reason}")
        return self._died(question, reason)

    def _died(self, question: Question, reason: str) -> Died:
        told = {"why": question.why, "tokens": len(question.tokens), "new": question.new, "salt": bool(question.salt)}
        return Died(told, reason)

    def page(self) -> str:
        return _text(self.wire, "/metrics")


class Vllm(Server):
    def __init__(self, wire: Wire, facts: Facts):
        super().__init__(wire, facts)
        self._tells = False  # whether its answers tell what was cached; else its metrics may
        self._counts = True  # whether its metrics are asked for: where they hang, they are waited for once

    @classmethod
    def look(cls, wire: Wire) -> Facts | None:
        told = _json(wire, "/version")
        if "version" not in told:
            return None
        model = _first("/v1/models", _json(wire, "/v1/models").get("data"))
        page = _text(wire, "/metrics")
        cache = next((labels for name, labels, _ in samples(page) if name == "vllm:cache_config_info"), {})
        block, blocks = _number(cache.get("block_size")), _number(cache.get("num_gpu_blocks"))
        ranks = {labels.get("engine") for name, labels, _ in samples(page) if name == "vllm:num_requests_running"}
        drafts = {labels.get("position") for name, labels, _ in samples(page) if name == _PER_POSITION}
        return Facts(
            "vllm", _name("its release", told["version"]), _name("its model", model.get("id")), dict(cache), block=block or 16,
            window=_number(cache.get("sliding_window")), longest=_number(model.get("max_model_len")),
            capacity=block * blocks if block and blocks else None, ranks=max(len(ranks), 1),
            drafts=len(drafts), fixes=_fixes(page),
        )  # fmt: skip

    def _drafts(self) -> float | None:
        found = [value for name, _, value in samples(self.page()) if name == "vllm:spec_decode_num_drafts_total"]
        return sum(found) if found else None

    def _mark(self) -> dict[str, str]:
        """When each counter of its metrics began, and how large its cache is."""
        found = {}
        for name, labels, value in samples(self.page()):
            if name.endswith("_created") or name == "process_start_time_seconds":
                found[f"{name} {sorted(labels.items())}"] = str(value)
            elif name == "vllm:cache_config_info":
                found[f"{name} {labels.get('engine')}"] = str(labels.get("num_gpu_blocks"))
        return found

    def ask(self, question: Question) -> Answer:
        return self._counting([question], lambda: [self._post(question)], 0)[0]

    def ask_all(self, questions: Sequence[Question], apart_s: float = 0.004, cached: int | None = None) -> list[Answer]:
        return self._counting(questions, lambda: self._at_once(questions, apart_s), cached)

    def _counting(self, questions: Sequence[Question], ask: Callable[[], list[Answer]], cached: int | None) -> list[Answer]:
        """Where the answers do not tell what was cached, the counters' difference does, if nobody else asked meanwhile."""
        before = None if self._tells else self._counters()
        answers = ask()
        self._tells = self._tells or any(answer.cached is not None for answer in answers)
        if self._tells:  # nothing is told of no tokens
            return [replace(answer, cached=answer.cached or 0) for answer in answers]
        if before is None or cached is None:
            return answers
        expected = sum(len(question.tokens) for question in questions)
        for _ in range(_LAG):
            after = self._counters()
            if after is None:
                break
            if after[0] - before[0] == expected:
                answers[cached] = replace(answers[cached], cached=int(after[1] - before[1]))
                break
            time.sleep(0.03)
        return answers

    def _counters(self) -> tuple[float, float] | None:
        """(tokens looked up, tokens found) in the cache, of all ranks. None also where the page does not come: whether the
        server has died is seen by what is asked next."""
        found = {"queries": [0.0], "hits": [0.0]}
        if not self._counts:
            return None
        try:
            page = self.page()
        except httpx.TransportError as error:  # one that was reset may come the next time
            self._counts = not isinstance(error, httpx.TimeoutException)
            return None
        except (httpx.HTTPError, ProbeError):
            self._counts = False
            return None
        for name, _, value in samples(page):
            for what in found:
                if name == f"vllm:prefix_cache_{what}_total":
                    found[what].append(value)
        return (sum(found["queries"]), sum(found["hits"])) if len(found["queries"]) > 1 else None

    def _request(self, question: Question) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            "model": self.facts.model, "prompt": list(question.tokens), "max_tokens": question.new, "temperature": 0,
            "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "n": 1, "ignore_eos": True,
            "stream": False, "logprobs": TOP, "return_tokens_as_token_ids": True,  # nosec B105
        }  # fmt: skip
        if question.samples > 1:  # not with temperature 0; with the most probable token alone they are as greedy
            body |= {"n": question.samples, "temperature": 1, "top_k": 1}
        return "/v1/completions", body | ({"cache_salt": question.salt} if question.salt else {})

    def _headers(self) -> dict[str, str]:
        return {"X-data-parallel-rank": "0"} if self.facts.ranks > 1 else {}

    def _answer(self, body: Any) -> Answer:
        details = (body.get("usage") or {}).get("prompt_tokens_details") or {}
        first, *others = (self._choice(choice, _number(details.get("cached_tokens"), 0)) for choice in body["choices"])
        return replace(first, others=tuple(others))

    @staticmethod
    def _choice(choice: Any, cached: int | None) -> Answer:
        logprobs = choice["logprobs"]
        tokens = tuple(map(_token_id, logprobs["tokens"]))
        listed = [[(_token_id(name), value) for name, value in each.items()] for each in logprobs["top_logprobs"]]
        return _read(tokens, listed, cached, str(choice.get("text") or ""))

    def tokenize(self, text: str) -> list[int] | None:
        body = {"model": self.facts.model, "prompt": text, "add_special_tokens": False}
        return _tokens(self.wire, body)


class Sglang(Server):
    @classmethod
    def look(cls, wire: Wire) -> Facts | None:
        told = _json(wire, "/get_server_info") or _json(wire, "/server_info")
        model = _json(wire, "/get_model_info") or _json(wire, "/model_info")
        if not model.get("model_path") and not told:
            return None
        capacity = _number(told.get("max_total_num_tokens"))
        state = _first("internal_states", told.get("internal_states"))
        usage = state.get("memory_usage")
        longest = _number(told.get("max_req_input_len")) or _number(told.get("context_length"))
        chunk = _number(told.get("chunked_prefill_size"))
        return Facts(
            "sglang", _name("its release", told.get("version")),
            _name("its model", model.get("model_path") or told.get("model_path")),
            {name: value for name, value in told.items() if not isinstance(value, (dict, list))}, complete=bool(told),
            block=_number(told.get("page_size")) or 1, chunk=chunk, longest=longest,
            capacity=capacity or _number(usage.get("token_capacity") if isinstance(usage, dict) else None),
            ranks=_number(told.get("dp_size")) or 1, drafts=_sglang_drafts(told), fixes=_fixes(_text(wire, "/metrics")),
        )  # fmt: skip

    def _drafts(self) -> float | None:
        return None  # its answers tell

    def _mark(self) -> dict[str, str]:
        """Its seed is drawn anew by each process that is not given one."""
        told = _json(self.wire, "/get_server_info") or _json(self.wire, "/server_info")
        names = "random_seed", "nccl_port", "host", "port", "max_total_num_tokens"
        return {name: str(told[name]) for name in names if told.get(name) is not None}

    def _request(self, question: Question) -> tuple[str, dict[str, Any]]:
        sampling = {
            "max_new_tokens": question.new, "temperature": 0, "top_p": 1, "top_k": -1, "ignore_eos": True,
            "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1,
        }  # fmt: skip
        body: dict[str, Any] = {
            "input_ids": list(question.tokens), "sampling_params": sampling, "return_logprob": True, "top_logprobs_num": TOP,
            "stream": False,
        }  # fmt: skip
        if self.facts.ranks > 1:
            body["data_parallel_rank"] = 0
        if question.samples > 1:
            sampling["n"] = question.samples
        return "/generate", body | ({"extra_key": question.salt} if question.salt else {})

    def _answer(self, body: Any) -> Answer:
        first, *others = map(self._one, body if isinstance(body, list) else [body])
        return replace(first, others=tuple(others))

    @staticmethod
    def _one(body: Any) -> Answer:
        told = body["meta_info"]
        listed = [[(_token_id(token), value) for value, token, *_ in each] for each in told["output_top_logprobs"]]
        tokens = tuple(_token_id(token) for _, token, *_ in told["output_token_logprobs"])
        answer = _read(tokens, listed, _number(told.get("cached_tokens"), 0), str(body.get("text") or ""))
        return replace(answer, verified=_number(told.get("spec_verify_ct"), 0))

    def tokenize(self, text: str) -> list[int] | None:
        return _tokens(self.wire, {"model": self.facts.model, "prompt": text, "add_special_tokens": False})


def _sglang_drafts(told: Mapping[str, Any]) -> int:
    if not told.get("speculative_algorithm"):
        return 0
    return max((_number(told.get("speculative_num_draft_tokens")) or 2) - 1, 1)


def _read(tokens: tuple[int, ...], listed: list[list[tuple[int, Any]]], cached: int | None, text: str) -> Answer:
    """A position of whose tokens none has a number is one where the model had none."""
    if not listed or not all(listed):
        raise ValueError("no log-probabilities")
    told = [[(token, _log_probability(value)) for token, value in each] for each in listed]
    numbers = tuple({token: value for token, value in each if math.isfinite(value)} for each in told)
    return Answer(tokens, numbers, cached, not all(numbers), text)


def _log_probability(value: Any) -> float:
    """A number, or none: NaN. Raises ValueError for anything else."""
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or 1 < value < math.inf:  # one above 0 by a rounding is none of a model that fails
        raise ValueError("that is no log-probability")
    return float(value)


# Pages


def samples(page: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each sample of a metrics page."""
    return [(name, dict(_LABEL.findall(labels)), _float(value)) for name, labels, value in _SAMPLE.findall(page)]


def _fixes(page: str) -> tuple[str, ...]:
    """The fixes of attnfix that are in place, as its lines on the engine's page say."""
    found = [labels for name, labels, value in samples(page) if name == "attnfix_fix_info" and value]
    named = {each.get("fix", "") for each in found if each.get("state") in ("installed", "effective")}
    return tuple(sorted(untrusted.line(name[:_NAME]) for name in named)[:_NAME])


def _text(wire: Wire, path: str) -> str:
    reply = wire.get(path)
    if reply.status == 401:
        raise ProbeError("the server wants an API key: --key, or PROBE_API_KEY")
    return reply.text if reply.status == 200 else ""


def _json(wire: Wire, path: str) -> dict[str, Any]:
    reply = wire.get(path)
    if reply.status == 401:
        raise ProbeError("the server wants an API key: --key, or PROBE_API_KEY")
    try:
        found = reply.json() if reply.status == 200 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tokens(wire: Wire, body: Mapping[str, Any]) -> list[int] | None:
    """None: the server has no tokenizer. Raises ProbeError for ids that are none: one beyond a vocabulary may end a server."""
    try:
        reply = wire.post("/tokenize", body)
        found = reply.json().get("tokens") if reply.status == 200 else None
    except (httpx.TransportError, ValueError, AttributeError):
        return None
    try:
        return list(map(_token_id, found)) if found else None
    except (TypeError, ValueError, OverflowError) as error:
        raise ProbeError("/tokenize answers with what are no token ids") from error


def _first(what: str, found: Any) -> dict[str, Any]:
    """The first object of a list that a server tells; {}: it tells none."""
    if not found:
        return {}
    if isinstance(found, list) and isinstance(found[0], dict):
        return found[0]
    raise ProbeError(f"{what} is no list of objects")


def _name(what: str, found: Any) -> str | None:
    if found is None or (isinstance(found, str) and len(found) <= _NAME):
        return found
    raise ProbeError(f"the server calls {what} by what is no name")


def _token_id(name: Any) -> int:
    """Raises TypeError or ValueError."""
    found = int(name.removeprefix("token_id:") if isinstance(name, str) else name)
    if not 0 <= found < 1 << 31:
        raise ValueError("that is no token id")
    return found


def _number(value: Any, least: int = 1) -> int | None:
    """A size that a server may have; what is none is as if it had not been told."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if least <= found <= _MOST else None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
