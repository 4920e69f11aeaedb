/** Where the user writes: a question for the agent, or Python to run. Below it model, mode, context and cost. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Mode } from "../state/events.ts";
import { about, busy, configure, draft, execute, revision, say, status, tell, upload, view } from "../store.ts";
import { dollars, tokens } from "../text/format.ts";
import { scrollToEnd } from "./conversation.tsx";
import { Icon } from "./icons.tsx";
import { IconButton } from "./parts.tsx";

const MODES: Record<Mode, string> = {
  "read-only": "only reads",
  ask: "asks before changes",
  auto: "works in the sandbox",
  full: "asks for no approval",
};

/** The browser fits the field to its text; to measure it at each key costs two layouts. */
const GROWS = CSS.supports("field-sizing", "content");

export function focusComposer(): void {
  document.querySelector<HTMLTextAreaElement>("#composer")?.focus();
}

export function Composer({ placeholder }: { placeholder: string }) {
  const [code, setCode] = useState(false);
  const [sending, setSending] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const open = view.value !== null;
  useEffect(() => {
    const element = area.current;
    if (!element || GROWS) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [draft.value, code]);
  const submit = async () => {
    const text = draft.value.trim();
    if (!text || sending) return;
    setSending(true);
    scrollToEnd();
    draft.value = "";
    const taken = code && open ? await execute(text) : await say(text);
    if (!taken) draft.value = text;
    setSending(false);
    focusComposer();
  };
  return (
    <form
      class={`composer ${code ? "is-code" : ""}`}
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <textarea
        id="composer"
        ref={area}
        rows={1}
        aria-label={code ? "Python to run" : "Message to the agent"}
        placeholder={code ? "Python, run in this session" : placeholder}
        value={draft.value}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          const send = code ? event.key === "Enter" && (event.ctrlKey || event.shiftKey) : event.key === "Enter" && !event.shiftKey;
          if (!send || event.isComposing) return;
          event.preventDefault();
          void submit();
        }}
      />
      <div class="composer-row">
        {open && (
          <>
            <IconButton icon="upload" label="Add files to the workspace" onClick={() => files.current?.click()} />
            <input
              ref={files}
              type="file"
              multiple
              hidden
              aria-label="Files to add"
              onChange={(event) => {
                void upload(event.currentTarget.files ?? []);
                event.currentTarget.value = "";
              }}
            />
            <div class="switch" role="group" aria-label="What to send">
              <button type="button" aria-pressed={!code} onClick={() => setCode(false)}>
                Ask
              </button>
              <button type="button" aria-pressed={code} onClick={() => setCode(true)}>
                Run
              </button>
            </div>
            <Settings />
          </>
        )}
        <span class="grow" />
        {busy.value && (
          <button type="button" class="stop" aria-keyshortcuts="Escape" onClick={() => tell("Interrupt")}>
            <Icon name="stop" /> Stop
          </button>
        )}
        {(!busy.value || draft.value.trim()) && (
          <button type="submit" class="send" aria-label={code ? "Run" : "Send"} disabled={!draft.value.trim() || sending}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

function Settings() {
  revision.value;
  const now = view.value;
  const info = about.value;
  if (!now || !info) return null;
  const models = info.models.includes(now.model) ? info.models : [now.model, ...info.models];
  return (
    <>
      <select aria-label="Mode" title={MODES[now.mode]} value={now.mode} onChange={(event) => void configure({ mode: event.currentTarget.value as Mode })}>
        {info.modes.map((mode) => (
          <option key={mode} value={mode}>
            {mode}
          </option>
        ))}
      </select>
      <select aria-label="Model" class="model" value={now.model} onChange={(event) => void configure({ model: event.currentTarget.value })}>
        {models.map((model) => (
          <option key={model} value={model}>
            {shortName(model)}
          </option>
        ))}
      </select>
      <Gauge context={now.contextTokens} cost={now.cost} />
    </>
  );
}

function Gauge({ context, cost }: { context: number; cost: number | null }) {
  if (!context && cost === null) return null;
  const most = status.value?.context ?? 0;
  const parts = [context ? (most ? `${tokens(context)} of ${tokens(most)}` : `${tokens(context)} tokens`) : "", cost !== null ? dollars(cost) : ""];
  return (
    <span class="gauge" title="Context of the last request, and cost of this session">
      {most > 0 && <meter aria-label="Context in use" min={0} max={most} high={most * 0.8} value={context} />}
      {parts.filter(Boolean).join(" · ")}
    </span>
  );
}

function shortName(model: string): string {
  const [kind, ...rest] = model.split(":");
  const file = rest.join(":").split("/").pop();
  return file ? `${kind}: ${file}` : model;
}
