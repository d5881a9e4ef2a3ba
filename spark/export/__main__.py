"""`python -m turbopump.spark.export`: the job as a program. It must never hold more."""

import sys

from turbopump.spark.export.job import main

sys.exit(main())
