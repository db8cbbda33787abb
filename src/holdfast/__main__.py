"""`python -m holdfast`: the command of the same name."""

from holdfast.cli.main import main

main()
