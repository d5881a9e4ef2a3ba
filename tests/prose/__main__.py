"""Print the densities of today beside the highest allowed ones; `--lower` keeps the lower ones."""

import json
import sys

from tests.prose.counting import densities
from tests.prose.test_ratchet import KEPT, allowed


def main() -> None:
    before, now = allowed(), densities()
    for folder, found in now.items():
        for name, density in found.items():
            most = before.get(folder, {}).get(name, 0)
            print(f"{density:7.2f} of {most:7.2f}  {folder}: {name}")
    if "--lower" in sys.argv:
        new = {
            folder: {
                name: min(density, before.get(folder, {}).get(name, density))
                for name, density in found.items()
            }
            for folder, found in now.items()
        }
        KEPT.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
