"""`attnfix probe` against servers of ours that speak both protocols over sockets, and lie in a chosen way."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import pytest

from attnfix import cli
from attnfix.cli import probe
from attnfix.probe import client, relations
from attnfix.probe.answers import Died, Question
from attnfix.probe.run import Plan, Run
from tests.support.probe_server import Behaviour, Listening, Protocol, transport

ENGINES = "vllm", "sglang"


@pytest.fixture
def ask(capsys):
    """`ask(Behaviour, *words)`: exit code, JSON, and what the server was asked."""

    def run(behaviour, *words, window_s=0.012):
        protocol = Protocol(behaviour, window_s)
        with Listening(protocol) as url:
            code = cli.main(["probe", url, "--json", "--prompts", "6", "--length", "130", *words])
        return code, json.loads(capsys.readouterr().out), protocol.asked

    return run


def verdicts_of(found):
    return {row["relation"]: row["verdict"] for row in found["relations"]}


def test_the_relations_are_those_of_the_package():
    names = relations.AGAIN, relations.PREFIX, relations.COMPANY, relations.CACHED_COMPANY, relations.BURST, relations.TURN
    assert (*names, relations.SAMPLES) == probe.RELATIONS
    assert (relations.LIMIT, relations.WHOLE) == (probe._LIMITS, probe._WHOLE)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_healthy_server_holds(ask, engine):
    code, found, asked = ask(Behaviour(engine, noise=0.02, key="secret"), "--key", "secret")
    assert code == 0 and set(verdicts_of(found).values()) == {"holds"}, found["relations"]
    assert found["engine"] == engine and 0 < found["floor"] < 0.08 and found["prompt"]["natural"]
    assert found["load"]["requests"] == len(asked)
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cache_with_larger_pages_than_the_server_tells_has_a_next_turn(ask, engine):
    """As of a hybrid model, whose states are kept at the ends of larger pages: an answer is as long as these need it."""
    words = "--relation", "again", "--relation", "next turn"
    code, found, _ = ask(Behaviour(engine, noise=0.02, block=48, told_block=16), *words)
    assert code == 0 and verdicts_of(found) == dict.fromkeys(("again", "next turn"), "holds"), found["relations"]


def test_prompts_leave_company_more_of_a_step_or_less(ask):
    """Whatever the budget of a step is: a fault may need a neighbour that begins in a prompt's last step."""
    *_, asked = ask(Behaviour(noise=0.02), "--relation", "in company", "--prompts", "8")
    lengths = {len(each["prompt"]) for each in asked if len(each["prompt"]) > 80}
    assert len(lengths) > 4 and min(lengths) < 120 and max(lengths) <= 130


