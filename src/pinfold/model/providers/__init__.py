"""Models of providers that have an API of their own, through their SDKs. Importing this imports none of them."""

from pinfold.model.providers.direct import DirectModel, direct
from pinfold.model.providers.provider_registry import PROVIDERS, Provider

__all__ = ["PROVIDERS", "DirectModel", "Provider", "direct"]
