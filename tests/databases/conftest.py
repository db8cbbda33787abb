"""The fixtures of this folder."""

from tests.databases.fixtures import postgres_dsn, postgres_place, postgres_server, valkey_server, valkey_url

__all__ = ["postgres_dsn", "postgres_place", "postgres_server", "valkey_server", "valkey_url"]
