/** Applies events to a view, one after the other. Events that were applied before are left out, so replays are harmless. */

import type { Changed, Event, EventOf, FileChange } from "./events.ts";
import { replyText, splitObservation } from "./observations.ts";
import type { EndItem, FileThen, Item, Moment, NoteItem, Step, TextItem, UserItem, VariableThen, View } from "./view.ts";
import { momentOf } from "./view.ts";

const LIVE_OUTPUT = 200_000;
/** Characters of streamed output that are kept; the whole comes with the end of the action. */

export function apply(view: View, event: Event): void {
  if (event.seq !== undefined) {
    if (event.seq <= view.seq) return;
    view.seq = event.seq;
  }
  switch (event.kind) {
    case "SessionOpened":
      return applyOpened(view, event);
    case "SessionChanged":
      view.title = event.title;
      view.mode = event.mode ?? view.mode;
      view.model = event.model || view.model;
      view.plan = event.plan ?? view.plan;
      return;
    case "SessionForked":
      view.source = event.from;
      return addNote(view, event, "This session is a branch of another one; everything above was copied from it.");
    case "SessionRewound":
      return applyRewound(view, event);
    case "ContextCompacted":
      return addNote(view, event, compactedInWords(event));
    case "Noticed":
      return addNote(view, event, event.text);
    case "Checkpointed":
      return addNote(
        view,
        event,
        event.restored === null ? `Checkpoint ${event.number}: ${event.message}` : `Files restored to checkpoint ${event.restored}.`,
      );
    case "UserSpoke":
      return applyUserSpoke(view, event);
    case "ModelCalled":
      view.cutOff = false;
      if (view.turn) view.turn.waiting = true;
      return;
    case "ModelReplied":
      return applyReply(view, event);
    case "ModelFailed":
      dropLive(view);
      return addNote(view, event, failureInWords(event), "bad");
    case "ActionProposed":
      return applyProposed(view, event);
    case "ActionAllowed":
      return changeStep(view, event.id, (step) => {
        if (step.stage === "asking") step.stage = "proposed";
      });
    case "ActionDenied":
      view.approvals.delete(event.id);
      return changeStep(view, event.id, (step) => {
        step.stage = "denied";
        step.reason = event.reason;
      });
    case "ApprovalRequested":
      view.approvals.set(event.id, event);
      return changeStep(view, event.id, (step) => {
        step.stage = "asking";
        step.reason = event.reason;
      });
    case "ApprovalDecided":
      view.approvals.delete(event.id);
      return changeStep(view, event.id, (step) => {
        step.stage = event.verdict === "allow" ? "proposed" : "denied";
        step.reason = event.verdict === "allow" ? "" : event.words || "You denied it.";
      });
    case "ActionStarted":
      return applyStarted(view, event);
    case "ActionFinished":
      return applyFinished(view, event);
    case "ApproachChanged":
      view.cost = add(view.cost, event.cost);
      if (event.started_over) addNote(view, event, "The same error kept occurring, so the agent starts over.");
      else if (event.verdict === "refused") addNote(view, event, `The answer was checked and sent back: ${event.error}`);
      return;
    case "TurnEnded":
      return applyTurnEnded(view, event);
    case "TurnInterrupted":
      return endTurn(view, event, { state: "interrupted", text: "Stopped.", canContinue: true });
    case "TurnFailed":
      return endTurn(view, event, { state: "failed", text: event.error, canContinue: event.temporary || event.at_limit });
    case "TextDelta":
      return applyTextDelta(view, event);
    case "OutputDelta":
      return changeStep(view, event.id, (step) => {
        const text = step[event.stream] + event.text;
        step[event.stream] = text.length > LIVE_OUTPUT ? text.slice(-LIVE_OUTPUT) : text;
      });
  }
}

function applyOpened(view: View, event: EventOf<"SessionOpened">): void {
  const resumed = view.seq > 1 && view.items.length > 0;
  view.workspace = event.workspace;
  view.model = event.model;
  view.mode = event.mode;
  dropLive(view);
  view.approvals.clear();
  if (!resumed) return;
  // Whoever owned the session before is gone; a turn without an end was cut off.
  view.cutOff = view.turn !== null;
  view.ownRun = null;
  if (event.lost.length) {
    const variables = new Map(view.now.variables);
    for (const name of event.lost) variables.delete(name);
    view.now = { ...view.now, variables };
    addNote(view, event, `Session reopened. Not restored: ${event.lost.join(", ")}.`);
  }
}

function applyRewound(view: View, event: EventOf<"SessionRewound">): void {
  for (const number of event.undone) markUndone(view, number, true);
  for (const number of event.redone) markUndone(view, number, false);
  if (event.what !== "chat") {
    const then = momentOf(view, event.to);
    view.now = {
      cell: event.to,
      variables: event.what === "files" ? view.now.variables : then.variables,
      files: event.what === "variables" ? view.now.files : then.files,
    };
    if (event.what === "all" || event.undone.length || event.redone.length) view.head = event.to;
  }
  markForgotten(view, event.forgotten, true);
  markForgotten(view, event.recalled, false);
  view.canRedo = !event.again;
  addNote(view, event, rewoundInWords(event), "rewind");
}

