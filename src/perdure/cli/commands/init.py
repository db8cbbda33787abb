"""`perdure init`: a project that works as it is written, offline and without a model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from perdure.cli.errors import Mistake
from perdure.cli.options import json_option
from perdure.cli.tables import print_json

TEMPLATES = Path(__file__).parents[1] / "templates"
CONFIG = {"agent": "graph.react:app", "checkpointer": "graph.dependencies:my_checkpointer"}
OURS, OURS_IN_TOML, AGENTFLOW = "perdure.json", "perdure.toml", "agentflow.json"
CURL = """curl -X POST http://127.0.0.1:8000/v1/graph/invoke \\
  -H "Content-Type: application/json" \\
  -d '{"messages": [{"role": "user", "content": "Remember my name is Alice"}],
       "config": {"thread_id": "demo-thread"}}'"""


@click.command(short_help="Create a project that can be served.")
@click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(file_okay=True, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--agentflow", is_flag=True, help=f"Name the configuration {AGENTFLOW}.")
@json_option
def init(folder: Path, force: bool, agentflow: bool, as_json: bool) -> None:
    """Write a configuration, an agent and its storage into FOLDER, by default this one. `perdure serve` serves them.

    The command overwrites existing files only with --force, and only these three.
    """
    files = {
        AGENTFLOW if agentflow else OURS: json.dumps(CONFIG, indent=2) + "\n",
        "graph/react.py": (TEMPLATES / "react.py").read_text(encoding="utf-8"),
        "graph/dependencies.py": (TEMPLATES / "dependencies.py").read_text(encoding="utf-8"),
    }
    _check(folder, files, force=force, agentflow=agentflow)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    if as_json:
        print_json({"folder": str(folder.absolute()), "files": list(files)})
    else:
        _print(folder, list(files))


def _check(folder: Path, files: dict[str, str], *, force: bool, agentflow: bool) -> None:
    """Before anything is written. Raises Mistake."""
    for path in (folder, folder / "graph"):
        if path.exists() and not path.is_dir():
            raise Mistake(f"{str(path)!r} is a file, not a folder. Nothing was written.")
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise Mistake(
            f"{_join_names(there)} {'exists' if len(there) == 1 else 'exist'} already. Nothing was written. Name "
            "another folder, or overwrite with --force."
        )
    in_the_way = [name for name in ((OURS, OURS_IN_TOML) if agentflow else (OURS_IN_TOML,)) if (folder / name).exists()]
    if in_the_way:
        raise Mistake(
            f"{_join_names(in_the_way)} exists already, and a project has one configuration. Nothing was written. "
            "Remove it, or name another folder."
        )


def _join_names(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _print(folder: Path, files: list[str]) -> None:
    what = ("the configuration of the server", "the agent, `app`", "where threads are stored, `my_checkpointer`")
    click.echo(f"Created in {folder}:")
    for name, meaning in zip(files, what, strict=True):
        click.echo(f"  {name:<24}{meaning}")
    click.echo("\nNow serve it:")
    if folder.absolute() != Path.cwd():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    click.echo("  perdure serve\n\nand send it a request from another terminal:")
    click.echo("\n".join(f"  {line}" for line in CURL.splitlines()))
