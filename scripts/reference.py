"""Generator of docs/reference/ from the docstrings and signatures of the public API: ``make reference``.

It does not change pages that are written by hand, except for the evidence table at the end of the live check's page.
The page of changed rows ends with recipes that are written by hand.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, is_typeddict

from typer.models import ArgumentInfo, ParameterInfo

from airflow_provider_sfstream.cli import create as create_commands
from airflow_provider_sfstream.cli import inspect as inspect_commands
from airflow_provider_sfstream.cli import modify as modify_commands
from airflow_provider_sfstream.provider_info import get_provider_info
from airflow_provider_sfstream.replay_stores.kinds import STORE_KINDS
from sfstream_localorg.evidence import BEHAVIOURS

PACKAGE = "airflow_provider_sfstream"
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
FIELD = r"^:(?=(?:param|raises|return)\b)"
INTRODUCTION = (
    "Made from the docstrings by `make reference`: change those. Where a text says *templated*, Airflow "
    "renders Jinja templates in it."
)


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    login = _load("hooks.salesforce.SalesforceLoginHook")
    assets = [_load(f"assets.salesforce_stream.{name}") for name in ("salesforce_topic_asset", "landed_stream_asset")]
    stores = ("hooks.replay_store.open_replay_store", "replay_stores.table.TableReplayStore")
    spark = (
        "tables.event_log.reader.read_event_log",
        "tables.replica.reader.read_replica",
        "tables.replica.reader.read_history",
    )
    notifiers = (name.removeprefix(f"{PACKAGE}.") for name in get_provider_info()["notifications"])
    windows = ("windows.read_windows", "windows.manifest_urls")
    changes = ("changes.read_changes", "tables.changes.table_changes.TableChanges")
    results = (f"actions.drain.results.{name}" for name in ("DrainedWindow", "DrainedInterval", "ChangedSchema"))
    return {
        "operators.md": _page("Operators", map(_section, [*listed("operators"), *map(_load, results)])),
        "sensors.md": _page("Sensors", map(_section, listed("sensors"))),
        "assets-and-triggers.md": _page(
            "Assets, triggers, queues",
            map(_section, [*assets, *listed("triggers"), *_public_classes(f"{PACKAGE}.queues.sfstream")]),
        ),
        "hooks.md": _page("Hooks", (_section(each, methods=True) for each in [*listed("hooks"), login])),
        "notifications.md": _page("Notifications", map(_section, map(_load, notifiers))),
        "replay-stores.md": _page(
            "Replay stores in Python",
            [
                store_names(),
                *(_section(_load(name)) for name in (*stores, "replay_stores.document.store.DocumentReplayStore")),
                _section(_load("replay_stores.base.ReplayStore"), methods=True),
            ],
        ),
        "streaming-client.md": _page(
            "The aiosfstream client", [_section(_load("salesforce.streaming.cometd.client.CometdClient"))]
        ),
        "changes.md": _page("Changed rows in Python", (_section(_load(name)) for name in changes)) + recipes(),
        "windows.md": _page("Landed windows in Python", (_section(_load(name)) for name in windows)),
        "command-line.md": _page("The command line", command_line()),
        "spark.md": _page("Functions for Spark sessions", (_section(_load(name)) for name in spark)),
    }


def store_names() -> str:
    """Return the table of the replay stores that arguments can name."""
    rows = [f"| `{name}` | {kind.description} |" for name, kind in STORE_KINDS.items()]
    return "\n".join(["## Names", "", "| `replay_store` | place of the position |", "|---|---|", *rows, ""])


def recipes() -> str:
    """Return the end of the page of changed rows, which is written by hand."""
    _, heading, text = (FOLDER / "changes.md").read_text().partition("\n## Recipes\n")
    return heading + text


EVIDENCE_PAGE, EVIDENCE_HEADING = "live-check.md", "## Evidence of the local org\n"


def evidence_page(page: str) -> str:
    """Return the text of the live check's page, with the local org's evidence table at its end."""
    lines = [page.partition(EVIDENCE_HEADING)[0] + EVIDENCE_HEADING]
    lines += ["Made from `localorg/sfstream_localorg/evidence` by `make reference`.", ""]
    for title, kinds in (("Inferred", ["inferred"]), ("Documented or observed", ["documented", "observed"])):
        lines += [f"### {title}", "", "| probe | behaviour of the local org | evidence |", "|---|---|---|"]
        for each in BEHAVIOURS:
            if each.evidence in kinds:
                asked = "no probe" if each.is_unprobed else f"`{each.path}`"
                evidence = f"{each.evidence}: {each.source}" if each.source else each.evidence
                lines.append(f"| {asked} | {each.statement} | {evidence} |")
        lines.append("")
    return "\n".join(lines)


COMMAND_LINE = """`sfstream` creates, inspects and repairs streams. It runs wherever `airflow connections list` works,
because it reads connections and Variables from Airflow's database. In Airflow 3.2 and later, `airflow sfstream` does
the same.