function markUndone(view: View, number: number, undone: boolean): void {
  const step = view.cells.get(number);
  if (!step) return;
  step.undone = undone;
  step.version += 1;
}

function markForgotten(view: View, turns: string[], forgotten: boolean): void {
  if (!turns.length) return;
  for (const item of view.items) {
    if (item.turn === null || !turns.includes(item.turn)) continue;
    item.forgotten = forgotten;
    item.version += 1;
  }
}

function rewoundInWords(event: EventOf<"SessionRewound">): string {
  const turns = event.recalled.length || event.forgotten.length;
  const cells = event.redone.length ? event.redone : event.undone;
  const verb = event.again || event.redone.length ? "Redid" : "Undid";
  const named = cells.length > 4 ? `${cells.length} cells` : `cell ${cells.join(", ")}`;
  const parts: string[] = [];
  if (event.what === "chat") parts.push(`${event.recalled.length ? "Restored" : "Removed"} ${plural(turns, "turn")} of the conversation; variables and files stay.`);
  else {
    const what = event.what === "all" ? "Variables and files" : event.what === "files" ? "Files" : "Variables";
    if (cells.length) parts.push(`${verb} ${named}.`);
    parts.push(`${what} are ${event.to ? `as after cell ${event.to}` : "as at the start"}.`);
  }
  if (event.effects.length) parts.push(`Cannot be undone: ${event.effects.join("; ")}.`);
  return [...parts, ...event.notices].join(" ");
}

function compactedInWords(event: EventOf<"ContextCompacted">): string {
  if (event.cause === "clear") return "The conversation was cleared. Variables and files stay.";
  return `Context compacted from about ${event.before.toLocaleString("en")} to ${event.after.toLocaleString("en")} tokens. Variables and files stay.`;
}

function failureInWords(event: EventOf<"ModelFailed">): string {
  const next = event.instead
    ? `; asking ${event.instead}`
    : event.retry_in_s !== null
      ? `; trying again in ${Math.ceil(event.retry_in_s)} s`
      : "";
  return `${event.model}: ${event.error}${next}`;
}

function applyUserSpoke(view: View, event: EventOf<"UserSpoke">): void {
  view.turn = { id: event.turn, began: time(event), waiting: true };
  view.cutOff = false;
  view.canRedo = false;
  view.lastReply = "";
  view.firstWords ||= event.text;
  const item: UserItem = {
    type: "user",
    key: `u${event.seq}`,
    version: 0,
    turn: event.turn,
    text: event.text,
    images: event.images,
  };
  view.items.push(item);
}

function applyTextDelta(view: View, event: EventOf<"TextDelta">): void {
  const type = event.reasoning ? "thinking" : "text";
  let item = view.live[type];
  if (!item) {
    item = { type, key: `live-${type}-${view.items.length}-${view.seq}`, version: 0, turn: event.turn, text: "", streaming: true };
    view.live[type] = item;
    view.items.push(item);
  }
  item.text += event.text;
  item.version += 1;
  if (view.turn) view.turn.waiting = false;
}

function applyReply(view: View, event: EventOf<"ModelReplied">): void {
  settle(view, "thinking", event.turn, event.reasoning);
  settle(view, "text", event.turn, event.unreadable ? "" : replyText(event));
  view.lastReply = event.text;
  if (view.turn) view.turn.waiting = false;
  view.contextTokens = event.usage.input_tokens || view.contextTokens;
  view.cost = add(view.cost, event.cost);
}

/** Puts the whole text in the place of what was streamed of it. */
function settle(view: View, type: TextItem["type"], turn: string, text: string): void {
  const live = view.live[type];
  view.live[type] = null;
  if (live && text.trim()) {
    live.text = text;
    live.streaming = false;
    live.version += 1;
  } else if (live) {
    remove(view, live);
  } else if (text.trim()) {
    view.items.push({ type, key: `${type}${view.seq}`, version: 0, turn, text, streaming: false });
  }
}

function dropLive(view: View): void {
  for (const type of ["text", "thinking"] as const) {
    const live = view.live[type];
    if (live) remove(view, live);
    view.live[type] = null;
  }
}

function applyProposed(view: View, event: EventOf<"ActionProposed">): void {
  if (view.steps.has(event.id)) return;
  const caller = event.parent ? (view.steps.get(event.parent) ?? null) : null;
  const step: Step = {
    type: "step",
    key: event.id,
    version: 0,
    id: event.id,
    action: event.action,
    by: event.by,
    turn: event.turn,
    caller,
    stage: "proposed",
    cell: null,
    parentCell: view.head,
    undone: false,
    outcome: "",
    stdout: "",
    stderr: "",
    value: null,
    error: null,
    reason: "",
    wholeOutput: null,
    displays: [],
    variables: null,
    files: [],
    moreFiles: 0,
    notices: [],
    calls: [],
    duration: 0,
  };
  view.steps.set(event.id, step);
  view.cutOff = false;
  if (caller) {
    caller.calls.push(step);
    caller.version += 1;
    return;
  }
  if (event.by === "user" && !event.turn) view.ownRun = event.id;
  view.canRedo = false;
  view.items.push(step);
}

