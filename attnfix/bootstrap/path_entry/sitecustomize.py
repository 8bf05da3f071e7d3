"""Found first under `attnfix run`: activates attnfix, then gives way to the `sitecustomize` of the process."""

import attnfix_path_entry

attnfix_path_entry.run_the_one_behind()
