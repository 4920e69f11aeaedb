"""Configuration: layers, changes of single keys, and configured databases."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.config.layers import config_file
    from pinfold.app.config.schema import SandboxConfig
    from pinfold.app.config.settings import replace_config, set_value, value_of

__getattr__ = lazy_names(__name__)
