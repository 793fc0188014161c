"""`python -m pipelines.cli` is `eventsync`. Nothing else lives here."""

from pipelines.cli.entry import main

if __name__ == "__main__":
    main()
