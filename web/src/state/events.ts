/** The events of a session as `pinfold run --json` prints them; see src/pinfold/events/event_types.py. */

export type Mode = "read-only" | "ask" | "auto" | "full";
export type Scope = "once" | "session" | "always";
export type Verdict = "allow" | "deny";

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cached_tokens?: number;
}

export interface Display {
  mime: Record<string, string>;
}

export interface FileChange {
  path: string;
  how: "added" | "changed" | "removed";
  before: string | null;
  after: string | null;
}

export interface Changed {
  added: string[];
  changed: string[];
  removed: string[];
  shapes: [string, string][];
}

export interface PlanTask {
  text: string;
  status: "todo" | "doing" | "done" | "dropped";
}

export interface Plan {
  state: string;
  goal: string;
  tasks: PlanTask[];
}

export interface Sent {
  to: string;
  out: number;
  back: number;
}

export type Action =
  | { type: "cell"; code: string }
  | { type: "tool"; tool: string; args: unknown };

interface Head {
  seq?: number;
  session?: string;
  at?: string;
}

interface Finished {
  kind: "ActionFinished";
  id: string;
  outcome: string;
  observation: string;
  value: string | null;
  error: string | null;
  blobs: string[];
  displays: Display[];
  variables: Changed | null;
  files: FileChange[];
  more_files: number;
  rolled_back: boolean;
  notices: string[];
  sent: Sent[];
  usage: Usage | null;
  cost: number | null;
  duration_s: number;
}

type Body =
  | { kind: "SessionOpened"; workspace: string; model: string; mode: Mode; lost: string[] }
  | { kind: "SessionChanged"; title: string; mode: Mode | null; model: string; plan: Plan | null }
  | {
      kind: "SessionRewound";
      to: number;
      what: "all" | "variables" | "files" | "chat";
      undone: number[];
      redone: number[];
      effects: string[];
      notices: string[];
      forgotten: string[];
      recalled: string[];
      again: boolean;
    }
  | { kind: "SessionForked"; from: string; last: number }
  | { kind: "ContextCompacted"; summary: string; cause: "clear" | "window" | "asked"; before: number; after: number }
  | { kind: "Noticed"; text: string }
  | { kind: "Checkpointed"; number: number; message: string; restored: number | null }
  | { kind: "UserSpoke"; turn: string; text: string; images: { mime: string; blob: string }[] }
  | { kind: "ModelCalled"; turn: string; model: string; attempt: number; size: number; to: string }
  | {
      kind: "ModelReplied";
      turn: string;
      model: string;
      text: string;
      reasoning: string;
      in_text: boolean;
      unreadable: boolean;
      usage: Usage;
      cost: number | null;
      actions: { id: string; tool: string; args: unknown }[];
    }
  | { kind: "ModelFailed"; turn: string; model: string; error: string; retry_in_s: number | null; instead: string }
  | {
      kind: "ActionProposed";
      id: string;
      action: Action;
      by: "model" | "user" | "cell";
      turn: string | null;
      parent: string | null;
    }
  | { kind: "ActionAllowed"; id: string; rule: string }
  | { kind: "ActionDenied"; id: string; reason: string }
  | {
      kind: "ApprovalRequested";
      id: string;
      reason: string;
      digest: string;
      shows: string;
      pattern: string;
      stored: string;
      question: boolean;
      options: string[];
    }
  | { kind: "ApprovalDecided"; id: string; verdict: Verdict; scope: Scope; by: string; words: string }
  | { kind: "ActionStarted"; id: string; cell: number | null; instead_of: number | null }
  | Finished
  | { kind: "ApproachChanged"; turn: string; error: string; times: number; started_over: boolean; verdict: string; cost: number | null }
  | { kind: "TurnEnded"; turn: string; text: string; usage: Usage; cost: number | null; without: string[] }
  | { kind: "TurnInterrupted"; turn: string; reason: string }
  | { kind: "TurnFailed"; turn: string; error: string; temporary: boolean; at_limit: boolean }
  | { kind: "TextDelta"; turn: string; text: string; reasoning: boolean }
  | { kind: "OutputDelta"; id: string; stream: "stdout" | "stderr"; text: string };

export type Event = Head & Body;
export type EventOf<K extends Event["kind"]> = Extract<Event, { kind: K }>;
