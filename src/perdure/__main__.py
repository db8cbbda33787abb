"""`python -m perdure`: the command of the same name."""

from perdure.cli.main import main

main()
