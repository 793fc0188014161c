"""Pages stub."""

from sandbox.service import Sandbox
from starlette.routing import Route as Door


def page_doors(sandbox: Sandbox) -> list[Door]:
    return []
