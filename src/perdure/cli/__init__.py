"""The command `perdure`: main, and one file a command."""
