"""What a node does before it starts."""

import resource

from turbopump.cli.serving import raise_open_files


def test_the_soft_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        raise_open_files()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert soft > 256 or before[1] == 256
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
