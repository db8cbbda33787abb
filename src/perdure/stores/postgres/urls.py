"""URLs of PostgreSQL, and errors of connecting: the reason in a sentence, and what to do. Never with a password."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

SCHEMES = ("postgresql://", "postgres://")


def is_postgres(url: str) -> bool:
    return url.lower().startswith(SCHEMES)


def split_schema(url: str) -> tuple[str, str | None]:
    """The URL without `schema=` in its query, and that schema. The server would reject the parameter."""
    before, mark, query = url.partition("?")
    if not mark:
        return url, None
    parameters = parse_qsl(query, keep_blank_values=True)
    schemas = [value for name, value in parameters if name == "schema"]
    if not schemas:
        return url, None
    rest = urlencode([(name, value) for name, value in parameters if name != "schema"], quote_via=quote, safe="/:,")
    return f"{before}?{rest}" if rest else before, schemas[-1]


def redacted_url(url: str) -> str:
    """The URL with its user and schema, without its password and the rest of its query.

    A password may contain characters that should have been escaped, so it ends at the last `@`.
    """
    dsn, schema = split_schema(url)
    scheme, mark, rest = dsn.partition("://")
    if not mark:
        return "..."
    before, at, behind = rest.rpartition("@")
    if "?" in before:  # the query may contain a password, too, with an `@` in it
        return f"{scheme}://..."
    user = before.partition(":")[0] + at if "/" not in before.partition(":")[0] else ""
    address = behind.partition("?")[0].partition("#")[0]
    return f"{scheme}://{user}{address}" + ("" if schema is None else f"?schema={quote(schema)}")


def location_of(url: str, schema: str) -> str:
    """Server, database and schema, without the user."""
    rest = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
    host, _, database = rest.partition("/")
    named = host if ":" in host.rpartition("]")[2] else f"{host}:5432"
    return f"{named.lower()}/{database} {schema}"


URL_FORMAT = (
    "Write it as postgresql://user:password@host:5432/database. In a password, escape "
    "special characters (/ : @ ? # %) as %XX"
)
_CREDENTIALS_REMEDY = "Correct it in the URL, in PGPASSWORD or in ~/.pgpass"

_BY_STATE = {
    "28P01": ("the password is wrong, or no such user exists", _CREDENTIALS_REMEDY),
    "3D000": ("no such database exists", "Create it (`createdb NAME`), or correct its name in the URL"),
    "53300": (
        "all its connections are in use",
        "Raise max_connections, give storages a smaller pool_size, or put a pooler in between",
    ),
    "57P03": ("the server is starting, or shutting down", "Try again in a moment; if it stays so, see its log"),
    "42501": ("this user lacks a privilege", "Ask the administrator of the database for it"),
}
"""By SQLSTATE, for errors whose text from the server is not enough."""


class Unreachable(Exception):
    """A server, or a database of it, cannot be used."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}" + ("" if remedy.endswith("?") else "."))


def explain_unreachable(error: BaseException, dsn: str) -> Unreachable:
    """The reason and remedy for an error of connecting."""
    where = redacted_url(dsn)
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        what, remedy = _BY_STATE.get(state, ("it refuses", "See its message, and the server's log"))
        return Unreachable(f"{where}: {what} ({_text(error)})", remedy)
    if isinstance(error, ValueError):  # its text may contain a part of the password, taken for a port
        return Unreachable(f"{where}: the URL cannot be read", URL_FORMAT)
    if isinstance(error, socket.gaierror):
        return Unreachable(f"{where}: no host has that name ({_host(dsn)})", "Correct it in the URL")
    if isinstance(error, TimeoutError):
        remedy = "Is it the right host and port, and does a firewall let this machine through?"
        return Unreachable(f"{where}: it does not answer in time", remedy)
    if isinstance(error, ssl.SSLError) or "SSL" in str(error):
        remedy = "See sslmode and sslrootcert in the URL, and whether the server has ssl = on"
        return Unreachable(f"{where}: a connection with TLS failed ({_text(error)})", remedy)
    if isinstance(error, OSError) and ("refused" in str(error) or "Connect call failed" in str(error)):
        remedy = "Is the server running, is that its port, and does its listen_addresses let this machine in?"
        return Unreachable(f"{where}: no server listens there", remedy)
    return Unreachable(f"{where}: connecting failed ({_text(error)})", "Is it a PostgreSQL server that listens there?")


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _host(dsn: str) -> str:
    try:
        return urlsplit(dsn).hostname or "none"
    except ValueError:
        return "none"
