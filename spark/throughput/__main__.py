"""`python -m turbopump.spark.throughput`: runs the job as a program.

It must contain nothing else.
"""

import sys

from turbopump.spark.throughput.job import main

sys.exit(main())
