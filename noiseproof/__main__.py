"""`python -m noiseproof` is the command line."""

from noiseproof.cli import main

main()
