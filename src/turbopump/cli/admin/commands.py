"""`turbopump admin`: mqadmin's commands under its names, letters and columns.

Owns the group of commands, all with the options of credentials; the other modules of this folder
define them, by subject.
"""

import typer

from turbopump.cli.admin import brokers as admin_brokers
from turbopump.cli.admin import container as admin_container
from turbopump.cli.admin import controller as admin_controller
from turbopump.cli.admin import groups as admin_groups
from turbopump.cli.admin import ha as admin_ha
from turbopump.cli.admin import members as admin_members
from turbopump.cli.admin import messages as admin_messages
from turbopump.cli.admin import nodes as admin_nodes
from turbopump.cli.admin import reading as admin_reading
from turbopump.cli.admin import topics as admin_topics
from turbopump.cli.credentials import with_credentials

app = typer.Typer(
    help="mqadmin's commands, with its names, option letters and columns.",
    no_args_is_help=True,
)
MODULES = (
    admin_brokers,
    admin_nodes,
    admin_container,
    admin_ha,
    admin_controller,
    admin_topics,
    admin_groups,
    admin_members,
    admin_messages,
    admin_reading,
)
"""The modules with commands, in the order of the help."""
for module in MODULES:
    module.register(app)
for registered in app.registered_commands:
    assert registered.callback is not None
    registered.callback = with_credentials(registered.callback)