By default the output is tables. With `--json`, the standard output is JSON and all other output goes to the standard
error. `reset`, `restore` and `prune` ask for confirmation, and fail without a terminal unless `--yes` is set. They
write the same record as their [operators](operators.md), with the user and the machine in place of the run.

| exit status | |
|---|---|
| 0 | done |
| 1 | failed, and a retry does not help; a check failed (`preflight`, `init`); the confirmation was declined |
| 2 | unknown or missing command or option |
| 75 | failed; a retry may help |
| 130 | interrupted with Ctrl-C |

Errors have the format of a [task's log](../on-call.md#read-the-block), without a traceback. `sfstream --verbose` before
the command adds the traceback and the log. `sfstream --install-completion` installs shell completion.
"""


def command_line() -> Iterator[str]:
    """Yield the introduction of the command line page, and a section for each command."""
    yield COMMAND_LINE
    for command in (*create_commands.COMMANDS, *inspect_commands.COMMANDS, *modify_commands.COMMANDS):
        parameters = list(inspect.signature(command, eval_str=True).parameters.values())
        arguments = [each for each in parameters if isinstance(_info(each), ArgumentInfo)]
        words = [_argument(each) for each in arguments]
        rows = [
            f"| {_flags(each)} | {_standing(each)} | {_meaning(each)} |" for each in parameters if each not in arguments
        ]
        yield "\n".join([f"## `sfstream {command.__name__}`", "", inspect.getdoc(command) or "", ""])
        yield "\n".join(["```console", " ".join(["$ sfstream", command.__name__, *words, "[OPTIONS]"]), "```", ""])
        yield "\n".join(["| option | default | meaning |", "|---|---|---|", *rows, ""])


def _info(parameter: inspect.Parameter) -> ParameterInfo:
    return next(each for each in get_args(parameter.annotation) if isinstance(each, ParameterInfo))


def _argument(parameter: inspect.Parameter) -> str:
    several = "list" in str(get_args(parameter.annotation)[0])
    name = f"{parameter.name.upper().removesuffix('S')}..." if several else parameter.name.upper()
    return name if parameter.default is inspect.Parameter.empty else f"[{name}]"


def _flags(parameter: inspect.Parameter) -> str:
    info = _info(parameter)
    given = [] if info.default is ... else [info.default, *(info.param_decls or ())]
    return ", ".join(f"`{flag}`" for flag in given or [f"--{parameter.name.replace('_', '-')}"])


def _standing(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    return "" if parameter.default in (None, False) else f"`{parameter.default}`"


def _meaning(parameter: inspect.Parameter) -> str:
    info, choices = _info(parameter), re.findall(r"Literal\[(.*?)\]", str(parameter.annotation))
    named = f" {' or '.join(f'`{each}`' for each in choices[0].replace(chr(39), '').split(', '))}." if choices else ""
    variable = f" In the environment: `{info.envvar}`." if info.envvar else ""
    return f"{info.help}{named}{variable}"


def listed(kind: str) -> list[Any]:
    """Return the classes of a kind that are registered with Airflow, in the order of their modules."""
    modules = [module for group in get_provider_info()[kind] for module in group["python-modules"]]
    return [each for module in modules for each in _public_classes(module)]


def _load(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), attribute)


def _public_classes(module: str) -> list[Any]:
    loaded = vars(importlib.import_module(module)).values()
    own = (each for each in loaded if inspect.isclass(each) and each.__module__ == module)
    return [each for each in own if not each.__name__.startswith("_")]


def _page(title: str, sections: Any) -> str:
    return "\n".join([f"# {title}", "", INTRODUCTION, "", *sections]).rstrip() + "\n"


def _section(item: Any, *, methods: bool = False) -> str:
    module, parent = item.__module__, item.__module__.rpartition(".")[0]
    if item.__name__ in getattr(importlib.import_module(parent), "__all__", ()):
        module = parent
    lines = [f"## `{item.__name__}`", "", "```python", f"from {module} import {item.__name__}", "```", ""]
    lines += _documented(item)
    for name, member in vars(item).items() if methods else ():
        if not name.startswith("_") and inspect.getdoc(member) and (callable(member) or isinstance(member, property)):
            call = "" if isinstance(member, property) else _call(member)
            lines += [f"### `{item.__name__}.{name}{call}`", "", *_documented(member)]
    return "\n".join(lines)


def _call(function: Any) -> str:
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return str(inspect.Signature([each.replace(annotation=inspect.Parameter.empty) for each in parameters]))


def _documented(item: Any) -> list[str]:
    """Return the docstring as Markdown: text, table of arguments, return value, list of errors."""
    text, fields = _parse(docstring(item))
    defaults = _defaults(item)
    fields.sort(key=lambda field: defaults.get(field[1]) != "required")
    rows = [f"| `{name}` | {defaults[name]} | {text} |" for kind, name, text in fields if kind == "param"]
    errors = [f"- `{name}` {text}" for kind, name, text in fields if kind == "raises"]
    lines = [text, ""]
    head = "| key | type | meaning |" if is_typeddict(item) else "| argument | default | meaning |"
    lines += [head, "|---|---|---|", *rows, ""] if rows else []
    lines += [line for kind, _, text in fields if kind == "return" for line in (f"Returns {text}", "")]
    return [*lines, *(["Raises:", "", *errors, ""] if errors else [])]


def docstring(item: Any) -> str:
    """Return the docstring; of an operator also the fields that only its bases document."""
    texts = [inspect.getdoc(item) or ""]
    for base in getattr(item, "__mro__", ())[1:] if hasattr(item, "template_fields") else ():
        text = inspect.getdoc(base) or "" if base.__module__.startswith(PACKAGE) else ""
        for field in re.split(FIELD, text, flags=re.MULTILINE)[1:]:
            if f":{field.partition(': ')[0]}:" not in "\n".join(texts):
                texts.append(f":{field.rstrip()}")
    return "\n".join(texts)


def _parse(docstring: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Split a docstring into its text and its fields; a field is its kind, name and text on one line."""
    text, *fields = re.split(FIELD, docstring, flags=re.MULTILINE)
    matches = (re.fullmatch(r"(\w+) ?(\w*): (.*)", " ".join(field.split())) for field in fields)
    return _markdown(text.strip()), [(m[1], m[2], _markdown(m[3]).replace("|", r"\|")) for m in matches if m]


def _markdown(text: str) -> str:
    text = re.sub(r"\(templated\)", "*Templated.*", text)
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](../\1\2)", text)
    text = re.sub(r"docs/reference/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", text)
    return re.sub(r"^\* ", "- ", text.replace("``", "`"), flags=re.MULTILINE)


def _defaults(item: Any) -> dict[str, str]:
    """Return the default values of the arguments, including those of the base classes; of a TypedDict, the types."""
    if is_typeddict(item):
        return {name: f"`{type_.__forward_arg__}`".replace("|", r"\|") for name, type_ in item.__annotations__.items()}
    constructors = (vars(each).get("__init__") for each in getattr(item, "__mro__", ()))
    functions = list(constructors) if inspect.isclass(item) else [item]
    return dict(each for function in functions[::-1] if inspect.isfunction(function) for each in _defaults_of(function))


def _defaults_of(function: Any) -> Iterator[tuple[str, str]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            yield name, "required"
        elif inspect.isfunction(parameter.default):
            yield name, ""
        else:
            yield name, f"`{parameter.default!r}`".replace("'", '"')


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    (FOLDER / EVIDENCE_PAGE).write_text(evidence_page((FOLDER / EVIDENCE_PAGE).read_text()))
