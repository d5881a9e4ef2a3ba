"""Construction of the table of users from the configuration.

Owns the users that the start creates, and the reading of the key file. It must never replace a user
that exists: a changed password in the file of properties does not change the user.
"""

import logging
from collections.abc import Callable

from turbopump.broker.auth.sealing import Sealer, read_key
from turbopump.broker.auth.table import AuthTable, FullAuthTable
from turbopump.broker.auth.users import BadUser, User, UserType, check_name, check_secret
from turbopump.broker.config.auth_config import AuthConfig
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.disk.files import Files
from turbopump.net.wire.java_properties import ConfigError

logger = logging.getLogger(__name__)


def make_users(
    config: AuthConfig,
    files: Files,
    saver: TableSaver,
    now_ms: int,
    on_change: Callable[[], None] = lambda: None,
) -> AuthTable:
    """Load the table, whose changes call `on_change`. Add initAuthenticationUser and the user of
    innerClientAuthenticationCredentials, if no users have their names. Raises ConfigError, also for
    a bad key file, and StoreError."""
    sealer = None
    if config.secrets_key_file:
        sealer = Sealer(_read_key(files, config.secrets_key_file))
    users = AuthTable(saver, sealer, on_change)
    users.load()
    for key, credentials in (
        ("initAuthenticationUser", config.init_user),
        ("innerClientAuthenticationCredentials", config.inner_credentials),
    ):
        if credentials is not None and users.user(credentials.name) is None:
            try:
                name, secret = check_name(credentials.name), check_secret(credentials.secret)
                users.put_user(User(name, secret, UserType.SUPER), now_ms)
            except (BadUser, FullAuthTable) as error:
                raise ConfigError(f"{key}: {error}") from None
    if not users.user_names():
        logger.warning("no users exist: every request is refused; set initAuthenticationUser")
    return users


def _read_key(files: Files, path: str) -> bytes:
    """Return the key in the file. Raises ConfigError."""
    try:
        return read_key(files.read(path), path)
    except OSError as error:
        raise ConfigError(f"authSecretsKeyFile: {path} cannot be read: {error.strerror}") from None
