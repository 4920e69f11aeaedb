"""The token benchmark: what code instead of JSON calls saves, over 113 conversations. docs/design/0036-counting-tokens.md."""
