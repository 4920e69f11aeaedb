/** A session as the page shows it. Built from events alone by `fold.ts`; nothing here depends on the browser. */

import type { Action, Changed, Display, EventOf, FileChange, Mode, Plan } from "./events.ts";

export type Stage = "proposed" | "asking" | "running" | "done" | "denied";

interface ItemHead {
  key: string;
  /** Grows with every change, so that only changed items are rendered again. */
  version: number;
  turn: string | null;
  /** The user took this turn back; the model is not told of it any more. */
  forgotten?: boolean;
}

export interface UserItem extends ItemHead {
  type: "user";
  text: string;
  images: { mime: string; blob: string }[];
}

export interface TextItem extends ItemHead {
  type: "text" | "thinking";
  text: string;
  streaming: boolean;
}

export interface Step extends ItemHead {
  type: "step";
  id: string;
  action: Action;
  by: "model" | "user" | "cell";
  /** The cell that made this call. */
  caller: Step | null;
  stage: Stage;
  cell: number | null;
  /** The cell before it in its line of states. */
  parentCell: number;
  undone: boolean;
  outcome: string;
  stdout: string;
  stderr: string;
  value: string | null;
  error: string | null;
  reason: string;
  wholeOutput: string | null;
  displays: Display[];
  variables: Changed | null;
  files: FileChange[];
  moreFiles: number;
  notices: string[];
  calls: Step[];
  duration: number;
}

export interface NoteItem extends ItemHead {
  type: "note";
  text: string;
  tone: "plain" | "bad" | "rewind";
}

export interface EndItem extends ItemHead {
  type: "end";
  state: "ended" | "interrupted" | "failed";
  text: string;
  tokens: number;
  cost: number | null;
  seconds: number;
  canContinue: boolean;
}

export type Item = UserItem | TextItem | Step | NoteItem | EndItem;

export interface VariableThen {
  name: string;
  shape: string;
  cell: number;
}

export interface FileThen {
  path: string;
  how: FileChange["how"];
  blob: string | null;
  cell: number;
}

/** Variables and files after a cell, as far as cells changed them. */
export interface Moment {
  cell: number;
  variables: ReadonlyMap<string, VariableThen>;
  files: ReadonlyMap<string, FileThen>;
}

export interface View {
  id: string;
  seq: number;
  items: Item[];
  steps: Map<string, Step>;
  cells: Map<number, Step>;
  moments: Map<number, Moment>;
  /** Where variables and files are; not the moment of `head` where only one of them was taken back. */
  now: Moment;
  head: number;
  canRedo: boolean;
  approvals: Map<string, EventOf<"ApprovalRequested">>;
  turn: { id: string; began: number; waiting: boolean } | null;
  ownRun: string | null;
  cutOff: boolean;
  live: { text: TextItem | null; thinking: TextItem | null };
  lastReply: string;
  title: string;
  firstWords: string;
  model: string;
  mode: Mode;
  workspace: string;
  source: string | null;
  plan: Plan | null;
  cost: number | null;
  contextTokens: number;
}

export function newView(id: string): View {
  const start: Moment = { cell: 0, variables: new Map(), files: new Map() };
  return {
    id,
    seq: 0,
    items: [],
    steps: new Map(),
    cells: new Map(),
    moments: new Map([[0, start]]),
    now: start,
    head: 0,
    canRedo: false,
    approvals: new Map(),
    turn: null,
    ownRun: null,
    cutOff: false,
    live: { text: null, thinking: null },
    lastReply: "",
    title: "",
    firstWords: "",
    model: "",
    mode: "auto",
    workspace: "",
    source: null,
    plan: null,
    cost: null,
    contextTokens: 0,
  };
}

export function isBusy(view: View): boolean {
  return (view.turn !== null && !view.cutOff) || view.ownRun !== null;
}

/** The cells whose effects are there now, in order. */
export function currentPath(view: View): Step[] {
  return pathTo(view, view.head);
}

export function pathTo(view: View, cell: number): Step[] {
  const path: Step[] = [];
  let step = view.cells.get(cell);
  while (step) {
    path.push(step);
    step = step.parentCell < (step.cell ?? 0) ? view.cells.get(step.parentCell) : undefined;
  }
  return path.reverse();
}

export function momentOf(view: View, cell: number): Moment {
  return view.moments.get(cell) ?? { cell, variables: new Map(), files: new Map() };
}

export function titleOf(title: string, firstWords: string): string {
  const line = (title || firstWords).trim().split("\n")[0] ?? "";
  return line || "New session";
}

export function summaryOf(action: Action): string {
  if (action.type === "cell") {
    const lines = action.code.split("\n").map((line) => line.trim());
    return lines.find((line) => line && !line.startsWith("#") && !/^(import|from) /.test(line)) ?? lines[0] ?? "";
  }
  return [action.tool, detailOf(action.args)].filter(Boolean).join(" ");
}

/** The argument of a tool that says most. */
export function detailOf(args: unknown): string {
  const values = new Map<string, unknown>(Object.entries(args ?? {}));
  const found = ["command", "path", "url", "pattern", "query", "text", "question"].map((name) => values.get(name));
  return found.find((value) => typeof value === "string") ?? "";
}
