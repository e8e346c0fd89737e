"""`python -m tether.keeper --home DIR`: the keeper's first instructions."""

import sys

# Nobody here speaks TLS, and asyncio without it takes five megabytes less.
sys.modules["ssl"] = None  # type: ignore[assignment] - how Python is told that there is no such module

from tether.errors import TetherError  # noqa: E402 - behind the line above on purpose
from tether.keeper.keeper import main  # noqa: E402 - the same

try:
    sys.exit(main())
except TetherError as error:
    sys.exit(f"tether keeper: {error}")
