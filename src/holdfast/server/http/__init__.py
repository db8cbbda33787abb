"""The one place that knows Litestar: routes, bodies, streams."""

from holdfast.errors import MissingExtra

try:
    import litestar as litestar
except ImportError as error:
    raise MissingExtra("holdfast.server", "litestar", "server") from error
