"""``python -m fairseq_adv``: runs the command where its script is not on PATH."""

import sys

from fairseq_adv.cli import main

sys.exit(main())
