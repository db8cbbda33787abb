"""`perdure serve`: the project in this folder over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click
import msgspec

from perdure.cli.options.store import json_option
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import print_json
from perdure.cli.output.values import make_printable


@click.command(short_help="Serve a project over HTTP.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), help="The configuration; else it is looked for here."
)
@click.option("--host", help="The address to listen on; 127.0.0.1 unless the configuration says another.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on; 8000 by default.")
@click.option("--quiet", is_flag=True, help="Say only what is wrong.")
@json_option
def serve(path: Path | None, host: str | None, port: int | None, quiet: bool, as_json: bool) -> None:
    """Serve the project whose perdure.json, perdure.toml or agentflow.json is here, until Ctrl-C.

    The server resumes interrupted threads. The documentation of all routes is at /docs.
    """
    from perdure.server.app.uvicorn import serve as serve_config
    from perdure.server.config.files import load_config

    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    config = load_config(None if path is None else str(path))
    config = msgspec.structs.replace(config, host=host or config.host, port=port or config.port)

    def announce(address: str, listens_on: int) -> None:
        url = f"http://{_format_host(address)}:{listens_on}"
        if as_json:
            print_json({"url": url, "agent": config.agent, "workflows": dict(config.workflows)})
        elif not quiet:
            click.echo(f"Serving {make_printable(config.agent or ', '.join(config.workflows))} at {url}")
        sys.stdout.flush()

    try:
        serve_config(config, tell=announce)
    except OSError as error:
        raise Mistake(f"{error} Is another server there? Choose another --port.") from error


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
