"""The files that `holdfast init` writes, as they are written."""
