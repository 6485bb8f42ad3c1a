import sys

from kappaform.cli import main

sys.exit(main())
