"""`python -m pdp`."""

from pdp.app import main

main()
