"""The files that `perdure init` writes, as they are written."""
