"""`kappaflow serve`: retrievals on a local web page."""

from pathlib import Path
from typing import Annotated

import typer

from kappaflow.cli.command_line import need_extra

__all__ = ["serve"]

HELP = """The same retrievals on a local web page: drop files, see what was read, run, read the report.

Needs the extra `web`: [bold]pip install 'kappaflow\\[web]'[/bold]

Nothing leaves the machine: the page has no outside resource, and the server listens on 127.0.0.1 only unless --host
says otherwise (then the address that is printed carries a token, which whoever opens it needs). Jobs wait their turn in
one worker process, are kept in --out, and go on after a restart.

Example: [bold]kappaflow serve --open[/bold]
for colleagues on the same network: [bold]kappaflow serve --host 0.0.0.0 --name mymachine.local[/bold]
with networks of your own: [bold]kappaflow serve --model m0 --model m1 --control c0[/bold]
"""


def serve(
    out: Annotated[Path, typer.Option(help="Folder for uploads and results.")] = Path("served"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.")] = 8765,
    name: Annotated[
        list[str] | None, typer.Option(help="Further name under which the page is opened. Repeatable.")
    ] = None,
    largest: Annotated[float, typer.Option(help="Largest upload, in MB.")] = 50.0,
    keep: Annotated[float, typer.Option(help="Most that the folder may hold, in GB.")] = 20.0,
    time_limit: Annotated[float, typer.Option(help="Longest that a job may take, in minutes.")] = 360.0,
    model: Annotated[
        list[Path] | None, typer.Option(help="Trained network; several are pooled. Default: the packaged ones.")
    ] = None,
    control: Annotated[
        list[Path] | None, typer.Option(help="Network trained with fixed opacities, to compare.")
    ] = None,
    opacity: Annotated[Path | None, typer.Option(help="Opacity table the networks were trained with.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve (see `HELP`)."""
    from kappaflow.serve.serve_settings import Limits, NetworkChoice, ServeSettings

    for module in ("starlette", "uvicorn"):
        need_extra(module)
    limits = Limits(file_bytes=round(largest * 1e6), folder_bytes=round(keep * 1e9), job_seconds=time_limit * 60)
    networks = NetworkChoice(
        tuple(str(path.resolve()) for path in model or ()),
        tuple(str(path.resolve()) for path in control or ()),
        None if opacity is None else str(opacity.resolve()),
    )
    settings = ServeSettings(host, port, tuple(name or ()), limits, networks)

    def ready(address: str) -> None:
        print(
            f"{address}\nkappaflow serve: results in {out}; Ctrl-C ends it, and what runs goes on at the next start",
            flush=True,
        )
        if show:
            import webbrowser

            webbrowser.open(address)

    from kappaflow.serve.serving import serve as run

    run(out, settings, ready)
