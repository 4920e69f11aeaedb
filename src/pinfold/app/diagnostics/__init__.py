"""Checks for `pinfold doctor`, `pinfold map` and the first run. They examine an installation without changing it."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.diagnostics.first_run import DetectedSetup, agree_on_model, detect_setup
    from pinfold.app.diagnostics.health import Health, run_checks
    from pinfold.app.diagnostics.system_map import SystemMap, build_session_map, build_system_map

__getattr__ = lazy_names(__name__)
