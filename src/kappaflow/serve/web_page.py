"""The page itself: one answer, everything inline, and a policy that lets nothing else run."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

__all__ = ["REPORT_POLICY", "page", "page_policy"]

# A report has its own policy, which lets nothing run but a script of ours, by its digest. On top of that it is put
# into a sandbox: an origin of its own, from which nothing of this server can be read or asked.
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-popups"
)


def _part(name: str) -> str:
    return (files("kappaflow.serve") / name).read_text(encoding="utf-8")


@cache
def page() -> bytes:
    """Return the page with its style and script in it."""
    whole = _part("serve_page.html")
    whole = whole.replace("{{style}}", _part("serve_page.css")).replace("{{script}}", _part("serve_page.js"))
    return whole.encode()


@cache
def page_policy() -> str:
    """Return its content-security policy: this style, this script, requests to this server, and nothing more."""

    def digest(name: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest('serve_page.js')}; style-src {digest('serve_page.css')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
