"""The record of a training run: JSON lines, a figure, and TensorBoard's files where asked for."""

import json
from pathlib import Path
from typing import Any

from kappaflow.storage import written_whole

__all__ = ["FIGURE", "LOG", "Curves"]

LOG, FIGURE = "log.jsonl", "loss.png"


class Curves:
    """One JSON object per epoch in `log.jsonl`; `draw` makes `loss.png`."""

    def __init__(self, folder: Path, *, tensorboard: bool = False) -> None:
        self.folder, self.tensorboard = folder, tensorboard

    def add(self, row: dict[str, Any]) -> None:
        """Append one epoch."""
        with (self.folder / LOG).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        if self.tensorboard:
            self._to_tensorboard([row])

    def rewrite(self, history: list[dict[str, Any]]) -> None:
        """After a kill, the log says what the saved state knows, no more."""
        with written_whole(self.folder / LOG) as part:
            part.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")

    def draw(self, history: list[dict[str, Any]], best: int) -> None:
        """Training and validation loss against epochs, the best one marked."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(6, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        epochs = [row["epoch"] for row in history]
        for name, style in (("train", "C0o-"), ("validation", "C1o-")):
            axes.plot(epochs, [row[name] for row in history], style, ms=3, lw=1.2, label=name)
        if best:
            axes.axvline(best, color="0.6", lw=0.8, ls="--", label=f"kept: epoch {best}")
        axes.axhline(0, color="0.85", lw=0.8, zorder=0)
        axes.set(xlabel="epoch", ylabel="loss  $-\\ln\\,[\\,p(\\theta|x)/p(\\theta)\\,]$  [nats]")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        with written_whole(self.folder / FIGURE) as part:
            figure.savefig(part, format="png", dpi=150)

    def _to_tensorboard(self, rows: list[dict[str, Any]]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.folder / "tensorboard")) as writer:
            for row in rows:
                for name in ("train", "validation", "learning_rate"):
                    writer.add_scalar(name, row[name], row["step"])
