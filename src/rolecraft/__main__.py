"""`python -m rolecraft`: the command line."""

from rolecraft._cli.main import main

main()
