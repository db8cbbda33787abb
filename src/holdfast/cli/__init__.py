"""The command `holdfast`: main, and one file a command."""
