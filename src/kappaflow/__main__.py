"""`python -m kappaflow`: the command line, where the installed script is not on the path."""

from kappaflow.cli import main

if __name__ == "__main__":
    main()
