"""`turbopump admin`: mqadmin's commands under its names, letters and columns.

Owns the group of commands; they live in admin_*.py by what they are about. Called by app.py.
"""

import typer

from turbopump.cli import (
    admin_brokers,
    admin_controller,
    admin_groups,
    admin_ha,
    admin_messages,
    admin_topics,
)

app = typer.Typer(
    help="What mqadmin does, with its command names, option letters and columns.",
    no_args_is_help=True,
)
MODULES = (
    admin_brokers,
    admin_ha,
    admin_controller,
    admin_topics,
    admin_groups,
    admin_messages,
)
for module in MODULES:
    module.register(app)
