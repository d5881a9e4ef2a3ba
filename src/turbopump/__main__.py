"""`python -m turbopump` is the command `turbopump`."""

from turbopump.cli import main

if __name__ == "__main__":
    main()
