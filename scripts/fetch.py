#!/usr/bin/env python3
"""Same as ``fairseq-adv fetch``."""

import sys

from door import main

if __name__ == "__main__":
    sys.exit(main("fetch"))