@pytest.mark.parametrize("relation", probe.RELATIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_broken_relation_is_told(ask, engine, relation):
    # Company arrives one after the other: a step waits until all of it must be there
    window_s = 0.06 if relation in (relations.COMPANY, relations.CACHED_COMPANY, relations.BURST) else 0.012
    other = relations.TURN if relation == relations.AGAIN else relations.AGAIN
    words = "--relation", relation, "--relation", other
    code, found, _ = ask(Behaviour(engine, {relation: 0.4}, noise=0.02), *words, window_s=window_s)
    said = verdicts_of(found)
    assert code == 1 and said == {relation: "broken", other: "holds"}, found["relations"]
    assert relation in found["sentence"] and found["suspects"]


def test_a_prefix_that_is_all_of_the_prompt_is_named_by_its_cause(ask):
    code, found, _ = ask(Behaviour(lies={"again": 0.4}), "--relation", "again", "--relation", "cached prefix", "--prompts", "8")
    assert (
        code == 1
        and "when the same prompt is asked again (again). " in found["sentence"]
        and "that is again" in found["sentence"]
    )
    prefix = found["relations"][1]
    assert {each["at"] for each in prefix["where"] if each["exceeded"]} == {"all of it"} and len(prefix["where"]) > 3
    assert "seen only" not in found["sentence"]


def test_a_place_that_matters_is_told():
    where = [{"at": "first", "prompts": 4, "exceeded": 4}, {"at": "two pages, 1 more", "prompts": 4, "exceeded": 4}]
    where.append({"at": "last", "prompts": 8, "exceeded": 0})
    row = {"relation": "in company", "where": where, "lost": ["Omar"], "prompts": 8}
    said = " ".join(probe._broken([row], ["in company"]))
    assert (
        "in company: seen only at first; 2 pages + 1 token." in said
        and "forgot the name from page 2 (Omar) in 1 of 8 prompts." in said
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_forgotten_name_is_told(ask, engine):
    lie = {"cached prefix": 0.01}
    code, found, _ = ask(Behaviour(engine, lie, recalls=True, forgets=True), "--relation", "cached prefix")
    assert code == 1 and "forgot the name from page 2" in found["sentence"], found["relations"]
    assert found["prompt"]["needles"] == found["relations"][0]["prompts"]
    code, found, _ = ask(Behaviour(engine, recalls=True, noise=0.02), "--relation", "cached prefix")
    assert code == 0 and found["relations"][0]["lost"] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_speculation_that_is_said_and_not_seen_is_unclear(ask, engine):
    code, found, _ = ask(Behaviour(engine, drafts=3), "--relation", "again")
    assert (code, found["speculation"]) == (0, "on")
    code, found, _ = ask(Behaviour(engine, drafts=3, drafting=False), "--relation", "again")
    assert (code, found["speculation"]) == (2, "not seen") and "no draft was seen" in found["sentence"]


@pytest.mark.parametrize("engine", ENGINES)
def test_replicas_behind_a_router_are_not_asked(engine, capsys):
    replicas = [Protocol(Behaviour(engine, started=float(at)), 0.01) for at in range(2)]
    turn = itertools.count()

    class Router:
        def handle(self, *request):
            return replicas[next(turn) % 2].handle(*request)

    with Listening(Router()) as url:
        assert cli.main(["probe", url, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["several_servers"] and "name one of them" in found["sentence"] and not any(each.asked for each in replicas)
    assert {row["verdict"] for row in found["relations"]} == {"unclear"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_context_limit_is_asked_for_on_request(ask, engine):
    words = "--relation", "again", "--prompts", "5", "--at-once", "8,1"
    code, found, asked = ask(Behaviour(engine, window=1024), *words, "--limits")
    assert code == 0 and verdicts_of(found) == {"again": "holds", "context limit": "holds"}, found["relations"]
    lengths = [len(each.get("prompt") or each.get("input_ids")) for each in asked]
    assert max(lengths) == 1024 - 8


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_that_are_no_numbers_are_broken(ask, engine):
    code, found, _ = ask(Behaviour(engine, {"again": 1.0}, nan=True), "--relation", "again")
    assert code == 1 and found["relations"][0]["worst"] == "not finite"


def test_a_server_that_dies_is_a_result_and_is_not_asked_again(ask, monkeypatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.2)
    code, found, asked = ask(Behaviour(dies=True))
    assert code == 1 and found["verdict"] == "broken" and "died" in found["sentence"]
    assert found["died"]["why"] and len(asked) == 2
    assert all("the server had died" in row["reason"] for row in found["relations"])
    assert {each["harm"] for each in found["suspects"]} == {"crash"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_question_that_killed_it_is_told(ask, engine, monkeypatch):
    """Of what is asked at once, all of it: nobody knows which one it was. Nothing is asked after it."""
    monkeypatch.setattr(client, "_GRACE_S", 0.2)
    code, found, asked = ask(Behaviour(engine, dies_beside=6), "--relation", "burst", "--prompts", "5", window_s=0.1)
    died = found["died"]
    assert code == 1 and "one of a burst" in died["why"] and "company of" in died["why"]
    assert died["tokens"] > 0 and "It was not asked again" in found["sentence"]
    salts = [each.get("cache_salt") or each.get("extra_key") for each in asked[-8:]]
    assert len(set(salts)) == len(salts) and found["load"]["requests"] - len(asked) <= 2


def test_a_server_that_was_started_anew_has_died():
    """Its supervisor was quick: it answers again, and is another process."""
    protocol = Protocol(Behaviour(dies=True), 0)
    with client.connect("http://server", transport=transport(protocol)) as server:
        assert not server.several()
        protocol.how.started += 1
        question = Question(tuple(range(100, 150)), "salt", 3, "what kills it")
        server.alive = lambda: True
        server.ask(question)
        with pytest.raises(Died, match="what kills it"):
            protocol.engine.serve = lambda batch: (_ for _ in ()).throw(ConnectionAbortedError)
            server.ask(question)


class Mortal(Protocol):
    """A server that answers so many questions and then is gone; None: it lives."""

    def __init__(self, behaviour, questions=None):
        super().__init__(behaviour, 0)
        self._questions = questions

    def handle(self, method, path, body, key=""):
        found = super().handle(method, path, body, key)
        self.engine.dead = self._questions is not None and len(self.asked) >= self._questions
        return found


def told_by(protocol):
    with client.connect("http://server", transport=transport(protocol)) as server:
        return Run(server, Plan(prompts=2, length=60, relations=("again", "cached prefix"), concurrency=1, seed=1))()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("left", [None, 1, 0])
def test_a_server_that_dies_between_two_questions_is_broken(engine, left):
    """Where nothing but its counters is read then, and after the last question, too."""
    healthy = Mortal(Behaviour(engine, shy=True))
    assert told_by(healthy)["died"] is None
    questions = 1 if left is None else len(healthy.asked) - left
    found = told_by(mortal := Mortal(Behaviour(engine, shy=True), questions))
    assert found["verdict"] == "broken" and found["died"]["why"], found
    assert len(mortal.asked) == questions and "the server died under this question" in found["died"]["reason"]


@pytest.mark.parametrize(
    ("says", "lives"), [([None, 200], True), ([None, 503], False), ([None, None], False), ([503, 503], False)]
)
def test_a_server_whose_health_is_slow_is_not_dead(monkeypatch, says, lives):
    """As sglang's is, beside a long prompt of somebody. says: status of each answer of /health, None for a time-out."""
    monkeypatch.setattr(client, "_GRACE_S", 0)
    told, protocol = iter(says), Protocol(Behaviour("sglang"), 0)
    with client.connect("http://server", transport=transport(protocol)) as server:
        server.ask(Question(tuple(range(100, 150)), "salt", 3))
        get = server.wire.get

        def answered(path, *given):
            if path != "/health":
                return get(path, *given)
            if (status := next(told)) is None:
                raise httpx.ReadTimeout("no answer")
            return SimpleNamespace(status=status)

        monkeypatch.setattr(server.wire, "get", answered)
        with nullcontext() if lives else pytest.raises(client.Died):
            server.must_live()


def test_a_page_that_is_reset_once_is_asked_for_again():
    protocol = Protocol(Behaviour(shy=True), 0)
    with client.connect("http://server", transport=transport(protocol)) as server:
        page, resets = server.page, iter([True])

        def reset_once():
            if next(resets, False):
                raise httpx.ReadError("connection reset")
            return page()

        server.page = reset_once
        assert server._counters() is None and server._counters() is not None


def test_counters_that_cannot_be_read_are_not_waited_for():
    """Each look may take as long as an answer."""
    protocol, looks = Protocol(Behaviour(shy=True), 0), []
    with client.connect("http://server", transport=transport(protocol)) as server:
        page = server.page()

        def once():
            looks.append(1)
            if len(looks) > 1:
                raise httpx.ReadTimeout("no whole answer")
            return page

        server.page = once
        assert server.ask(Question(tuple(range(100, 150)), "salt", 3)).cached is None and len(looks) == 2


def test_without_a_cache_what_is_about_it_is_unclear(ask):
    code, found, _ = ask(Behaviour(caches=False), *(word for name in probe.RELATIONS[:3] for word in ("--relation", name)))
    said = verdicts_of(found)
    assert code == 2 and said["again"] == said["cached prefix"] == "unclear" and said["in company"] == "holds"


def test_hits_are_proven_by_the_counters_where_answers_do_not_tell(ask):
    code, found, _ = ask(Behaviour("vllm", shy=True, noise=0.02))
    assert code == 0, found["relations"]


def test_salts_are_seen_not_believed(ask):
    code, found, _ = ask(Behaviour("sglang", salts=False))
    said = verdicts_of(found)
    assert code == 2 and said["in company"] == said["burst"] == "unclear" and said["again"] == "holds"
    assert "salts" in {row["relation"]: row["reason"] for row in found["relations"]}["burst"]


def test_ids_are_safe_where_there_is_no_tokenizer(ask):
    _, found, asked = ask(Behaviour(tokenizer=False), "--relation", "again")
    fresh = asked[0]["prompt"]
    assert not found["prompt"]["natural"] and all(100 <= token < 1000 for token in fresh)


def test_before_and_after(ask, tmp_path, capsys):
    saved = tmp_path / "stock.json"
    assert ask(Behaviour(lies={"next turn": 0.4}), "--save", str(saved), "--relation", "next turn")[0] == 1
    code, found, _ = ask(Behaviour(), "--against", str(saved), "--relation", "next turn")
    (row,) = found["against"]["relations"]
    assert code == 0 and (row["before"], row["now"]) == ("broken", "holds") and row["worst_before"] > row["worst"]


def test_a_report_takes_results_along_and_no_secret(ask, tmp_path, capsys):
    file, patched = tmp_path / "stock.json", str(tmp_path / "patched.json")
    stock = str(file)
    ask(Behaviour(lies={"next turn": 0.4}), "--save", stock, "--relation", "next turn")
    ask(Behaviour(), "--save", patched, "--against", stock, "--relation", "next turn")
    found = json.loads(file.read_text())
    found |= {"model": "SECRET/model", "engine": "SECRET Engine", "load": {"requests": 3, "host": "SECRET", "SECRET key": 1}}
    found["relations"][0] |= {
        "reason": "status 400: SECRET",
        "lost": ["SECRET"],
        "where": [{**dict.fromkeys(("at", "prompts"), "SECRET"), "exceeded": 1}],
    }
    file.write_text(json.dumps(found))
    assert cli.main(["report", "--json", "--probe", stock, "--probe", patched]) == 0
    said = capsys.readouterr().out
    before, after = json.loads(said)["probes"]
    assert "SECRET" not in said and "127.0.0.1" not in said
    assert (before["verdict"], after["verdict"]) == ("broken", "holds") and before["load"] == {"requests": 3, "host": None}
    assert after["against"] == [
        {"before": "broken", "now": "holds", "relation": "next turn", "worst_before": before["relations"][0]["worst"]}
    ]
    (tmp_path / "none.json").write_text("[]")
    assert cli.main(["report", "--probe", str(tmp_path / "none.json")]) == 1


def test_the_budget_ends_it(ask):
    code, found, _ = ask(Behaviour(), "--budget", "3000")
    assert code == 2 and found["load"]["tokens"] < 8000 and set(verdicts_of(found).values()) == {"unclear"}


def test_the_table_for_people(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    with Listening(Protocol(Behaviour(lies={"again": 0.5}), 0.012)) as url:
        assert cli.main(["probe", url, "--relation", "again", "--length", "100"]) == 1
    said = capsys.readouterr().out
    assert "BROKEN: Answers change" in said and "Known bugs that this server may hit" in said
    assert "what goes wrong" in said and "attnfix explain FIX" in said and "False alarms" not in said


@pytest.mark.parametrize(
    "words",
    [
        ["ftp://a"],
        ["http://a", "--relation", "burts"],
        ["http://a", "--budget", "much"],
        ["http://a", "--at-once", "8,2"],
        ["http://a", "--prompts", "4"],
    ],
)
def test_wrong_arguments(words, capsys):
    assert cli.main(["probe", *words]) == 2


def test_fewer_prompts_than_a_verdict_needs_are_refused_at_once(capsys):
    assert cli.main(["probe", "http://a", "--prompts", "4"]) == 2
    assert capsys.readouterr().err == "attnfix: --prompts 4: a verdict needs at least 5\n"
    assert cli.main(["probe", "http://a", "--relation", "burts "]) == 2
    assert cli.main(["probe", "http://a", "--relation", "zzz"]) == 2
    assert "in company; cached, in company; burst" in capsys.readouterr().err


def test_what_is_no_server_or_wants_a_key(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert cli.main(["probe", f"http://127.0.0.1:{free.getsockname()[1]}"]) == 2
    with Listening(Protocol(Behaviour(key="secret"))) as url:
        assert cli.main(["probe", url]) == 2
    assert "--key" in capsys.readouterr().err


def test_without_the_extra_it_is_one_sentence():
    code = "import sys; sys.modules['httpx'] = None; from attnfix import cli; sys.exit(cli.main(['probe', 'http://a']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "attnfix[probe]" in done.stderr and "Traceback" not in done.stderr


def test_httpx_is_imported_by_nothing_else():
    code = "import attnfix, attnfix.bootstrap.entry_points, attnfix.cli, sys; assert 'httpx' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_question_as_the_engine_takes_it(engine):
    protocol = Protocol(Behaviour(engine), 0)
    with client.connect("http://server", transport=transport(protocol)) as server:
        answer = server.ask(Question(tuple(range(100, 150)), "salt", 3))
    assert len(answer.tokens) == len(answer.listed) == 3 and len(answer.listed[0]) >= 20 and answer.cached == 0
    (body,) = protocol.asked
    if engine == "vllm":
        assert body["cache_salt"] == "salt" and body["return_tokens_as_token_ids"] and "prompt_logprobs" not in body
    else:
        assert body["extra_key"] == "salt" and body["return_logprob"] and "logprob_start_len" not in body


def test_one_rank_of_several_is_asked():
    protocol = Protocol(Behaviour("sglang"), 0)
    with client.connect("http://server", transport=transport(protocol)) as server:
        server.facts.ranks = 2
        server.ask(Question((100, 101)))
    assert protocol.asked[0]["data_parallel_rank"] == 0
