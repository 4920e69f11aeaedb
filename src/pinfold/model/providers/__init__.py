"""Models of providers with their own API, through their SDKs. Importing this package imports no SDK."""

from pinfold.model.providers.direct import DirectModel

__all__ = ["DirectModel"]
