"""Found first under `attnfix run`: activates attnfix, then gives way to the `sitecustomize` of the process."""

import attnfix_door

attnfix_door.run_the_one_behind()
