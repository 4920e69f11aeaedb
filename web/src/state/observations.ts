/** What a cell printed, taken out of what the model saw of it, and replies without the code they run. */

import type { EventOf } from "./events.ts";

const NO_OUTPUT = "(no output)";
const STDERR = "\n[stderr]\n";
const SHOWN = /^\[shown to the user: .*\]$/;
const FENCED = /(```+|~~~+)[^\n`]*\n([\s\S]*?)(?:\n?\1\n?|$)/g;

export interface Printed {
  stdout: string;
  stderr: string;
}

export function splitObservation(event: EventOf<"ActionFinished">): Printed {
  let text = event.observation.replace(/\n+$/, "");
  if (!text || text === NO_OUTPUT) return { stdout: "", stderr: "" };
  text = dropNotices(text, event.notices);
  if (event.error) text = dropEnd(text, event.error);
  if (event.value !== null) text = dropEnd(text, event.value);
  const lines = text.split("\n");
  while (lines.length && SHOWN.test(lines[lines.length - 1] ?? "")) lines.pop();
  const [stdout = "", ...rest] = `\n${lines.join("\n")}`.split(STDERR);
  return { stdout: stdout.slice(1), stderr: rest.join(STDERR) };
}

function dropNotices(text: string, notices: string[]): string {
  for (const notice of [...notices].reverse()) text = dropEnd(text, `[${notice}]`);
  return text;
}

/** What stands before these words; lines in brackets behind them are notices. */
function dropEnd(text: string, words: string): string {
  const wanted = words.replace(/\n+$/, "");
  if (!wanted) return text;
  let head = text;
  while (head !== wanted && !head.endsWith(`\n${wanted}`)) {
    const line = head.slice(head.lastIndexOf("\n") + 1);
    if (head === line || !/^\[.*\]$/.test(line)) return text;
    head = head.slice(0, -line.length - 1);
  }
  return head === wanted ? "" : head.slice(0, -wanted.length - 1);
}

export function replyText(event: EventOf<"ModelReplied">): string {
  const codes = new Set(event.actions.map((call) => codeOf(call.args).trim()).filter(Boolean));
  if (!codes.size) return event.text;
  return event.text.replace(FENCED, (whole, _run, body: string) => (codes.has(body.trim()) ? "" : whole)).trim();
}

export function codeOf(args: unknown): string {
  const code = typeof args === "object" && args !== null && "code" in args ? args.code : "";
  return typeof code === "string" ? code : "";
}
