"""`admin addBroker` and `removeBroker`: the brokers of a container.

Owns their options (RocketMQ: AddBrokerSubCommand, RemoveBrokerSubCommand);
net/client/admin/client.py sends the requests.

Tests: tests/integration/cli/test_container.py
"""

from typing import Annotated

import typer

from turbopump.cli.errors import UserError
from turbopump.cli.options import DEFAULT_NAMESRV, INT64_MAX, Json, Namesrv, check_address
from turbopump.cli.output import print_json, print_lines
from turbopump.cli.run_command import run_with_admin

Container = Annotated[
    str,
    typer.Option(
        "-c", "--brokerContainerAddr", metavar="HOST:PORT", help="The container's address."
    ),
]


def register(app: typer.Typer) -> None:
    """Add addBroker and removeBroker to `app`."""
    app.command("addBroker")(add_broker)
    app.command("removeBroker")(remove_broker)


def add_broker(
    container: Container,
    config_path: Annotated[
        str,
        typer.Option(
            "-b",
            "--brokerConfigPath",
            metavar="FILE",
            help="The broker's properties file, on the container's machine.",
        ),
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Start another broker in a container."""
    check_address(container)
    run_with_admin(namesrv, lambda admin: admin.add_broker(container, config_path))
    if as_json:
        print_json({"container": container, "config_path": config_path})
    else:
        print_lines([f"add broker to {container} success"])


def remove_broker(
    container: Container,
    identity: Annotated[
        str,
        typer.Option(
            "-b", "--brokerIdentity", metavar="CLUSTER:NAME:ID", help="As clusterList shows it."
        ),
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Stop one broker of a container; its store stays, and addBroker starts it again."""
    check_address(container)
    cluster, name, broker_id = _split_identity(identity)
    run_with_admin(namesrv, lambda admin: admin.remove_broker(container, cluster, name, broker_id))
    if as_json:
        print_json(
            {"container": container, "cluster": cluster, "broker_name": name, "id": broker_id}
        )
    else:
        print_lines([f"remove broker from {container} success"])


def _split_identity(identity: str) -> tuple[str, str, int]:
    """Split `cluster:name:id`; raises UserError for any other text."""
    parts = [part.strip() for part in identity.split(":")]
    number = parts[-1]
    if len(parts) != 3 or not all(parts) or not (number.isascii() and number.isdigit()):
        raise UserError(f"{identity} is no broker: cluster:name:id is expected")
    if len(number) > 19 or int(number) > INT64_MAX:
        raise UserError(f"{identity} is no broker: no id is {number}")
    return parts[0], parts[1], int(number)
