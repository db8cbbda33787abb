"""`perdure keys` creates, lists and revokes API keys; the page about securing a server works as written."""

from __future__ import annotations

import asyncio
import json
import random
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.docs.following import Servers, blocks_of, follow
from tests.e2e.command import needs_pseudo_terminals
from tests.e2e.conftest import Call, CallJson

from perdure.server.auth.api_keys import FORM, ApiKeys, KeyFile
from perdure.server.auth.principal import SCOPES, Credentials, NotAuthenticated
from perdure.server.config.files import read_config
from perdure.server.factory import make_authenticator, make_authorizer, make_limiter

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve" / "secure-a-server.md"


def user_of(file: Path, key: str) -> str | None:
    """The user of a key, for a server with this file."""
    try:
        return asyncio.run(ApiKeys(KeyFile(file)).authenticate(Credentials(headers={}, api_key=key))).user_id
    except NotAuthenticated:
        return None


def write_config(folder: Path, **config: Any) -> None:
    (folder / "perdure.json").write_text(json.dumps({"agent": "office:refunds", **config}))


def test_created_key_is_printed_once_on_stdout_only_and_works(call: Call, folder: Path) -> None:
    write_config(folder, auth="api_key")
    done = call("keys", "create", "ada")
    assert done.returncode == 0
    key = done.stdout.removesuffix("\n")
    assert FORM.fullmatch(key)
    assert "It is not shown again." in done.stderr and "Note" not in done.stderr
    file = folder / ".perdure-keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.split("_", 2)[2] not in file.read_text()
    assert user_of(file, key) == "ada"
    assert key.split("_", 2)[2] not in call("keys", "list").stdout


def test_list_shows_keys_with_roles_and_scopes(call: Call, call_json: CallJson, folder: Path) -> None:
    assert call("keys", "list").stdout == "No keys exist. `perdure keys create USER` creates one.\n"
    made = call_json(
        *("keys", "create", "ada", "--role", "operator", "--role", "auditor", "--scope", "graph:*", "--expires", "90d"),
        *("--name", "laptop"),
    )
    assert made.pop("key").startswith(f"pd_{made['id']}_")
    assert made.pop("notes") == ['Note: the server does not ask for keys: auth.method is "none", not "api_key".']
    assert call_json("keys", "list") == [made]
    assert (made["user"], made["roles"], made["scopes"]) == ("ada", ["operator", "auditor"], ["graph:*"])
    headers, row = call("keys", "list").stdout.splitlines()
    assert headers.split() == ["ID", "USER", "STANDING", "CREATED", "EXPIRES", "ROLES", "SCOPES", "NAME"]
    assert row.startswith(f"{made['id']}  ada   active") and row.endswith("operator auditor  graph:*  laptop")


def test_revoked_key_is_rejected_and_keeps_its_first_revocation_time(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    key, other = call_json("keys", "create", "ada")["key"], call_json("keys", "create", "bob")["key"]
    first = call_json("keys", "revoke", key.split("_")[1])
    assert first["standing"] == "revoked"
    assert call_json("keys", "revoke", key) == first  # the key contains its id
    assert re.match(r"Key \w+ of ada is revoked, since ", call("keys", "revoke", key).stdout)
    file = folder / ".perdure-keys.json"
    assert (user_of(file, key), user_of(file, other)) == (None, "bob")


def test_config_option_names_the_project_by_file_or_folder(call_json: CallJson, folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    write_config(project, auth={"method": "api_key", "keys_file": "private/keys.json"})
    call_json("keys", "create", "ada", "--config", "project")
    call_json("keys", "create", "bob", "--config", "project/perdure.json")
    assert [key.user for key in KeyFile(project / "private" / "keys.json").read().keys] == ["ada", "bob"]
    assert not (folder / ".perdure-keys.json").exists()


def test_unknown_role_prints_a_note(call_json: CallJson, folder: Path) -> None:
    write_config(folder, auth="api_key", authorization={"backend": "rbac", "roles": {"operator": ["*"]}})
    assert call_json("keys", "create", "ada", "--role", "operater")["notes"] == [
        "Note: authorization.roles has no role 'operater' (did you mean 'operator'?), so the role grants nothing."
    ]
    assert call_json("keys", "create", "ada", "--role", "operator")["notes"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["create"], 2, "Missing argument 'USER'"),
        (["create", ""], 2, "USER is a text of 1 to 255 characters"),
        (["create", "a\nb"], 2, "USER is a text"),
        (["create", "ada", "--role", ""], 2, "--role is a text"),
        (["create", "ada", "--scope", "graph:invok"], 2, "did you mean 'graph:invoke'?"),
        (["create", "ada", "--expires", "soon"], 2, "'soon' is not a duration"),
        (["create", "ada", "--expires", "9999999d"], 2, "--expires: no such date exists"),
        (["create", "ada", "--config", "nowhere.json"], 1, "the file does not exist"),
        (["revoke", "0123456789abcdef"], 1, "No key '0123456789abcdef' exists"),
    ],
)
def test_wrong_arguments_print_an_error_and_create_no_key(
    arguments: list[str], code: int, problem: str, call: Call, folder: Path
) -> None:
    done = call("keys", *arguments)
    assert done.returncode == code and problem in done.stderr and done.stdout == ""
    assert not (folder / ".perdure-keys.json").exists()


def test_damaged_key_file_is_reported_and_stays_unchanged(call: Call, folder: Path) -> None:
    file = folder / ".perdure-keys.json"
    file.write_text('{"version": 1')
    file.chmod(0o600)
    for arguments in (["list"], ["create", "ada"], ["revoke", "0123456789abcdef"]):
        done = call("keys", *arguments)
        assert done.returncode == 1 and "this file of API keys is damaged" in done.stderr
    assert file.read_text() == '{"version": 1'


# ---------------------------------------------------------------- the page


@needs_pseudo_terminals
def test_page_about_securing_a_server_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = PAGE.read_text(encoding="utf-8")
    assert asyncio.run(follow(PAGE, written, Servers(), monkeypatch)) == written


def test_every_configuration_of_the_page_loads(tmp_path: Path) -> None:
    whole = [block.code for block in blocks_of(PAGE) if block.language == "json"]
    parts = re.findall(r'`(\{"(?:auth|rate_limit)".*?\}\})`', PAGE.read_text(encoding="utf-8"))
    assert (len(whole), len(parts)) == (2, 2)
    for code in (*whole, *(json.dumps({"agent": "graph.react:app", **json.loads(part)}) for part in parts)):
        (tmp_path / "perdure.json").write_text(code)
        environ = {"JWT_SECRET_KEY": random.Random(1).randbytes(32).hex()}
        config = read_config(tmp_path, environ=environ).config
        make_authenticator(config, lambda path: lambda credentials: None, environ)
        make_authorizer(config, lambda path: None)
        make_limiter(config)


def test_page_names_every_scope() -> None:
    named = set(re.findall(r"`(\w+:\w+)`", PAGE.read_text(encoding="utf-8")))
    assert set(SCOPES) <= named