function applyStarted(view: View, event: EventOf<"ActionStarted">): void {
  if (event.instead_of !== null) markUndone(view, event.instead_of, true);
  changeStep(view, event.id, (step) => {
    step.stage = "running";
    step.cell = event.cell;
  });
  const step = view.steps.get(event.id);
  if (!step || step.cell === null || step.caller) return;
  if (event.instead_of !== null) step.parentCell = view.cells.get(event.instead_of)?.parentCell ?? step.parentCell;
  else step.parentCell = view.head;
  view.cells.set(step.cell, step);
  const before = event.instead_of === null ? view.now : momentOf(view, step.parentCell);
  setNow(view, { ...before, cell: step.cell });
}

function applyFinished(view: View, event: EventOf<"ActionFinished">): void {
  view.approvals.delete(event.id);
  if (view.ownRun === event.id) view.ownRun = null;
  view.cost = add(view.cost, event.cost);
  changeStep(view, event.id, (step) => {
    const printed = splitObservation(event);
    step.stage = step.stage === "denied" || event.outcome === "denied" ? "denied" : "done";
    step.outcome = event.outcome;
    step.stdout = printed.stdout;
    step.stderr = printed.stderr;
    step.value = event.value;
    step.error = event.error;
    step.wholeOutput = event.blobs[0] ?? null;
    step.displays = event.displays;
    step.variables = event.variables;
    step.files = event.files;
    step.moreFiles = event.more_files;
    step.notices = event.notices;
    step.duration = event.duration_s;
    if (step.cell === null || step.caller) return;
    if (event.rolled_back) return setNow(view, { ...momentOf(view, step.parentCell), cell: step.cell });
    const { variables, files } = momentOf(view, step.cell);
    setNow(view, {
      cell: step.cell,
      variables: event.variables ? changeVariables(variables, event.variables, step.cell) : variables,
      files: event.files.length ? changeFiles(files, event.files, step.cell) : files,
    });
  });
}

function setNow(view: View, moment: Moment): void {
  view.moments.set(moment.cell, moment);
  view.now = moment;
  view.head = moment.cell;
}

function changeVariables(before: ReadonlyMap<string, VariableThen>, changed: Changed, cell: number): Map<string, VariableThen> {
  const after = new Map(before);
  const shapes = new Map(changed.shapes);
  for (const name of [...changed.added, ...changed.changed]) after.set(name, { name, shape: shapes.get(name) ?? "", cell });
  for (const name of changed.removed) after.delete(name);
  return after;
}

function changeFiles(before: ReadonlyMap<string, FileThen>, files: FileChange[], cell: number): Map<string, FileThen> {
  const after = new Map(before);
  for (const { path, how, after: blob } of files) after.set(path, { path, how, blob, cell });
  return after;
}

function applyTurnEnded(view: View, event: EventOf<"TurnEnded">): void {
  dropLive(view);
  const said = view.lastReply.trim();
  const last = view.items.findLast((item) => item.type === "text" && item.turn === event.turn);
  if (said && event.text.startsWith(said) && last?.type === "text") {
    last.text = event.text;
    last.version += 1;
  } else if (event.text.trim() && event.text.trim() !== said) {
    view.items.push({ type: "text", key: `a${event.seq}`, version: 0, turn: event.turn, text: event.text, streaming: false });
  }
  endTurn(view, event, {
    state: "ended",
    tokens: event.usage.input_tokens + event.usage.output_tokens,
    cost: event.cost,
  });
}

function endTurn(view: View, event: Event & { turn: string }, end: Partial<EndItem>): void {
  dropLive(view);
  const seconds = view.turn ? (time(event) - view.turn.began) / 1000 : 0;
  view.turn = null;
  view.cutOff = false;
  for (const item of view.items) if (item.type === "end" && item.canContinue) changeItem(item, { canContinue: false });
  view.items.push({
    type: "end",
    key: `e${event.seq}`,
    version: 0,
    turn: event.turn,
    state: "ended",
    text: "",
    tokens: 0,
    cost: null,
    canContinue: false,
    seconds,
    ...end,
  });
}

function changeItem(item: EndItem, change: Partial<EndItem>): void {
  Object.assign(item, change);
  item.version += 1;
}

function changeStep(view: View, id: string, change: (step: Step) => void): void {
  const step = view.steps.get(id);
  if (!step) return;
  change(step);
  step.version += 1;
  if (step.caller) step.caller.version += 1;
}

function addNote(view: View, event: Event, text: string, tone: NoteItem["tone"] = "plain"): void {
  view.items.push({ type: "note", key: `n${event.seq}`, version: 0, turn: null, text, tone });
}

function remove(view: View, item: Item): void {
  const place = view.items.lastIndexOf(item);
  if (place >= 0) view.items.splice(place, 1);
}

function add(total: number | null, cost: number | null): number | null {
  return cost === null || cost === undefined ? total : (total ?? 0) + cost;
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function time(event: Event): number {
  return event.at ? Date.parse(event.at) : 0;
}
