"""Where training runs: plain torch on this machine's CPU, or Lightning Fabric on GPUs."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kappaflow.errors import UserError

__all__ = ["Cpu", "Fabric", "Place", "place", "use_threads"]


def use_threads(count: int) -> None:
    """Let torch use `count` threads from now on, in this process."""
    torch.set_num_threads(count)


class Place(Protocol):
    """What a training loop asks of the machine."""

    rank: int
    world: int

    def set_up(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """Model and optimizer as they are to be called."""
        ...

    def put(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Tensors on the device."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Gradients of `loss`, averaged over the processes."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """`value` averaged over the processes."""
        ...


class Cpu:
    """One process, plain torch."""

    rank, world = 0, 1

    def set_up(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """See `Place`."""
        return model, optimizer

    def put(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """See `Place`."""
        return tensors

    def backward(self, loss: Tensor) -> None:
        """See `Place`."""
        loss.backward()

    def mean(self, value: Tensor) -> Tensor:
        """See `Place`."""
        return value


class Fabric:
    """Several devices through Lightning Fabric (extra `gpu`): each takes its share of every batch."""

    def __init__(self, accelerator: str, devices: int, *, strategy: str = "auto") -> None:
        try:
            from lightning_fabric import Fabric as _Fabric
        except ImportError:
            raise UserError('devices: GPUs need Lightning Fabric; pip install "kappaflow[gpu]"') from None
        try:
            self.fabric = _Fabric(accelerator=accelerator, devices=devices, strategy=strategy)
            self.fabric.launch()
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"devices: {devices} x {accelerator!r} not available ({str(error).splitlines()[0]})"
            ) from None
        self.rank, self.world = self.fabric.global_rank, self.fabric.world_size

    def set_up(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """See `Place`."""
        return self.fabric.setup(model, optimizer)

    def put(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """See `Place`."""
        return tuple(self.fabric.to_device(t) for t in tensors)

    def backward(self, loss: Tensor) -> None:
        """See `Place`."""
        self.fabric.backward(loss)

    def mean(self, value: Tensor) -> Tensor:
        """See `Place`."""
        return self.fabric.all_reduce(value, reduce_op="mean")  # type: ignore[return-value]


def place(accelerator: str = "cpu", devices: int = 1) -> Place:
    """Choose the plain CPU unless a GPU or several devices are asked for."""
    if devices < 1:
        raise UserError(f"devices: {devices}; expected at least 1")
    if accelerator == "cpu" and devices == 1:
        return Cpu()
    return Fabric(accelerator, devices)
