"""The HTTP layer: the only package that imports Litestar."""

from perdure.errors import MissingExtra

try:
    import litestar as litestar
except ImportError as error:
    raise MissingExtra("perdure.server", "litestar", "server") from error
