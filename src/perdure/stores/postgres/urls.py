"""URLs of PostgreSQL: the schema in them, and how they are shown. Needs no driver."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode

SCHEMES = ("postgresql://", "postgres://")


def is_postgres(url: str) -> bool:
    return url.lower().startswith(SCHEMES)


def split_schema(url: str) -> tuple[str, str | None]:
    """The URL without `schema=` in its query, and what it said: a driver would send it on, and be refused."""
    before, found, query = url.partition("?")
    if not found:
        return url, None
    given = parse_qsl(query, keep_blank_values=True)
    schemas = [value for name, value in given if name == "schema"]
    if not schemas:
        return url, None
    rest = urlencode([(name, value) for name, value in given if name != "schema"], quote_via=quote, safe="/:,")
    return f"{before}?{rest}" if rest else before, schemas[-1]


def shown(url: str) -> str:
    """For people: with its user and its schema, without its password and whatever else its query may hold.

    A password may hold characters that should have been escaped, so the last `@` decides where it ends.
    """
    dsn, schema = split_schema(url)
    scheme, found, rest = dsn.partition("://")
    if not found:
        return "..."
    before, at, behind = rest.rpartition("@")
    if "?" in before:  # the query may hold a password too, with an `@` in it
        return f"{scheme}://..."
    user = before.partition(":")[0] + at if "/" not in before.partition(":")[0] else ""
    place = behind.partition("?")[0].partition("#")[0]
    return f"{scheme}://{user}{place}" + ("" if schema is None else f"?schema={quote(schema)}")


def place_of(url: str, schema: str) -> str:
    """Server, database and schema, without who uses them."""
    rest = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
    host, _, database = rest.partition("/")
    named = host if ":" in host.rpartition("]")[2] else f"{host}:5432"
    return f"{named.lower()}/{database} {schema}"
