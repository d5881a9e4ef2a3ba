"""`python -m turbopump.spark.rebalance`: runs the job as a program.

It must contain nothing else.
"""

import sys

from turbopump.spark.rebalance.job import main

sys.exit(main())
