"""`attnfix probe`: is the attention of a running server right? Asked over HTTP; needs the extra `attnfix[probe]`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfix.compat import symptoms, untrusted
from attnfix.compat.doctor import gpus
from attnfix.compat.doctor.condition import HIT, POSSIBLE
from attnfix.compat.doctor.deployment import Deployment, read_config
from attnfix.compat.doctor.launch_command import Launch
from attnfix.compat.fix import CRASH, WRONG_OUTPUT
from attnfix.patches.catalogue import BY_ID

from . import completion, doctor
from .errors import CliError, no_such
from .output import coloured, print_json, print_line, print_table

if TYPE_CHECKING:
    from attnfix.probe.client import Facts

NAME = "probe"
BRIEF = "is the attention of a running server right?"
HELP = (
    "Ask a server the same in cases that must not matter. Exit code 0: answers agree, "
    "1: not, or it died (false alarms: 0.1 % of runs), 2: not all was asked."
)
EXAMPLE = "attnfix probe http://replica-0:8000 --save stock.json"
#: As attnfix.probe.relations has them: that needs httpx
RELATIONS = ("again", "cached prefix", "in company", "cached, in company", "burst", "next turn", "samples")
_LIMITS = "context limit"  # a relation that is asked for by itself
#: In which case the answers change, where a relation is broken
_WHEN = {
    "again": "the same prompt is asked again",
    "cached prefix": "a prefix is cached",
    "in company": "other prompts run beside it",
    "cached, in company": "a prefix is cached and other prompts run beside it",
    "burst": "many prompts come at once",
    "next turn": "a chat goes on",
    "samples": "several samples are asked for",
    _LIMITS: "an answer ends at the context limit",
}
#: Places in a prompt, and in a batch, as a sentence has them
_PLACES = {
    "a page": "1 page", "two pages": "2 pages", "half": "1/2 of the prompt", "six sevenths": "6/7 of the prompt",
    "a chunk": "1 chunk", "a window": "1 window",
}  # fmt: skip
_ONE = {"1 less": " - 1 token", "1 more": " + 1 token", "": ""}
_SUSPECTS = 8  # in the table
#: What an operator sees of a bug that breaks a relation
_SYMPTOMS = {
    "cached prefix": (symptoms.CACHED_PREFIX, symptoms.LONG_PROMPT),
    "in company": (symptoms.SHARED_BATCH,),
    "cached, in company": (symptoms.CACHED_PREFIX, symptoms.SHARED_BATCH),
    "burst": (symptoms.SHARED_BATCH,),
    "next turn": (symptoms.CACHED_PREFIX, symptoms.SPECULATION),
    "samples": (symptoms.CACHED_PREFIX,),
    _LIMITS: (symptoms.CONTEXT_LIMIT,),
}
_AGAIN, _PREFIX = RELATIONS[:2]
_WHOLE = "all of it"
_COLOURS = {"holds": "green", "broken": "red", "unclear": "yellow"}
_LIMIT = 16 << 20  # bytes of a saved result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="the server itself, no router: http://HOST:PORT")
    parser.add_argument("--key", help="the server's API key; default: PROBE_API_KEY")
    parser.add_argument("--config", metavar="FILE", help="the model's config.json, or its folder")
    gpu = parser.add_argument("--gpu", metavar="NAME", help="the server's GPU, as for doctor")
    relation = parser.add_argument("--relation", action="append", metavar="NAME", help="only this one (repeatable)")
    parser.add_argument("--prompts", type=_whole, default=8, metavar="N", help="for each relation; default: 8")
    parser.add_argument("--length", type=_whole, default=0, metavar="N", help="of a prompt; default: by the budget")
    parser.add_argument("--budget", default="1000000,600", metavar="N,S", help="tokens, seconds; default: 1000000,600")
    parser.add_argument("--at-once", default="8,0.25", metavar="N,F", help="requests, KV share; default: 8,0.25")
    parser.add_argument("--limits", action="store_true", help="also ask up to the context limit, which may end a server")
    parser.add_argument("--save", metavar="FILE", help="write the result there, for --against")
    parser.add_argument("--against", metavar="FILE", help="compare with a result that was saved")
    parser.usage = "attnfix probe [options] URL"
    completion.offer(relation, lambda: RELATIONS)
    completion.offer(gpu, lambda: gpus.KNOWN)


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def run(options: argparse.Namespace) -> int:
    _require_extra()
    from attnfix.probe import client
    from attnfix.probe.answers import ProbeError
    from attnfix.probe.run import Run

    plan = _plan(options)
    before = _saved(options.against) if options.against else None
    key = options.key or os.environ.get("PROBE_API_KEY")
    if key and not (key.isascii() and key.isprintable()):
        raise CliError("the API key holds letters that no header takes", 2)
    try:
        with client.connect(_url(options.url), key) as server:
            with _progress(options.json) as step:
                found = Run(server, plan, step)()
            found = {"url": options.url, **found}
            broken = [row["relation"] for row in found["relations"] if row["verdict"] == "broken"]
            found["suspects"] = (
                _suspects(server.facts, plan.config, options.gpu, broken, died=bool(found["died"]))
                if found["verdict"] == "broken"
                else []
            )
    except ProbeError as error:
        raise CliError(str(error), 2) from error
    except Exception as error:  # a traceback would end with 1, which says that the server is broken
        raise CliError(f"unexpected, please report it: {type(error).__name__}: {str(error)[:200]}", 2) from error
    found["sentence"] = _sentence(found)
    found["against"] = _compared(before, found) if before else None
    if options.save:
        _save(options.save, found)
    if options.json:
        print_json(found)
    else:
        _print(found)
    return {"holds": 0, "broken": 1}.get(found["verdict"], 2)


# What it is asked with


def _require_extra() -> None:
    try:
        import httpx  # noqa: F401
    except ImportError as error:
        raise CliError('httpx is missing: probe needs pip install "attnfix[probe]"', 2) from error


def _url(text: str) -> str:
    whole = text if "://" in text else f"http://{text}"
    if not whole.startswith(("http://", "https://")):
        raise CliError(f"{text!r} is no address of a server, as in http://replica-0:8000", 2)
    return whole.rstrip("/").removesuffix("/v1")


def _plan(options: argparse.Namespace) -> Any:
    from attnfix.probe.run import Plan
    from attnfix.probe.verdicts import LEAST

    for name in options.relation or ():
        if name not in RELATIONS:
            raise no_such("relation", name, RELATIONS)
    if options.prompts < LEAST:
        raise CliError(f"--prompts {options.prompts}: a verdict needs at least {LEAST}", 2)
    tokens, seconds = _pair("budget", options.budget, 600)
    requests, share = _pair("at-once", options.at_once, 0.25)
    if not 0 < share <= 1:
        raise CliError("--at-once: the share of the KV cache is more than 0 and at most 1", 2)
    try:
        config = read_config(Path(options.config)) if options.config else None
    except (OSError, ValueError) as error:
        raise CliError(f"{options.config} cannot be read as a model's config.json: {error}", 2) from error
    return Plan(
        options.prompts, tokens, seconds, concurrency=requests, share=share, length=options.length,
        relations=tuple(options.relation or ()) + ((_LIMITS,) if options.limits and options.relation else ()),
        limits=options.limits, config=config,
    )  # fmt: skip


def _pair(name: str, text: str, default: float) -> tuple[int, float]:
    """`N` or `N,F`."""
    whole, _, rest = text.partition(",")
    try:
        found = int(whole), float(rest or default)
    except ValueError:
        found = 0, 0.0
    if min(found) <= 0:
        raise CliError(f"--{name} {text!r}: a number or two, both above 0, as in --help", 2)
    return found


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shown = not quiet and sys.stderr.isatty()
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total} prompts: {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, what: progress.update(task, completed=done, total=total, description=what)


# What is known of such a server


def _suspects(
    facts: Facts, config: Mapping[str, Any] | None, gpu: str | None, broken: Sequence[str] = (), died: bool = False
) -> list[dict[str, Any]]:
    """The fixes whose bug this server may hit, as doctor would say: against a crash if it `died`, else against wrong output.
    The surest come first, and of those that are as sure the ones whose symptoms are in the `broken` relations."""
    from attnfix.compat.doctor.engine_options import options

    known = {option.name for option in options(facts.engine)}
    told = {name.replace("_", "-"): value for name, value in facts.flags.items() if value not in (None, "")}
    words = {"True": "on", "False": "off"}  # a metrics page has strings, a page of the server's arguments booleans
    given = {name: words.get(str(value), str(value)) for name, value in told.items()}
    settled = {name: value for name, value in given.items() if name in known}
    launch = Launch(facts.engine, options=settled, model=facts.model, typed=False)
    if not facts.complete:
        launch.not_read = ["the server's command line"]
    deployment = Deployment(facts.engine, config=config, gpu=doctor.gpu_named(gpu) if gpu else None, launch=launch)
    if not facts.release:
        return []
    try:
        rows = doctor.examine(deployment, facts.release)
    except CliError:  # a release that nobody has judged
        return []
    harms = [harm for harm, seen in ((CRASH, died), (WRONG_OUTPUT, broken or not died)) if seen]
    found = [row for row in rows if row["harm"] in harms and row["verdict"] in (HIT, POSSIBLE)]
    seen = {symptom for relation in broken for symptom in _SYMPTOMS.get(relation, ())}

    def rank(row: Mapping[str, Any]) -> tuple[int, bool, int]:
        return harms.index(row["harm"]), row["verdict"] != HIT, -len(seen.intersection(BY_ID[row["fix"]].symptoms))

    kept = ("fix", "verdict", "harm", "symptom")
    return [{"in_place": row["fix"] in facts.fixes, **{name: row[name] for name in kept}} for row in sorted(found, key=rank)]


def _sentence(found: Mapping[str, Any]) -> str:
    """What a person needs to know."""
    if found["died"]:
        return f"{found['died']['reason']}. It was not asked again."
    of = {name: [row["relation"] for row in found["relations"] if row["verdict"] == name] for name in _COLOURS}
    if found["several_servers"]:
        return "Several servers answer at this address, as behind a router: name one of them."
    if found["verdict"] == "broken":
        return " ".join(_broken(found["relations"], of["broken"]))
    if found["speculation"] == "not seen":
        return "The server says that it speculates, and no draft was seen: what holds is said of answers without drafts alone."
    if found["verdict"] == "holds":
        return "Answers do not move by more than this server's own noise. What was too small to be seen is said in the table."
    return f"Not everything could be asked: {'; '.join(of['unclear'])}."


def _broken(rows: Sequence[Mapping[str, Any]], broken: Sequence[str]) -> Iterator[str]:
    """What changes the answers, once each: a prefix that is all of the prompt is what `again` asks, too."""
    by = {row["relation"]: row for row in rows if row["relation"] in broken}
    places = [each["at"] for each in by.get(_PREFIX, {}).get("where", ()) if each["exceeded"]]
    same = _AGAIN in by and places == [_WHOLE]
    names = [name for name in broken if not (same and name == _PREFIX)]
    when = ", and when ".join(f"{_WHEN[name]} ({name})" for name in names)
    yield f"Answers change when {when}. Users get wrong text then."
    if same:
        yield f"{_PREFIX} is broken only where all of the prompt is cached: that is {_AGAIN}."
    for row in by.values():
        worst = [each["at"] for each in row["where"] if each["exceeded"]]
        if worst and len(worst) < len(row["where"]) and not (same and row["relation"] == _PREFIX):
            yield f"{row['relation']}: seen only at {'; '.join(map(_place, worst))}."
        if row["lost"]:
            how_often = f"in {len(row['lost'])} of {row['prompts']} prompts"
            yield f"{row['relation']}: forgot the name from page 2 ({row['lost'][0]}) {how_often}."


def _place(at: str) -> str:
    """ "two pages, 1 more" as "2 pages + 1 token"."""
    name, _, one = at.partition(", ")
    return _PLACES.get(name, name) + _ONE.get(one, f", {one}")


# Before and after


def _saved(path: str) -> dict[str, Any]:
    try:
        found = untrusted.parsed(untrusted.read(path, _LIMIT, follow=True))
        rows = {row["relation"]: row for row in found["relations"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} holds no saved result: {error}", 2) from error
    return {"rows": rows, "verdict": found.get("verdict"), "release": found.get("release"), "fixes": found.get("attnfix_fixes")}


#: What a bug report takes along of a result: figures, and words of which it is known what they say
_FIGURES = ("false_alarm", "floor", "floors", "margin", "several_servers", "load", "prompt")
_OF_ROW = ("worst", "median", "moved", "prompts", "exceeded")


def for_report(path: str) -> dict[str, Any]:
    """A saved result without addresses, names of models, and sentences, which may quote a server."""
    try:
        found = untrusted.parsed(untrusted.read(path, _LIMIT, follow=True))
        before = found["against"] or {}
        died = found["died"] or {}
        return {
            **{name: _word(found.get(name)) for name in ("engine", "release", "verdict", "speculation")},
            **{name: _figures(found.get(name)) for name in _FIGURES},
            "relations": [_row(row) for row in found["relations"]],
            "died": {name: _figures(died.get(name)) for name in ("tokens", "new", "salt")} if died else None,
            "attnfix_fixes": [_word(each) for each in found["attnfix_fixes"]],
            "suspects": [
                {name: _word(each.get(name)) for name in ("fix", "verdict")} | {"in_place": _figures(each.get("in_place"))}
                for each in found["suspects"]
            ],
            "against": [
                {name: _word(row.get(name)) for name in ("before", "now")}
                | {"relation": _known(row.get("relation")), "worst_before": _figures(row.get("worst_before"))}
                for row in before.get("relations", ())
            ],
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(f"{path} holds no saved result of probe: {error}") from error


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    where = [
        {"at": _plain(each["at"]), "prompts": _figures(each["prompts"]), "exceeded": _figures(each["exceeded"])}
        for each in row.get("where", ())
    ]
    told = {name: _figures(row.get(name)) for name in _OF_ROW}
    told |= {"relation": _known(row["relation"]), "verdict": _word(row["verdict"]), "where": where}
    return told | {"lost": len(row.get("lost", ()))}


def _known(name: object) -> str | None:
    return name if isinstance(name, str) and name in (*RELATIONS, _LIMITS) else None


def _plain(text: object) -> str | None:
    return text if isinstance(text, str) and re.fullmatch(r"[a-z0-9 ,]{1,60}", text) else None


def _word(text: object) -> str | None:
    """A verdict, a release, the id of a fix."""
    return text if isinstance(text, str) and re.fullmatch(r"[a-z0-9][a-z0-9 .+-]{0,60}", text) else None


def _figures(value: Any) -> Any:
    """Numbers alone, and what is made of them; "not finite" is one."""
    if isinstance(value, Mapping):
        return {name: _figures(each) for name, each in value.items() if _word(name.replace("_", "-"))}
    if isinstance(value, list):
        return [_figures(each) for each in value]
    return value if isinstance(value, bool | int | float) or value == "not finite" else None


def _compared(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    told = [(row, before["rows"].get(row["relation"], {})) for row in found["relations"]]
    return {
        "release": before["release"],
        "verdict": before["verdict"],
        "relations": [
            {
                "relation": row["relation"],
                "before": old.get("verdict"),
                "now": row["verdict"],
                "worst_before": old.get("worst"),
                "worst": row["worst"],
            }
            for row, old in told
        ],
    }


def _save(path: str, found: Mapping[str, Any]) -> None:
    try:
        Path(path).write_text(json.dumps(found, indent=2) + "\n")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror or error}", 2) from error


# For people


def _print(found: Mapping[str, Any]) -> None:
    print_table(
        f"{found['engine']} {found['release'] or '(no version)'}, {found['model'] or 'unknown model'}: "
        "change of log-probability (nat) against the same prompt, cold and alone",
        ("relation", "worst", "median", "margin", "prompts", "verdict", "reason"),
        (
            (
                row["relation"], _figure(row["worst"]), _figure(row["median"]), _figure(found["margin"]), str(row["prompts"]),
                coloured(row["verdict"], _COLOURS[row["verdict"]]), row["reason"],
            )
            for row in found["relations"]
        ),
    )  # fmt: skip
    load, prompt = found["load"], found["prompt"]
    print_line(coloured(f"{found['verdict'].upper()}:", _COLOURS[found["verdict"]]), found["sentence"])
    if found["speculation"] == "on":
        print_line("Drafts were verified while it was asked.")
    if prompt["needles"]:
        print_line(f"Cold, the model said the name from page 2 in {prompt['needles']} prompts.")
    print_line(f"Floor {_figure(found['floor'])} nat by batch shapes alone; {found['margin_reason']}.")
    kind = "natural text" if prompt["natural"] else "random token ids: the server shows no tokenizer"
    print_line(
        f"Load: {load['requests']} requests of {load['tokens']} tokens in {load['seconds']} s, {load['at_once']} at once. "
        f"Prompts of {prompt['tokens']} tokens: {kind}."
    )
    for row in (found["against"] or {}).get("relations", ()):
        old, new = _figure(row["worst_before"]), _figure(row["worst"])
        print_line(f"{row['relation']}: {row['before']} ({old}) before, {row['now']} ({new}) now")
    if found["suspects"]:
        _print_suspects(found["suspects"])
    print_line(f"Next: {_next(found)}")


def _print_suspects(suspects: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        f"Known bugs that this server may hit: {len(suspects)}",
        ("fix", "verdict", "harm", "installed", "what goes wrong"),
        (
            (
                each["fix"], coloured(each["verdict"], "red" if each["verdict"] == HIT else "yellow"), each["harm"],
                "yes" if each["in_place"] else "no", BY_ID[each["fix"]].title,
            )
            for each in suspects[:_SUSPECTS]
        ),
    )  # fmt: skip
    more = f"and {len(suspects) - _SUSPECTS} more, which --json names; " if len(suspects) > _SUSPECTS else ""
    print_line(f"{more}`attnfix explain FIX` tells all of one; --config and --gpu make this list shorter.")


def _next(found: Mapping[str, Any]) -> str:
    if found["suspects"] and not found["attnfix_fixes"]:
        return "install attnfix beside one replica, restart it, and ask again with --against."
    if found["verdict"] == "broken":
        return "take the replica out, keep the result (--save), and compare with another attention backend."
    if found["verdict"] == "unclear":
        return "remove the reason that the table names, and ask again; --relation NAME asks one alone."
    return "--save FILE keeps this result; after an upgrade, --against FILE compares with it."


def _figure(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.2g}"
