"""Run `eventsync` as `python -m pipelines.cli`."""

from pipelines.cli.entry import main

if __name__ == "__main__":
    main()
