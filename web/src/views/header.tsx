/** Above a session: its title, the connection, exports and the side panel. */

import { useState } from "preact/hooks";
import { download, exportPath } from "../api.ts";
import { titleOf, type View } from "../state/view.ts";
import { attempt, branch, configure, connection, currentInfo, panelOpen, revision, sidebarOpen, tell } from "../store.ts";
import { IconButton, Menu } from "./parts.tsx";

const FORMATS = [
  ["html", "Web page", ".html"],
  ["md", "Markdown", ".md"],
  ["ipynb", "Notebook", ".ipynb"],
  ["jsonl", "Events", ".jsonl"],
  ["bundle", "Everything, to import elsewhere", ".pinfold"],
] as const;

const CONNECTION = {
  connecting: "Connecting",
  live: "",
  waiting: "No connection. Trying again; nothing is lost.",
  refused: "The server refused the connection. Reload the page.",
};

export function Header({ view }: { view: View | null }) {
  revision.value;
  return (
    <header class="topbar">
      <IconButton icon="menu" label="Sessions" class="only-narrow" onClick={() => (sidebarOpen.value = true)} />
      {view ? <Title view={view} /> : <span class="grow" />}
      {view && (
        <>
          <span class={`connection ${connection.value}`} role="status">
            {CONNECTION[connection.value]}
          </span>
          <Menu
            icon="save"
            label="Export"
            text="Export"
            entries={FORMATS.map(([format, label, hint]) => ({
              label,
              hint,
              run: () => void attempt(download(exportPath(view.id, format))),
            }))}
          />
          <Menu
            icon="more"
            label="Session actions"
            entries={[
              { label: "Branch from now", run: () => void branch(view.head) },
              { label: "Compact the conversation", run: () => tell("Compact") },
              { label: "Clear the conversation", hint: "variables and files stay", run: () => tell("Clear") },
            ]}
          />
          <IconButton icon="panel" label="Side panel" pressed={panelOpen.value} onClick={() => (panelOpen.value = !panelOpen.value)} />
        </>
      )}
    </header>
  );
}

function Title({ view }: { view: View }) {
  revision.value;
  const [editing, setEditing] = useState(false);
  const name = titleOf(view.title || (currentInfo.value?.title ?? ""), view.firstWords);
  if (!editing) {
    return (
      <h1 class="title">
        <button type="button" title="Rename" onClick={() => setEditing(true)}>
          {name}
        </button>
      </h1>
    );
  }
  const finish = (title: string, keep: boolean) => {
    setEditing(false);
    if (keep && title.trim() && title !== name) void configure({ title: title.trim() });
  };
  return (
    <input
      class="title-input"
      aria-label="Title"
      ref={(element) => element?.focus()}
      defaultValue={name}
      onBlur={(event) => finish(event.currentTarget.value, true)}
      onKeyDown={(event) => {
        if (event.key === "Enter" || event.key === "Escape") finish(event.currentTarget.value, event.key === "Enter");
        event.stopPropagation();
      }}
    />
  );
}
