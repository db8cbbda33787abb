"""The one place that knows Litestar: routes, bodies, streams."""

from perdure.errors import MissingExtra

try:
    import litestar as litestar
except ImportError as error:
    raise MissingExtra("perdure.server", "litestar", "server") from error
