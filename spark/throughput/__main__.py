"""`python -m turbopump.spark.throughput`: the job as a program. It must never hold more."""

import sys

from turbopump.spark.throughput.job import main

sys.exit(main())
