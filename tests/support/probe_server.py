"""A server of ours that speaks vLLM's or sglang's protocol, batches, caches by block, and lies in a chosen way.

Its model is a toy: the log-probabilities of the next token are drawn from a hash of the whole context. So a right answer is
known, and a fault has the size that is asked for. Nothing of it is evidence on an engine.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import numpy

from attnfix.probe import answers

VOCABULARY = 256  # ids from 100 on
TOP = 20


@dataclass
class Request:
    tokens: tuple[int, ...]
    salt: str
    new: int
    samples: int = 1
    cached: int = 0
    others: list[Request] = field(default_factory=list)  # samples beside this one
    told: list[int] = field(default_factory=list)
    listed: list[dict[int, float]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class Behaviour:
    """lies: size in nat by the relation that it breaks. share: of prompts that a lie hits. noise: standard deviation of a
    log-probability when the shape of the batch changes. shy: answers do not tell what was cached. salts: whether they part the
    cache. caches: whether there is one. dies: ends when a request has something cached. dies_beside: when so many
    are in a batch. window: the context limit. nan: lies are NaN. recalls: says what
    followed where the last tokens stood before. forgets: a lie takes that away. drafts: tokens of a step of speculation beside
    the last. drafting: whether there are any. told_block: the size of a page as the server tells it, where that is not the one
    by which it caches, as with recurrent states. started: what only this process says of itself. recorded: how far answers of a
    real server moved, by circumstance; noise is then drawn from these figures, one for each answer."""

    engine: str = "vllm"
    lies: dict[str, float] = field(default_factory=dict)
    share: float = 1.0
    noise: float = 0.0
    block: int = 16
    shy: bool = False
    salts: bool = True
    caches: bool = True
    dies: bool = False
    dies_beside: int = 0
    window: int = 8192
    nan: bool = False
    recalls: bool = False
    forgets: bool = False
    drafts: int = 0
    drafting: bool = True
    told_block: int = 0
    started: float = 1.0
    recorded: dict[str, list[float]] = field(default_factory=dict)
    release: str = ""
    key: str = ""
    tokenizer: bool = True


class Engine:
    """What stands behind the protocol: batches go in, answers come out."""

    def __init__(self, behaviour: Behaviour):
        self.how = behaviour
        self.dead = False
        self.draw = random.Random()
        self.queries = self.hits = self.verified = 0
        self._cache: set[tuple[str, int]] = set()
        self._said: dict[tuple[str, int], int] = {}  # where an answer began, by the prompt that it continues

    def serve(self, batch: Sequence[Request]) -> None:
        """One batch; all requests in it run together from the first step to the last."""
        if self.how.dies_beside and len(batch) >= self.how.dies_beside:
            self.dead = True
            raise ConnectionAbortedError
        for request in batch:
            request.cached = self._found(request)
            self.queries += len(request.tokens)
            self.hits += request.cached
            if self.how.dies and request.cached:
                self.dead = True
                raise ConnectionAbortedError
        for request in batch:
            self._answer(request, self._lie(request, batch), batch)
            request.others = [Request(request.tokens, request.salt, request.new) for _ in range(request.samples - 1)]
            for other in request.others:
                self._answer(other, self._share(request) * self.how.lies.get("samples", 0.0), [request, *request.others])
        for request in batch:
            self._keep(request)

    def _key(self, request: Request, count: int) -> tuple[str, int]:
        whole = (*request.tokens, *request.told[:-1])  # the last token has not been read yet
        return (request.salt if self.how.salts else "", hash(whole[:count]))

    def _found(self, request: Request) -> int:
        count = 0
        while self.how.caches and count + self.how.block < len(request.tokens):
            if self._key(request, count + self.how.block) not in self._cache:
                break
            count += self.how.block
        return count

    def _keep(self, request: Request) -> None:
        whole = len(request.tokens) + len(request.told) - 1
        self._cache.update(self._key(request, count) for count in range(self.how.block, whole + 1, self.how.block))
        for count in range(len(request.tokens) // self.how.block * self.how.block + self.how.block, whole + 1, self.how.block):
            self._said[self._key(request, count)] = count

    def _answer(self, request: Request, size: float, batch: Sequence[Request]) -> None:
        shape = hash((len(batch), sum(len(each.tokens) - each.cached for each in batch), request.cached))
        alone = len(batch) == 1 and not request.cached
        self.verified += self.how.drafts > 0 and self.how.drafting
        drawn = self._drawn(request, batch)
        for _ in range(request.new):
            read = (*request.tokens, *request.told)
            context = hash(read)
            logits = _normal(context) * 3
            if self.how.recalls and not (size and self.how.forgets):
                logits[_recalled(read) - 100] += 30
            if self.how.noise and not alone:
                logits = logits + _normal(hash((context, shape))) * self.how.noise
            if drawn:
                logits = _moved(logits, _normal(hash((context, shape))), drawn)
            if size:
                logits = logits + _normal(hash((context, 1))) * size
            values = _normed(logits)
            if size and self.how.nan:
                values = values * numpy.nan
            order = numpy.argsort(-values)[:TOP]
            request.listed.append({100 + int(at): float(values[at]) for at in order})
            request.told.append(100 + int(order[0]))

    def _drawn(self, request: Request, batch: Sequence[Request]) -> float:
        if not self.how.recorded or (len(batch) == 1 and not request.cached):
            return 0.0
        name = "samples" if any(request is other for each in batch for other in each.others) else None
        figures = self.how.recorded.get(name or self._circumstance(request, batch)) or self.how.recorded["floor"]
        return self.draw.choice(figures)

    def _share(self, request: Request) -> bool:
        return hash(request.tokens[:8]) % 1000 < self.how.share * 1000

    def _lie(self, request: Request, batch: Sequence[Request]) -> float:
        if not self.how.lies or not self._share(request):
            return 0.0
        name = self._circumstance(request, batch)
        return self.how.lies.get(name, 0.0)

    def _circumstance(self, request: Request, batch: Sequence[Request]) -> str:
        """The relation under which it is asked, as far as a server can see it."""
        if len(batch) > 1:
            equal = all(len(each.tokens) == len(request.tokens) for each in batch)
            if equal:
                return "floor"
            if request.cached:
                return "cached, in company"
            return "in company" if len(batch) < 6 else "burst"
        if not request.cached:
            return "cold"
        if self._key(request, request.cached) in self._said:
            return "next turn"
        return "again" if request.cached >= len(request.tokens) - self.how.block else "cached prefix"


def _recalled(read: Sequence[int]) -> int:
    """What followed the last three tokens where they stood before, and 100 where they did not."""
    for at in range(3, len(read) - 1):
        if read[at - 3 : at] == read[-3:]:
            return read[at]
    return 100


def _normed(logits: Any) -> Any:
    return logits - numpy.log(numpy.exp(logits - logits.max()).sum()) - logits.max()


def _moved(logits: Any, direction: Any, by: float) -> Any:
    """Logits of which the answer is `by` nat apart, as the probe measures it."""
    right, size = _listed(logits), by
    for _ in range(2):  # it is about linear
        size *= by / max(answers.moved(right, _listed(logits + direction * size)), 1e-6)
    return logits + direction * size


def _listed(logits: Any) -> dict[int, float]:
    values = _normed(logits)
    return {int(at): float(values[at]) for at in numpy.argsort(-values)[:TOP]}


def _normal(seed: int) -> Any:
    return numpy.random.default_rng(seed & (2**63 - 1)).standard_normal(VOCABULARY)


class Protocol:
    """The HTTP of one engine: `handle` takes a request, and waits a moment for others to share its batch."""

    def __init__(self, behaviour: Behaviour, window_s: float = 0.03):
        self.how, self.engine, self._window = behaviour, Engine(behaviour), window_s
        self._waiting: list[Request] = []
        self._lock = threading.Lock()
        self._words: dict[str, int] = {}  # and their tokens
        self.asked: list[dict[str, Any]] = []  # bodies

    def handle(self, method: str, path: str, body: bytes, key: str = "") -> tuple[int, Any]:
        """(status, text or JSON). Raises ConnectionAbortedError where a real server would be gone."""
        if self.engine.dead:
            raise ConnectionAbortedError
        if self.how.key and key != f"Bearer {self.how.key}" and path != "/health":
            return 401, {"error": "Unauthorized"}
        if method == "GET":
            found = self._pages().get(path)
            return (200, found()) if found else (404, {})
        asked = json.loads(body)
        if path == "/tokenize" and self.how.tokenizer:
            return 200, {"tokens": [self._token(word) for word in re.findall(r"\w+|[^\w\s]", asked["prompt"])]}
        if path == "/v1/completions" and self.how.engine == "vllm":
            request = Request(tuple(asked["prompt"]), asked.get("cache_salt", ""), asked["max_tokens"], asked["n"])
            form = self._vllm
        elif path == "/generate" and self.how.engine == "sglang":
            sampling = asked["sampling_params"]
            new, samples = sampling["max_new_tokens"], sampling.get("n", 1)
            request = Request(tuple(asked["input_ids"]), asked.get("extra_key", ""), new, samples)
            form = self._sglang
        else:
            return 404, {}
        self.asked.append(asked)
        self._join(request)
        return 200, form(request)

    def _token(self, word: str) -> int:
        return self._words.setdefault(word, 101 + len(self._words) % (VOCABULARY - 1))

    def _text(self, request: Request) -> str:
        words = {token: word for word, token in self._words.items()}
        return "".join(f" {words.get(token, '?')}" for token in request.told)

    def _join(self, request: Request) -> None:
        """The first who waits serves all who have come meanwhile."""
        with self._lock:
            self._waiting.append(request)
            first = len(self._waiting) == 1
        if not first:
            if not request.done.wait(60) or self.engine.dead:
                raise ConnectionAbortedError
            return
        time.sleep(self._window)
        with self._lock:
            batch, self._waiting = self._waiting, []
            try:
                self.engine.serve(batch)
            finally:
                for each in batch:
                    each.done.set()

    def _pages(self) -> dict[str, Callable[[], Any]]:
        shared: dict[str, Callable[[], Any]] = {"/health": lambda: ""}
        if self.how.engine == "sglang":
            about = {
                "page_size": self.how.told_block or self.how.block,
                "kv_cache_dtype": "auto",
                "max_total_num_tokens": 65536,
                "api_key": self.how.key,
            }
            about |= {
                "version": self.how.release or "0.5.23",
                "context_length": self.how.window,
                "chunked_prefill_size": 512,
                "dp_size": 1,
                "random_seed": self.how.started,
            }
            if self.how.drafts:
                about |= {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": self.how.drafts + 1}
            return shared | {"/get_server_info": lambda: about, "/get_model_info": lambda: {"model_path": "toy"}}
        return shared | {
            "/version": lambda: {"version": self.how.release or "0.33.0"},
            "/v1/models": lambda: {"data": [{"id": "toy", "max_model_len": self.how.window}]},
            "/metrics": self._metrics,
        }

    def _metrics(self) -> str:
        block = self.how.told_block or self.how.block
        cache = f'block_size="{block}",cache_dtype="auto",num_gpu_blocks="4096",sliding_window="None"'
        drafts = [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} 0.0' for at in range(self.how.drafts)]
        drafts += [f"vllm:spec_decode_num_drafts_total {float(self.engine.verified)}"] if drafts else []
        return "".join(f"{line}\n" for line in drafts) + (
            f"process_start_time_seconds {self.how.started}\n"
            f"vllm:cache_config_info{{{cache}}} 1.0\n"
            f'vllm:num_requests_running{{engine="0",model_name="toy"}} 0.0\n'
            f'vllm:prefix_cache_queries_total{{engine="0",model_name="toy"}} {float(self.engine.queries)}\n'
            f'vllm:prefix_cache_hits_total{{engine="0",model_name="toy"}} {float(self.engine.hits)}\n'
        )

    def _vllm(self, request: Request) -> dict[str, Any]:
        choices = []
        for one in (request, *request.others):
            listed = [{f"token_id:{token}": _json(value) for token, value in each.items()} for each in one.listed]
            logprobs = {"tokens": [f"token_id:{token}" for token in one.told], "top_logprobs": listed}
            choices.append({"text": self._text(one), "logprobs": logprobs})
        details = None if self.how.shy or not request.cached else {"cached_tokens": request.cached}
        usage = {"prompt_tokens": len(request.tokens), "prompt_tokens_details": details}
        return {"choices": choices, "usage": usage}

    def _sglang(self, request: Request) -> Any:
        made = [self._generated(one) for one in (request, *request.others)]
        return made if request.others else made[0]

    def _generated(self, request: Request) -> dict[str, Any]:
        top = [[[_json(value), token, None] for token, value in each.items()] for each in request.listed]
        said = [[_json(each[token]), token, None] for token, each in zip(request.told, request.listed)]
        told = {"cached_tokens": request.cached, "output_token_logprobs": said, "output_top_logprobs": top}
        if self.how.drafts and self.how.drafting:
            told["spec_verify_ct"] = 2
        return {"text": self._text(request), "meta_info": told}


def _json(value: float) -> float | None:
    return None if numpy.isnan(value) else value


def transport(protocol: Protocol) -> httpx.MockTransport:
    """The server without a socket."""

    def handle(request: httpx.Request) -> httpx.Response:
        key = request.headers.get("authorization", "")
        try:
            status, found = protocol.handle(request.method, request.url.path, request.content, key)
        except ConnectionAbortedError as error:
            raise httpx.ConnectError("connection refused") from error
        return httpx.Response(status, text=found) if isinstance(found, str) else httpx.Response(status, json=found)

    return httpx.MockTransport(handle)


class Listening:
    """The server on a port of this machine: `with Listening(Protocol(Behaviour())) as url`."""

    def __init__(self, protocol: Protocol):
        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    status, found = protocol.handle(self.command, self.path, body, self.headers.get("Authorization", ""))
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
                text = found if isinstance(found, bytes) else (found if isinstance(found, str) else json.dumps(found)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = _reply

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
