"""`python -m activity_core`: the same as the command `activity-core`."""

from activity_core.cli import main

if __name__ == "__main__":
    main()
