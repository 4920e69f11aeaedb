/** Requests to the server. Every one carries the token; answers are JSON or bytes; refusals become ApiError. */

import type { Event, Mode, Scope, Verdict } from "./state/events.ts";

export interface SessionInfo {
  id: string;
  title: string;
  workspace: string;
  began: string;
  changed: string;
  live: boolean;
  source: string | null;
  matches: string[];
  /** Of a session that is live, when it is asked for alone. */
  status: { context: number; no_model: string | null } | null;
}

export interface About {
  version: string;
  workspace: string;
  model: string;
  models: string[];
  modes: Mode[];
  examples: { title: string; prompt: string }[];
}

export interface FileEntry {
  name: string;
  type: "file" | "folder";
  size: number;
  changed: number;
}

export interface Variable {
  name: string;
  type: string;
  shape: string | null;
  size: number | null;
  cell: number | null;
}

export type TableCell = string | number | boolean | null;

export interface Column {
  name: string;
  type: string;
  missing: number | null;
  distinct: number | null;
  least: TableCell;
  greatest: TableCell;
  histogram: number[] | null;
}

export interface TablePage {
  name: string;
  type: string;
  columns: Column[];
  rows: TableCell[][];
  total: number;
  matching: number;
  offset: number;
}

export interface PageQuery {
  offset: number;
  limit: number;
  sort: string;
  descending: boolean;
  filter: string;
}

/** All that went to one host or provider. */
export interface Sent {
  to: string;
  times: number;
  bytes_out: number;
  bytes_back: number;
}

export class ApiError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

const KEY = "pinfold-token";
let token = sessionStorage.getItem(KEY) ?? "";

export function currentToken(): string {
  return token;
}

export function keepToken(value: string): void {
  token = value;
  sessionStorage.setItem(KEY, value);
}

export function forgetToken(): void {
  token = "";
  sessionStorage.removeItem(KEY);
}

export async function send(method: string, path: string, body?: BodyInit | object, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  let payload: BodyInit | null = null;
  if (body instanceof Blob) {
    payload = body;
    headers.set("Content-Type", "application/octet-stream");
  } else if (body !== undefined) {
    payload = JSON.stringify(body);
    headers.set("Content-Type", "application/json");
  }
  const response = await fetch(path, { ...init, method, headers, body: payload, cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  return response;
}

async function refusal(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    return body.error?.message ?? response.statusText;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}

async function json<T>(method: string, path: string, body?: object): Promise<T> {
  return (await send(method, path, body)).json() as Promise<T>;
}

function at(id: string, rest = ""): string {
  return `/api/sessions/${encodeURIComponent(id)}${rest}`;
}

export async function login(code: string): Promise<void> {
  const answer = await json<{ token: string }>("POST", "/api/login", { code });
  keepToken(answer.token);
}

export const about = () => json<About>("GET", "/api/about");

export async function listSessions(search: string): Promise<SessionInfo[]> {
  const words = search ? `search=${encodeURIComponent(search)}&` : "";
  return (await json<{ sessions: SessionInfo[] }>("GET", `/api/sessions?${words}limit=200`)).sessions;
}

export interface NewSession {
  title?: string;
  model?: string;
  mode?: Mode;
  demo?: boolean;
}

export const createSession = (options: NewSession) => json<SessionInfo>("POST", "/api/sessions", options);
export const getSession = (id: string) => json<SessionInfo>("GET", at(id));
export const changeSession = (id: string, change: { title?: string; model?: string; mode?: Mode }) =>
  json<SessionInfo>("PATCH", at(id), change);
export const deleteSession = (id: string) => send("DELETE", at(id));
export const forkSession = (id: string, to?: number, title?: string) =>
  json<SessionInfo>("POST", at(id, "/fork"), { ...(to === undefined ? {} : { to }), ...(title ? { title } : {}) });
export const undo = (id: string, to?: number) => json<Event>("POST", at(id, "/undo"), to === undefined ? {} : { to });
export const redo = (id: string) => json<Event>("POST", at(id, "/redo"), {});

export type Command =
  | { kind: "Say"; text: string }
  | { kind: "Execute"; code: string }
  | { kind: "Continue" }
  | { kind: "Interrupt" }
  | { kind: "Clear" }
  | { kind: "Compact" };

export const command = (id: string, body: Command) => json<{ id: string; seq: number }>("POST", at(id, "/commands"), body);

export const decide = (id: string, action: string, answer: { digest: string; verdict: Verdict; scope?: Scope; words?: string }) =>
  send("POST", at(id, `/approvals/${encodeURIComponent(action)}`), answer);

export async function readEvents(id: string, after = 0): Promise<Event[]> {
  const response = await send("GET", at(id, `/events?after=${after}`), undefined, { headers: { Accept: "application/json" } });
  return ((await response.json()) as { events: Event[] }).events;
}

export function openEvents(id: string, after: number, signal: AbortSignal): Promise<Response> {
  const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
  return send("GET", at(id, `/events?after=${after}`), undefined, { headers, signal });
}

export const listFiles = (id: string, path: string) =>
  json<{ path: string; entries: FileEntry[] }>("GET", at(id, `/files?path=${encodeURIComponent(path)}`));

export function filePath(id: string, path: string): string {
  return at(id, `/files/${path.split("/").map(encodeURIComponent).join("/")}`);
}

export const uploadFile = (id: string, path: string, file: Blob) => send("PUT", filePath(id, path), new Blob([file]));
export const readFile = async (id: string, path: string) => (await send("GET", filePath(id, path))).blob();
export const readBlob = async (id: string, blob: string) =>
  (await send("GET", at(id, `/blobs/${encodeURIComponent(blob)}`))).blob();

export const listVariables = async (id: string) =>
  (await json<{ variables: Variable[] }>("GET", at(id, "/variables"))).variables;

export function readTable(id: string, name: string, query: PageQuery): Promise<TablePage> {
  const words = new URLSearchParams({ offset: String(query.offset), limit: String(query.limit) });
  if (query.sort) {
    words.set("sort", query.sort);
    words.set("descending", String(query.descending));
  }
  if (query.filter) words.set("filter", query.filter);
  return json<TablePage>("GET", at(id, `/variables/${encodeURIComponent(name)}?${words}`));
}

export const listSent = async (id: string) => (await json<{ sent: Sent[] }>("GET", at(id, "/sent"))).sent;

/** Downloads with a ticket that works once, so that the browser itself writes the file. */
export async function download(path: string): Promise<void> {
  const named = decodeURIComponent(path.split("?")[0] ?? path);
  const { ticket } = await json<{ ticket: string }>("POST", "/api/tickets", { path: named });
  const link = document.createElement("a");
  link.href = `${path}${path.includes("?") ? "&" : "?"}ticket=${encodeURIComponent(ticket)}`;
  link.download = "";
  link.click();
}

export const exportPath = (id: string, format: string) => at(id, `/export?format=${format}`);
