/** What the page knows, as signals, and what its user can do. Views read the signals and call the functions. */

import { computed, effect, signal } from "@preact/signals";
import * as api from "./api.ts";
import type { Event, FileChange, Mode } from "./state/events.ts";
import { apply } from "./state/fold.ts";
import { isBusy, newView, type View } from "./state/view.ts";
import { follow, type Connection } from "./stream.ts";

export type Panel = "timeline" | "variables" | "files" | "sent";
export type Theme = "system" | "light" | "dark";
export type Dialog =
  | { type: "help" }
  | { type: "table"; name: string }
  | { type: "change"; change: FileChange; cell: number | null }
  | { type: "file"; path: string }
  | { type: "branches"; cell: number };

interface Notice {
  id: number;
  text: string;
  bad: boolean;
}

export const signedIn = signal<"checking" | "in" | "out">("checking");
export const about = signal<api.About | null>(null);
export const sessions = signal<api.SessionInfo[]>([]);
export const search = signal("");
export const route = signal<{ session: string | null; other: string | null }>({ session: null, other: null });
export const view = signal<View | null>(null);
/** Grows whenever events were applied to the view, which is changed in place. */
export const revision = signal(0);
export const connection = signal<Connection>("connecting");
export const moment = signal<number | null>(null);
export const panel = signal<Panel>("timeline");
/** Here the panel lies over the conversation. */
const isNarrow = () => window.innerWidth < 1180;
export const panelOpen = signal(!isNarrow());
export const sidebarOpen = signal(false);
export const dialog = signal<Dialog | null>(null);
export const notices = signal<Notice[]>([]);
export const announcement = signal("");
export const theme = signal<Theme>((localStorage.getItem("pinfold-theme") as Theme | null) ?? "system");
export const filesChanged = signal(0);
export const draft = signal("");
/** Tokens the model can take, and why there is no model, as far as the session's owner knows. */
export const status = signal<api.SessionInfo["status"]>(null);

export const busy = computed(() => {
  revision.value;
  return view.value !== null && isBusy(view.value);
});
export const currentInfo = computed(() => sessions.value.find((one) => one.id === route.value.session) ?? null);

effect(() => {
  localStorage.setItem("pinfold-theme", theme.value);
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
});

let noticeCount = 0;
const NOTICE_MS = 7_000;

export function notify(text: string, bad = false): void {
  const id = ++noticeCount;
  notices.value = [...notices.value.slice(-2), { id, text, bad }];
  setTimeout(() => dismiss(id), NOTICE_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((one) => one.id !== id);
}

/** Runs a request and says what went wrong, if something did. */
export async function attempt<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 401) signOut();
    else notify(error instanceof api.ApiError ? error.message : "The server cannot be reached.", true);
    return undefined;
  }
}

// Signing in

const tabs = new BroadcastChannel("pinfold");
tabs.onmessage = ({ data }: MessageEvent<{ want?: true; token?: string }>) => {
  if (data.want && api.currentToken()) tabs.postMessage({ token: api.currentToken() });
  if (data.token && signedIn.value !== "in") {
    api.keepToken(data.token);
    void enter();
  }
};
const OTHER_TABS_MS = 250;

