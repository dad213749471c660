"""`python -m learner`: see `learner.cli.learner`."""

import sys

from learner.cli.learner import main

if __name__ == "__main__":
    sys.exit(main())
