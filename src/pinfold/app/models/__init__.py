"""The models that a session calls: configured, local, and the default if none is named."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.models.extras import EXTRAS, add_extras, extra_for, installation, missing_modules, requirements
    from pinfold.app.models.local_models import (
        SUGGESTED,
        Reachable,
        choose_model,
        find_weights,
        list_model_names,
        pull_model,
        reachable_models,
        serve_model,
    )
    from pinfold.app.models.session_models import CallOptions, is_usable
    from pinfold.model.local.discovery import FoundServer
    from pinfold.model.local.server.model_server import ServeOptions
    from pinfold.model.local.weights import Pulling

__getattr__ = lazy_names(__name__)
