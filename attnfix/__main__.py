"""`python -m attnfix`, or `python /folder/attnfix` for a folder that is on no path."""

import sys

if not __package__:  # run as a folder, which Python then puts on the path in place of the one that holds it
    sys.path[0] = sys.path[0].rpartition("/")[0]

from attnfix.cli import main

sys.exit(main())
