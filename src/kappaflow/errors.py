"""The one exception a user's mistake raises: the command line prints it as one line and exits with code 2."""

__all__ = ["UserError"]


class UserError(ValueError):
    """Bad input: the message says where, what came, what was expected and what to do."""
