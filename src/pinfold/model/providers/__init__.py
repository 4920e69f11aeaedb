"""Models of providers that have an API of their own, through their SDKs. Importing this imports none of them."""

from pinfold.model.providers.direct import DirectModel

__all__ = ["DirectModel"]
