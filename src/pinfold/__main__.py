"""`python -m pinfold` and the `pinfold` command."""

from __future__ import annotations


def main() -> None:
    from pinfold.front.cli.main import run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
