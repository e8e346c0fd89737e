"""How long a kept process may live without anybody who cares for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forever:
    """Until it ends by itself, by its timeout, or because somebody ends it."""


@dataclass(frozen=True, slots=True)
class Owned:
    """As long as somebody holds `owner`, and `seconds` longer."""

    owner: str
    seconds: float = 900.0


Lease = Forever | Owned
FOREVER = Forever()


class Holders:
    """Who holds which owner, and since when nobody does."""

    __slots__ = ("_counts", "_left")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._left: dict[str, float] = {}

    def hold(self, owner: str) -> None:
        """One more holds this owner."""
        self._counts[owner] = self._counts.get(owner, 0) + 1
        self._left.pop(owner, None)

    def let_go(self, owner: str, now: float) -> None:
        """One holder less."""
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
            self._left[owner] = now

    def expired(self, lease: Lease, now: float) -> bool:
        """Whether what has this lease must end now; an owner nobody has held yet counts from the first look on."""
        if isinstance(lease, Forever) or lease.owner in self._counts:
            return False
        return now - self._left.setdefault(lease.owner, now) >= lease.seconds

    def forget_all_but(self, owners: set[str]) -> None:
        """Only these owners own anything still."""
        for owner in self._left.keys() - owners:
            del self._left[owner]
