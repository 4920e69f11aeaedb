"""What a reply costs, by the public prices of its provider. Offline: prices are as old as the installed package."""

from __future__ import annotations

from pinfold.events import Usage

_ALSO = {"google-vertex": "google", "gemini": "google", "bedrock": "aws", "xai": "x-ai"}


def cost_of(provider: str, model: str, usage: Usage) -> float | None:
    """In US dollars, or None when the price is not known.

    Imports the list of prices when it is first called, half a second of CPU: call it in a worker thread.
    """
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    counted = Priced(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.written_tokens,
    )
    try:
        price = calc_price(counted, model, provider_id=_ALSO.get(provider, provider))
    except (LookupError, ValueError):
        # No such provider or model; or counts that contradict each other.
        return None
    # A model that is listed without prices, or a provider that counted nothing, would come out as free.
    return float(price.total_price) or None
