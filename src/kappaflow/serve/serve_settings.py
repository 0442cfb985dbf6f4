"""What whoever starts the server decides: where it listens, how much it takes, which networks answer."""

import ipaddress
from dataclasses import asdict, dataclass, field

from kappaflow.errors import UserError

__all__ = ["Limits", "NetworkChoice", "ServeSettings"]

_MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How much is taken, and how long anything may last; sizes in bytes, times in seconds."""

    file_bytes: int = 50 * _MB  # one upload; a G395H x1d product has about 1 MB
    folder_bytes: int = 20_000 * _MB  # everything kept
    files: int = 200  # of one job
    waiting: int = 100  # jobs in the queue
    drafts: int = 500  # uploads that nobody ran
    read_seconds: float = 60.0  # to read one upload
    job_seconds: float = 6 * 3600.0  # to retrieve a job's objects
    stall_seconds: float = 30.0  # without a byte of an upload
    reader_memory: int = 6_000 * _MB  # address space of the process that opens uploads, where the system can limit it

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise UserError(f"serve: {name.replace('_', ' ')} {value:g}; expected above 0")


@dataclass(frozen=True)
class NetworkChoice:
    """The networks, as `kappaflow retrieve` takes them; the packaged ones where nothing is given."""

    model: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    opacity: str | None = None


@dataclass(frozen=True)
class ServeSettings:
    """Address, limits and networks of a server."""

    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()  # further names under which it is reached
    limits: Limits = field(default_factory=Limits)
    networks: NetworkChoice = NetworkChoice()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UserError(f"--port {self.port}; expected between 0 (any free one) and 65535")

    @property
    def is_local(self) -> bool:
        """Whether nothing but this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
