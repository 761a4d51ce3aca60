"""`python -m cefito`: the same as the command `cefito`."""

import sys

from cefito.cli import main

if __name__ == "__main__":
    sys.exit(main())