function codeInAddress(): string | null {
  const code = /[#&]code=([^&]+)/.exec(location.hash)?.[1];
  if (!code) return null;
  history.replaceState(null, "", `#/${route.value.session ?? ""}`);
  return decodeURIComponent(code);
}

export async function start(): Promise<void> {
  window.addEventListener("hashchange", onHash);
  const code = codeInAddress();
  if (code) return signIn(code);
  if (api.currentToken()) {
    // The start page waits for nothing; a token that is refused ends at signing in.
    if (!/^#\/s_/.test(location.hash)) signedIn.value = "in";
    return enter();
  }
  tabs.postMessage({ want: true });
  setTimeout(() => {
    if (signedIn.value === "checking") signedIn.value = "out";
  }, OTHER_TABS_MS);
}

/** With the code of an address, or with the token of API clients. */
export async function signIn(code: string): Promise<void> {
  const before = api.currentToken();
  try {
    await api.login(code);
  } catch (error) {
    if (!before) api.keepToken(code);
    if (await api.about().catch(() => null)) return enter();
    api.forgetToken();
    signedIn.value = "out";
    notify(error instanceof api.ApiError ? error.message : "The server cannot be reached.", true);
    return;
  }
  await enter();
}

function signOut(): void {
  api.forgetToken();
  closeSession();
  signedIn.value = "out";
}

async function enter(): Promise<void> {
  const info = await attempt(api.about());
  if (!info) {
    if (signedIn.value === "checking") signedIn.value = "out";
    return;
  }
  about.value = info;
  signedIn.value = "in";
  tabs.postMessage({ token: api.currentToken() });
  onHash();
  await refreshSessions();
}

// Sessions

let listing = 0;

export async function refreshSessions(): Promise<void> {
  const turn = ++listing;
  const found = await attempt(api.listSessions(search.value));
  if (found && turn === listing) sessions.value = found;
}

export function go(session: string | null, other: string | null = null): void {
  location.hash = session ? `#/${session}${other ? `/compare/${other}` : ""}` : "#/";
}

function onHash(): void {
  const code = codeInAddress();
  if (code) return void signIn(code);
  const [, session = null, , other = null] = /^#\/(s_\w+)(\/compare\/(s_\w+))?/.exec(location.hash) ?? [];
  const before = route.value.session;
  route.value = { session, other };
  sidebarOpen.value = false;
  if (session !== before || (session && view.value === null)) openSession(session);
}

let stop: () => void = () => undefined;

function closeSession(): void {
  stop();
  queue = [];
  view.value = null;
  moment.value = null;
  dialog.value = null;
}

function openSession(id: string | null): void {
  closeSession();
  if (!id || signedIn.value !== "in") return;
  const opened = newView(id);
  connection.value = "connecting";
  // The events up to now come at once, then the stream goes on from there.
  const begin = async () => {
    const events = await attempt(api.readEvents(id));
    if (route.value.session !== id) return;
    if (!events) return go(null);
    for (const event of events) apply(opened, event);
    view.value = opened;
    revision.value += 1;
    stop = follow(id, {
      seen: () => queue.reduce((last, event) => event.seq ?? last, opened.seq),
      receive: (received) => receive(opened, received),
      connection: (state) => {
        connection.value = state;
        if (state === "live" || state === "refused") void readStatus(id);
      },
    });
  };
  void begin();
}

async function readStatus(id: string): Promise<void> {
  const info = await attempt(api.getSession(id));
  if (info && route.value.session === id) status.value = info.status;
}

let queue: Event[] = [];
let scheduled = false;

/** Events are applied before a frame is drawn, all that came since the last one. */
function receive(opened: View, events: Event[]): void {
  queue.push(...events);
  if (scheduled) return;
  scheduled = true;
  const run = () => {
    scheduled = false;
    const batch = queue;
    queue = [];
    if (view.value !== opened) return;
    for (const event of batch) {
      apply(opened, event);
      announce(event);
    }
    revision.value += 1;
    if (batch.some((event) => ["TurnEnded", "SessionChanged", "UserSpoke"].includes(event.kind))) void refreshSessions();
    if (batch.some((event) => event.kind === "ActionFinished" || event.kind === "SessionRewound")) filesChanged.value += 1;
  };
  if (document.hidden) setTimeout(run, 100);
  else requestAnimationFrame(run);
}

function announce(event: Event): void {
  if (event.kind === "ApprovalRequested") {
    announcement.value = `Your decision is needed: ${event.reason}`;
    if (isNarrow()) panelOpen.value = sidebarOpen.value = false;
  }
  if (event.kind === "TurnEnded") announcement.value = "The answer is complete.";
  if (event.kind === "TurnFailed") announcement.value = `The turn failed: ${event.error}`;
  if (event.kind === "SessionRewound") announcement.value = event.again ? "Redone." : "Undone.";
}

// What the user does

export async function newSession(options: api.NewSession, prompt?: string): Promise<void> {
  const made = await attempt(api.createSession(options));
  if (!made) return;
  sessions.value = [made, ...sessions.value];
  go(made.id);
  if (prompt) await attempt(api.command(made.id, { kind: "Say", text: prompt }));
}

export async function say(text: string): Promise<boolean> {
  const id = route.value.session;
  if (!id) {
    await newSession({}, text);
    return true;
  }
  return (await attempt(api.command(id, { kind: "Say", text }))) !== undefined;
}

export async function execute(code: string): Promise<boolean> {
  const id = route.value.session;
  return id !== null && (await attempt(api.command(id, { kind: "Execute", code }))) !== undefined;
}

export function tell(kind: "Continue" | "Interrupt" | "Clear" | "Compact"): void {
  const id = route.value.session;
  if (id) void attempt(api.command(id, { kind }));
}

export async function undo(to?: number): Promise<void> {
  const id = route.value.session;
  if (!id) return;
  moment.value = null;
  await attempt(api.undo(id, to));
}

export async function redo(): Promise<void> {
  const id = route.value.session;
  if (!id) return;
  moment.value = null;
  await attempt(api.redo(id));
}

export async function branch(to: number): Promise<void> {
  const id = route.value.session;
  if (!id) return;
  const name = currentInfo.value?.title || "Session";
  notify("Creating the branch and copying variables.");
  const made = await attempt(api.forkSession(id, to, `${name} (from cell ${to})`));
  if (!made) return;
  await refreshSessions();
  go(made.id);
}

export async function configure(change: { title?: string; model?: string; mode?: Mode }): Promise<void> {
  const id = route.value.session;
  if (!id) return;
  const changed = await attempt(api.changeSession(id, change));
  if (!changed) return;
  status.value = changed.status;
  sessions.value = sessions.value.map((one) => (one.id === id ? changed : one));
}

export async function removeSession(id: string): Promise<void> {
  if ((await attempt(api.deleteSession(id))) === undefined) return;
  sessions.value = sessions.value.filter((one) => one.id !== id);
  if (route.value.session === id) go(null);
}

export async function upload(files: Iterable<File>, folder = ""): Promise<void> {
  const id = route.value.session;
  if (!id) return notify("Open a session first, then add files to it.", true);
  for (const file of files) {
    const path = folder ? `${folder}/${file.name}` : file.name;
    if (await attempt(api.uploadFile(id, path, file))) notify(`${file.name} was added to the workspace.`);
  }
  filesChanged.value += 1;
}

export function showMoment(cell: number | null): void {
  moment.value = cell;
  if (cell !== null) openPanel("timeline");
}

export function openPanel(which: Panel): void {
  panel.value = which;
  panelOpen.value = true;
}

/** Related by forks: the session it came from, those that came from it, and those with the same source. */
export function relatives(id: string): api.SessionInfo[] {
  const own = sessions.value.find((one) => one.id === id);
  return sessions.value.filter(
    (one) => one.id !== id && (one.source === id || one.id === own?.source || (own?.source && one.source === own.source)),
  );
}
