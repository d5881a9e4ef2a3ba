"""`python -m turbopump.spark.export`: runs the job as a program. It must contain nothing else."""

import sys

from turbopump.spark.export.job import main

sys.exit(main())
