import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "../src/state/events.ts";
import { apply } from "../src/state/fold.ts";
import { currentPath, isBusy, momentOf, newView, type View } from "../src/state/view.ts";
import { diffLines } from "../src/text/diff.ts";
import { highlight } from "../src/text/highlight.ts";

let seq = 0;

function fold(view: View, ...bodies: object[]): View {
  for (const body of bodies) {
    seq += 1;
    apply(view, { seq, at: "2026-01-01T00:00:00Z", ...body } as Event);
  }
  return view;
}

function begin(): View {
  seq = 0;
  return fold(newView("s_1"), { kind: "SessionOpened", workspace: "/w", model: "m", mode: "auto", lost: [] });
}

function cell(number: number, changes: object = {}, code = `x${number} = 1`): object[] {
  const id = `a_${number}`;
  return [
    { kind: "ActionProposed", id, action: { type: "cell", code }, by: "user", turn: null, parent: null },
    { kind: "ActionAllowed", id, rule: "" },
    { kind: "ActionStarted", id, cell: number, instead_of: null },
    { kind: "ActionFinished", id, ...FINISHED, variables: { added: [`x${number}`], changed: [], removed: [], shapes: [] }, ...changes },
  ];
}

const FINISHED = {
  outcome: "ok",
  observation: "(no output)\n",
  value: null,
  error: null,
  blobs: [],
  displays: [],
  variables: null,
  files: [],
  more_files: 0,
  rolled_back: false,
  notices: [],
  sent: [],
  usage: null,
  cost: null,
  duration_s: 0,
};
const REWOUND = { kind: "SessionRewound", what: "all", undone: [], redone: [], effects: [], notices: [], forgotten: [], recalled: [], again: false };
const SPOKE = { kind: "UserSpoke", turn: "t_1", text: "hello", images: [] };
const REPLIED = { kind: "ModelReplied", turn: "t_1", model: "m", reasoning: "", in_text: false, unreadable: false, usage: { input_tokens: 10, output_tokens: 2 }, cost: 0.5, actions: [] };

test("undo brings back the variables and files of the cell, and later cells are numbered on", () => {
  const view = fold(begin(), ...cell(1), ...cell(2, { files: [{ path: "a.txt", how: "added", before: null, after: "sha256:1" }] }));
  assert.deepEqual([...view.now.files.keys()], ["a.txt"]);
  fold(view, { ...REWOUND, to: 1, undone: [2] });
  assert.deepEqual([...view.now.variables.keys()], ["x1"]);
  assert.equal(view.now.files.size, 0);
  assert.equal(view.canRedo, true);
  fold(view, ...cell(3));
  assert.deepEqual(currentPath(view).map((step) => step.cell), [1, 3]);
  assert.deepEqual([...momentOf(view, 2).files.keys()], ["a.txt"]);
});

test("redo makes undone cells count again", () => {
  const view = fold(begin(), ...cell(1), ...cell(2), { ...REWOUND, to: 1, undone: [2] }, { ...REWOUND, to: 2, redone: [2], again: true });
  assert.equal(view.cells.get(2)?.undone, false);
  assert.deepEqual([...view.now.variables.keys()], ["x1", "x2"]);
  assert.equal(view.canRedo, false);
});

test("undoing variables alone leaves the files", () => {
  const files = [{ path: "a.txt", how: "added", before: null, after: "sha256:1" }];
  const view = fold(begin(), ...cell(1), ...cell(2, { files }), { ...REWOUND, to: 1, what: "variables", undone: [2] });
  assert.deepEqual([...view.now.variables.keys()], ["x1"]);
  assert.deepEqual([...view.now.files.keys()], ["a.txt"]);
});

test("a text that streams becomes the reply, and events that come twice change nothing", () => {
  const view = fold(begin(), SPOKE);
  apply(view, { kind: "TextDelta", turn: "t_1", text: "Hel", reasoning: false });
  apply(view, { kind: "TextDelta", turn: "t_1", text: "lo", reasoning: false });
  assert.equal(isBusy(view), true);
  const reply = { ...REPLIED, text: "Hello" };
  fold(view, reply);
  apply(view, { seq, ...reply } as Event);
  fold(view, { kind: "TurnEnded", turn: "t_1", text: "Hello", usage: REPLIED.usage, cost: null, without: [] });
  const texts = view.items.flatMap((item) => (item.type === "text" ? [[item.text, item.streaming]] : []));
  assert.deepEqual(texts, [["Hello", false]]);
  assert.equal(view.cost, 0.5);
  assert.equal(isBusy(view), false);
});

test("an answer that code gave is shown, one that the model wrote is not shown twice", () => {
  const view = fold(begin(), SPOKE, { ...REPLIED, text: "Looking." });
  fold(view, { kind: "TurnEnded", turn: "t_1", text: "42", usage: REPLIED.usage, cost: null, without: [] });
  assert.deepEqual(view.items.flatMap((item) => (item.type === "text" ? [item.text] : [])), ["Looking.", "42"]);
});

test("an approval waits until it is decided", () => {
  const propose = { kind: "ActionProposed", id: "a_9", action: { type: "tool", tool: "shell", args: {} }, by: "model", turn: "t_1", parent: null };
  const ask = { kind: "ApprovalRequested", id: "a_9", reason: "why", digest: "d", shows: "", pattern: "", stored: "", question: false, options: [] };
  const view = fold(begin(), SPOKE, propose, ask);
  assert.deepEqual([...view.approvals.keys()], ["a_9"]);
  fold(view, { kind: "ApprovalDecided", id: "a_9", verdict: "deny", scope: "once", by: "user", words: "no" });
  assert.equal(view.approvals.size, 0);
  assert.equal(view.steps.get("a_9")?.stage, "denied");
});

test("a turn without an end was cut off when another owner opens the session", () => {
  const view = fold(begin(), SPOKE, { kind: "SessionOpened", workspace: "/w", model: "m", mode: "auto", lost: [] });
  assert.equal(view.cutOff, true);
  assert.equal(isBusy(view), false);
});

test("what a cell printed is told apart from its value and its error", () => {
  const observation = "one\n[stderr]\nwarned\n[shown to the user: image/png, 5 bytes]\n17\n[a notice]\n";
  const view = fold(begin(), ...cell(1, { observation, value: "17", notices: ["a notice"] }));
  const step = view.cells.get(1);
  assert.deepEqual([step?.stdout, step?.stderr, step?.value], ["one", "warned", "17"]);
});

test("a difference names what was added and removed, and leaves out what stayed", () => {
  const before = Array.from({ length: 20 }, (_, line) => `line ${line}`).join("\n");
  const lines = diffLines(before, before.replace("line 10", "other"));
  assert.deepEqual(lines.filter((line) => line.sign === "+" || line.sign === "-"), [
    { sign: "-", text: "line 10" },
    { sign: "+", text: "other" },
  ]);
  assert.equal(lines[0]?.text, "7 unchanged");
});

test("highlighted code is escaped everywhere", () => {
  const html = highlight(`x = "<b>" # <i>\n<u>`);
  assert.doesNotMatch(html, /<[biu]>/);
  assert.match(html, /t-string.*t-comment/);
});
