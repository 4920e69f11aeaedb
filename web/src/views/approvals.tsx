/** What waits for the user's decision. Stays above the composer, with the exact bytes the decision is about. */

import { useState } from "preact/hooks";
import { decide } from "../api.ts";
import type { EventOf, Scope, Verdict } from "../state/events.ts";
import type { View } from "../state/view.ts";
import { detailOf, summaryOf } from "../state/view.ts";
import { attempt, revision } from "../store.ts";
import { showHidden } from "../text/format.ts";

type Request = EventOf<"ApprovalRequested">;

export function Approvals({ view }: { view: View }) {
  revision.value;
  const waiting = [...view.approvals.values()];
  const first = waiting[0];
  if (!first) return null;
  return (
    <section class="approval" aria-label={first.question ? "A question for you" : "Approval needed"}>
      {first.question ? <Question view={view} request={first} key={first.id} /> : <Decision view={view} request={first} key={first.id} />}
      {waiting.length > 1 && <p class="muted">{waiting.length - 1} more after this one</p>}
    </section>
  );
}

async function answer(view: View, request: Request, verdict: Verdict, scope: Scope, words = ""): Promise<void> {
  await attempt(decide(view.id, request.id, { digest: request.digest, verdict, scope, ...(words ? { words } : {}) }));
}

/** For shortcuts: decides what is on top, if it is not a question. */
export function decideFirst(view: View, verdict: Verdict, scope: Scope): void {
  const first = [...view.approvals.values()][0];
  if (!first || first.question || (scope === "session" && !first.pattern)) return;
  void answer(view, first, verdict, scope);
}

function exactBytes(view: View, request: Request): string {
  if (request.shows) return request.shows;
  const action = view.steps.get(request.id)?.action;
  if (!action) return "";
  return action.type === "cell" ? action.code : (JSON.stringify(action.args, null, 2) ?? "");
}

function Decision({ view, request }: { view: View; request: Request }) {
  const [words, setWords] = useState("");
  const action = view.steps.get(request.id)?.action;
  const text = showHidden(exactBytes(view, request)).replace(/\n$/, "");
  return (
    <>
      <h2>{showHidden(request.reason)}</h2>
      {action?.type === "tool" && detailOf(action.args) && <p class="approval-what">{showHidden(summaryOf(action))}</p>}
      {text && (
        <pre class="exact" tabIndex={0} role="region" aria-label="Exact content">
          {text.split("\n").map((line, place) => (
            <span key={place} class={/^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : ""}>
              {`${line}\n`}
            </span>
          ))}
        </pre>
      )}
      <div class="approval-row">
        <button type="button" class="primary" aria-keyshortcuts="Alt+A" onClick={() => void answer(view, request, "allow", "once")}>
          Allow once
        </button>
        {request.pattern && (
          <button type="button" title={request.pattern} aria-keyshortcuts="Alt+S" onClick={() => void answer(view, request, "allow", "session")}>
            Allow in this session
          </button>
        )}
        {request.stored && (
          <button type="button" title={`${request.pattern} (${request.stored})`} onClick={() => void answer(view, request, "allow", "always")}>
            Always allow
          </button>
        )}
        <span class="grow" />
        <input aria-label="Why not, for the agent" placeholder="Why not (optional)" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        <button type="button" class="deny" aria-keyshortcuts="Alt+X" onClick={() => void answer(view, request, "deny", "once", words)}>
          Deny
        </button>
      </div>
      {request.pattern && (
        <p class="muted">
          “In this session” covers <code>{showHidden(request.pattern)}</code>
        </p>
      )}
    </>
  );
}

function Question({ view, request }: { view: View; request: Request }) {
  const [words, setWords] = useState("");
  const reply = (text: string) => void answer(view, request, "allow", "once", text);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (words.trim()) reply(words.trim());
      }}
    >
      <h2>{showHidden(request.shows || request.reason)}</h2>
      {request.options.length > 0 && (
        <div class="approval-row">
          {request.options.map((option, place) => (
            <button key={place} type="button" onClick={() => reply(option)}>
              {option}
            </button>
          ))}
        </div>
      )}
      <div class="approval-row">
        <input class="grow" aria-label="Your answer" placeholder="Your answer" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={!words.trim()}>
          Answer
        </button>
        <button type="button" class="deny" onClick={() => void answer(view, request, "deny", "once")}>
          Do not answer
        </button>
      </div>
    </form>
  );
}
