/** Keys. All go with Alt, so that they work while one writes and never take a letter away. */

import { busy, dialog, go, moment, openPanel, panelOpen, redo, sidebarOpen, showMoment, tell, undo, view, type Panel } from "../store.ts";
import { decideFirst } from "./approvals.tsx";
import { focusComposer } from "./composer.tsx";
import { scrollToCell } from "./conversation.tsx";

interface Shortcut {
  keys: string;
  what: string;
  run?: () => void;
}

function step(by: number): void {
  const now = view.value;
  if (!now) return;
  const cells = [...now.cells.keys()].sort((a, b) => a - b);
  const place = moment.value === null ? (by < 0 ? cells.length : cells.length - 1) : cells.indexOf(moment.value);
  const cell = cells[Math.max(0, Math.min(cells.length - 1, place + by))];
  if (cell === undefined) return;
  showMoment(cell);
  scrollToCell(cell);
}

function show(panel: Panel): void {
  openPanel(panel);
  setTimeout(() => document.querySelector<HTMLElement>(`#tab-${panel}`)?.focus());
}

function decideTop(verdict: "allow" | "deny", scope: "once" | "session"): void {
  if (view.value) decideFirst(view.value, verdict, scope);
}

export const SHORTCUTS: Shortcut[] = [
  { keys: "Enter", what: "Send the message; Shift+Enter starts a new line" },
  { keys: "Escape", what: "Stop the agent or the running cell, or close what is open" },
  { keys: "Alt+M", what: "Write a message", run: focusComposer },
  { keys: "Alt+A", what: "Allow once", run: () => decideTop("allow", "once") },
  { keys: "Alt+S", what: "Allow in this session", run: () => decideTop("allow", "session") },
  { keys: "Alt+X", what: "Deny", run: () => decideTop("deny", "once") },
  { keys: "Alt+Z", what: "Undo the last cell", run: () => void (!busy.value && undo()) },
  { keys: "Alt+Y", what: "Redo", run: () => void (!busy.value && redo()) },
  { keys: "Alt+ArrowUp", what: "Previous cell", run: () => step(-1) },
  { keys: "Alt+ArrowDown", what: "Next cell", run: () => step(1) },
  { keys: "Alt+1", what: "Timeline", run: () => show("timeline") },
  { keys: "Alt+2", what: "Variables", run: () => show("variables") },
  { keys: "Alt+3", what: "Files", run: () => show("files") },
  { keys: "Alt+4", what: "What left this machine", run: () => show("sent") },
  { keys: "Alt+I", what: "Show or hide the side panel", run: () => (panelOpen.value = !panelOpen.value) },
  { keys: "Alt+K", what: "Search sessions", run: focusSearch },
  { keys: "Alt+N", what: "New session", run: () => go(null) },
  { keys: "Alt+H", what: "Show this list", run: () => (dialog.value = { type: "help" }) },
];

function focusSearch(): void {
  sidebarOpen.value = true;
  setTimeout(() => document.querySelector<HTMLElement>("#search")?.focus());
}

function nameOf(event: KeyboardEvent): string {
  return event.code.replace(/^(Key|Digit)/, "");
}

export function onKey(event: KeyboardEvent): void {
  if (event.key === "Escape" && !dialog.value) {
    if (sidebarOpen.value) sidebarOpen.value = false;
    else if (busy.value) tell("Interrupt");
    else if (moment.value !== null) moment.value = null;
    return;
  }
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  const found = SHORTCUTS.find(({ keys, run }) => run && keys === `Alt+${nameOf(event)}`);
  if (!found?.run) return;
  event.preventDefault();
  found.run();
}
