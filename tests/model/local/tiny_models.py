"""Makes tiny Transformers folders with random weights. Run by a Python that has torch: `tiny_models.py FOLDER KIND...`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }}\n{% endfor %}"
    "{% if tools %}tools: {% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def tokenizer_of(template: str | None) -> Any:
    tokenizers: Any = import_module("tokenizers")
    transformers: Any = import_module("transformers")
    bare = tokenizers.Tokenizer(tokenizers.models.BPE())
    bare.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(["the heron stood still"], trainer)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=bare, pad_token="<pad>", eos_token="<end>")
    if template:
        made.chat_template = template
    return made


def make(folder: str, kind: str) -> None:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    torch.manual_seed(1)
    size = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 4, "max_position_embeddings": 256}
    tokenizer_of(None if kind == "plain" else TEMPLATE).save_pretrained(folder)
    if kind == "encoder":
        transformers.BertModel(transformers.BertConfig(**size)).save_pretrained(folder)
    else:
        config = transformers.LlamaConfig(**size, pad_token_id=0, eos_token_id=1, bos_token_id=None)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        make(f"{sys.argv[1]}/{each}", each)
