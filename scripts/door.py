"""Entry point of the scripts in this folder: they run the command fairseq-adv."""

import sys


def main(*verb: str) -> int:
    """Runs ``fairseq-adv VERB`` with the process's arguments."""
    try:
        from fairseq_adv.cli import main as command
    except ImportError:
        sys.exit(
            f"error: fairseq_adv is not installed in {sys.executable}. Activate its environment "
            "(. .venv/bin/activate), or create one (scripts/setup_env.sh)."
        )
    return command([*verb, *sys.argv[1:]])
