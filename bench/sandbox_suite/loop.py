"""The smallest thing that runs cells: code from stdin, replies to stderr, the program's output on stdout.

Each request is a line of JSON, each reply another. No interrupts worth the name, no isolation, no limits.
"""

import ast
import json
import sys


def run(code: str, names: dict[str, object]) -> dict[str, object]:
    value = None
    try:
        tree = ast.parse(code)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = repr(eval(compile(ast.Expression(last.value), "<cell>", "eval"), names))
        status = "ok"
    except BaseException as error:  # noqa: BLE001 - whatever the cell raises
        status, value = "error", repr(error)
    sys.stdout.flush()
    return {"status": status, "value": value}


def main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), names)), file=sys.stderr, flush=True)


main()
