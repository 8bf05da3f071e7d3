"""`python -m attnfix`, or `python /folder/attnfix` for a folder that is on no path."""

import os
import sys

if not __package__:  # run as a folder, which Python then puts on the path in place of the one that holds it
    sys.path[0] = sys.path[0].rpartition("/")[0]
elif sys.path[:1] == [os.getcwd()]:  # put first by `-m`: what is installed goes before what happens to lie there
    sys.path.append(sys.path.pop(0))

from attnfix.cli import main

sys.exit(main())
