"""``python -m fairseq_adv_cli``: runs the command where its script is not on PATH."""

import sys

from . import main

sys.exit(main())
