/** The whole page. */

import { useEffect, useState } from "preact/hooks";
import { announcement, dismiss, notices, panelOpen, revision, route, sidebarOpen, signedIn, signIn, upload, view } from "../store.ts";
import { titleOf } from "../state/view.ts";
import { Approvals } from "./approvals.tsx";
import { Compare } from "./compare.tsx";
import { Composer, focusComposer } from "./composer.tsx";
import { Conversation } from "./conversation.tsx";
import { Dialogs } from "./dialogs.tsx";
import { Header } from "./header.tsx";
import { SidePanel } from "./panel.tsx";
import { Empty, IconButton } from "./parts.tsx";
import { onKey } from "./shortcuts.ts";
import { Sidebar } from "./sidebar.tsx";
import { Welcome } from "./welcome.tsx";

export function App() {
  if (signedIn.value === "checking") return <main class="alone" aria-busy="true" />;
  if (signedIn.value === "out") return <SignIn />;
  return <Page />;
}

function SignIn() {
  const [words, setWords] = useState("");
  return (
    <main class="alone">
      <form
        class="sign-in"
        onSubmit={(event) => {
          event.preventDefault();
          void signIn(/code=([^&\s]+)/.exec(words)?.[1] ?? words.trim());
        }}
      >
        <h1>Pinfold</h1>
        <p>
          Run <code>pinfold serve open</code> to open this page. The address that <code>pinfold serve</code> prints works once.
        </p>
        <label>
          Address, code or token
          <input type="password" value={words} autocomplete="off" onInput={(event) => setWords(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={!words.trim()}>
          Open
        </button>
      </form>
      <Notices />
    </main>
  );
}

function Page() {
  const [dropping, setDropping] = useState(false);
  const now = view.value;
  const { session, other } = route.value;
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => {
    if (now && window.innerWidth > 700) focusComposer();
  }, [now]);
  useEffect(() => {
    const name = now ? titleOf(now.title, now.firstWords) : "";
    document.title = now?.approvals.size ? `Your decision: ${name}` : name ? `${name} · Pinfold` : "Pinfold";
  }, [now, revision.value]);
  const onDrag = (event: DragEvent) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (event.type === "dragleave" && event.relatedTarget) return;
    setDropping(event.type === "dragover");
    if (event.type === "drop") void upload(event.dataTransfer.files);
  };
  const showPanel = now !== null && other === null && panelOpen.value;
  return (
    <div class={`page ${showPanel ? "with-panel" : ""}`} onDragOver={onDrag} onDragLeave={onDrag} onDrop={onDrag}>
      <a class="skip" href="#composer" onClick={(event) => (event.preventDefault(), focusComposer())}>
        Skip to the message
      </a>
      <Sidebar />
      {sidebarOpen.value && <div class="shade" onClick={() => (sidebarOpen.value = false)} />}
      <main class="main">
        <Header view={now} />
        {!session ? (
          <Welcome />
        ) : !now ? (
          <Empty>Loading</Empty>
        ) : other ? (
          <Compare left={now} other={other} />
        ) : (
          <>
            <Conversation view={now} key={now.id} />
            <div class="dock">
              <Approvals view={now} />
              <Composer placeholder="Ask, or say what to do next" />
            </div>
          </>
        )}
      </main>
      {showPanel && <SidePanel view={now} />}
      <Dialogs view={now} />
      <Notices />
      <p class="unseen" aria-live="polite">
        {announcement.value}
      </p>
      {dropping && <div class="drop">Drop to add to the workspace</div>}
    </div>
  );
}

function Notices() {
  return (
    <div class="notices" role="status">
      {notices.value.map((one) => (
        <p key={one.id} class={one.bad ? "bad" : ""}>
          {one.text}
          <IconButton icon="close" label="Dismiss" onClick={() => dismiss(one.id)} />
        </p>
      ))}
    </div>
  );
}
