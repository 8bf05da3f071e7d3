"""`python -m attnfix`."""

import sys

from attnfix.cli import main

sys.exit(main())
