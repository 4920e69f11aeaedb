"""Tool calls for models without native ones: explained in the prompt, written as text, parsed from the reply.

`reply_parser` is loaded only when the first reply arrives.
"""

from pinfold.model.protocol.text_calls import Style, TextCallLayer, When, put_tools_in_prompt

__all__ = ["Style", "TextCallLayer", "When", "put_tools_in_prompt"]
