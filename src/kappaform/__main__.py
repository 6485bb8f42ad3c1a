"""``python -m kappaform``: the command."""

import sys

from kappaform.cli import main

sys.exit(main())
