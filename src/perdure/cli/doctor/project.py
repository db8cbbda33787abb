"""A project, judged by `perdure doctor`: its configuration, what it names, where threads are kept, who may come in."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.doctor.findings import Finding
from perdure.errors import PerdureError
from perdure.server.app.factory import check_exposure, is_loopback, make_authenticator, make_storage
from perdure.server.app.project import Project
from perdure.server.app.registry import Registry
from perdure.server.auth.authorizers import make_authorizer
from perdure.server.config.files import read_config
from perdure.server.config.schema import InvalidConfig, ServerConfig

PACKAGES = ("litestar", "uvicorn")
"""Without which nothing is served."""


class Judged(NamedTuple):
    findings: list[Finding]
    config: ServerConfig | None = None
    """None if it cannot be read: then nothing else was looked at."""
    storage: StoreCheckpointStorage | None = None
    """None if it is not known."""


def project_found(path: str | None) -> Judged:
    """All but the storage, which is looked at as any other is."""
    try:
        config, file, warnings = read_config(path)
    except InvalidConfig as error:
        return Judged([_wrong(item) for item in error.problems])
    shown = "the environment alone" if file is None else str(file)
    findings = [Finding("ok", "configuration", shown)]
    findings += [Finding("warn", "configuration", item.rstrip(".")) for item in warnings]
    findings.append(_packages())
    project = Project(config.folder)
    storage = None
    try:
        registry = Registry.of(config, project)
        findings += [
            Finding(
                "ok", "workflow", f"{item.name}: {item.path}" + (", the default" if item is registry.default else "")
            )
            for item in registry
        ]
        storage = make_storage(config, project, registry)
    except (PerdureError, ValueError) as error:
        findings.append(Finding("fail", "project", _sentence(error)))
    findings += _who_may_come_in(config, project, storage)
    findings.append(_port(config))
    return Judged(findings, config, storage)


def _wrong(problem: Any) -> Finding:
    return Finding("fail", "configuration", str(problem).rstrip("."))


def _sentence(error: Exception) -> str:
    return str(error).rstrip(".")


def _packages() -> Finding:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        remedy = "pip install 'perdure[server]'"
        return Finding("fail", "packages", f"{' and '.join(missing)} cannot be imported", remedy)
    return Finding("ok", "packages", "those of the server are there")


def _who_may_come_in(config: ServerConfig, project: Project, storage: StoreCheckpointStorage | None) -> list[Finding]:
    try:
        make_authenticator(config, project.import_object, os.environ)
        make_authorizer(config, project.import_object)
        check_exposure(config, storage)
    except (PerdureError, ValueError) as error:
        return [Finding("fail", "auth", _sentence(error))]
    method = config.auth.method
    if method == "none":
        return [Finding("ok", "auth", f"none: only this machine reaches {config.host}")]
    if method == "api_key" and not (Path(config.folder) / config.auth.keys_file).is_file():
        return [Finding("warn", "auth", "api_key, and no key exists yet", "`perdure keys create USER` makes one")]
    return [Finding("ok", "auth", method)]


def _port(config: ServerConfig) -> Finding:
    if config.port == 0:
        return Finding("ok", "port", "any that is free")
    place = f"{config.host}, port {config.port}"
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does: a port in TIME_WAIT can be used
        try:
            probe.bind((config.host.strip("[]"), config.port))
        except OSError as error:
            remedy = "If that is not the server itself, use another: PERDURE_PORT, or `port`"
            return Finding("warn", "port", f"{place}: {(error.strerror or str(error)).lower()}", remedy)
    reach = "this machine alone reaches it" if is_loopback(config.host) else "other machines reach it"
    return Finding("ok", "port", f"{place} is free; {reach}")
