"""``python -m kappaform.cli``."""

import sys

from kappaform.cli import main

sys.exit(main())
