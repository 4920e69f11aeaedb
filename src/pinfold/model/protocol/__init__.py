"""Tool calls for models that have none: told in the prompt, written as text, read out of the reply.

`reply_parser`, which reads replies, is not loaded before there is one.
"""

from pinfold.model.protocol.text_calls import InText, Style, When, put_tools_in_prompt

__all__ = ["InText", "Style", "When", "put_tools_in_prompt"]
