"""Models of providers that have an API of their own, through their SDKs. Importing this imports none of them."""

from pinfold.model.providers.direct import DirectModel
from pinfold.model.providers.provider_registry import check_installed

__all__ = ["DirectModel", "check_installed"]
