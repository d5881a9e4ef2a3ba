"""`python -m turbopump.spark.rebalance`: the job as a program. It must never hold more."""

import sys

from turbopump.spark.rebalance.job import main

sys.exit(main())
