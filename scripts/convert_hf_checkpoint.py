#!/usr/bin/env python3
"""As ``fairseq-adv convert``."""

import sys

from door import main

if __name__ == "__main__":
    sys.exit(main("convert"))
