"""The user's MCP servers: where they are configured, where they run, what they offer, and what they may ask for."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.session.mcp.files import (
        build_entry,
        client_servers,
        find_project_server,
        remove_entry,
        spec_of,
        write_entry,
    )
    from pinfold.app.session.mcp.inspection import (
        ServerFailed,
        ServerInspector,
        ServerListing,
        find_spec,
        forget,
        inspect_servers,
        list_servers,
        load_servers_for,
    )
    from pinfold.app.session.mcp.placement import registry_hint
    from pinfold.app.session.mcp.server_requests import Field, InvalidAnswer, fields_of, is_yes

__getattr__ = lazy_names(__name__)
