/** The sessions, the latest first, with search over what was said and run in them. */

import { useEffect } from "preact/hooks";
import type { SessionInfo } from "../api.ts";
import { about, dialog, go, refreshSessions, removeSession, route, search, sessions, sidebarOpen, theme, type Theme } from "../store.ts";
import { ago, baseName } from "../text/format.ts";
import { titleOf } from "../state/view.ts";
import { Icon } from "./icons.tsx";
import { Empty, IconButton } from "./parts.tsx";

const TYPING_MS = 200;
const NEXT_THEME: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function Sidebar() {
  useEffect(() => {
    const timer = setTimeout(() => void refreshSessions(), TYPING_MS);
    return () => clearTimeout(timer);
  }, [search.value]);
  return (
    <nav class={`sidebar ${sidebarOpen.value ? "open" : ""}`} aria-label="Sessions">
      <div class="sidebar-head">
        <a class="brand" href="#/" aria-label="Pinfold, start page">
          <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
            <path d="M3 4v12M8 4v12M12 4v12M17 4v12M2 8h16M2 13h16" />
          </svg>
          Pinfold
        </a>
        <IconButton icon="plus" label="New session" onClick={() => go(null)} />
        <IconButton icon="close" label="Close the list" class="only-narrow" onClick={() => (sidebarOpen.value = false)} />
      </div>
      <label class="search">
        <Icon name="search" />
        <input
          id="search"
          type="search"
          placeholder="Search sessions"
          aria-label="Search sessions"
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
        />
      </label>
      <ul class="sessions">
        {sessions.value.map((info) => (
          <SessionRow key={info.id} info={info} />
        ))}
      </ul>
      {sessions.value.length === 0 && <Empty>{search.value ? "Nothing found" : "No sessions yet"}</Empty>}
      <footer class="sidebar-foot">
        <span class="muted" title={about.value?.workspace}>
          {baseName(about.value?.workspace ?? "")}
        </span>
        <span class="grow" />
        <IconButton
          icon={theme.value === "dark" ? "moon" : "sun"}
          label={`Colours: ${theme.value}. Change to ${NEXT_THEME[theme.value]}`}
          onClick={() => (theme.value = NEXT_THEME[theme.value])}
        />
        <IconButton icon="help" label="Keyboard shortcuts" onClick={() => (dialog.value = { type: "help" })} />
      </footer>
    </nav>
  );
}

function SessionRow({ info }: { info: SessionInfo }) {
  const name = titleOf(info.title, "");
  const here = route.value.session === info.id;
  const remove = () => {
    if (confirm(`Remove “${name}” with its history? This cannot be undone.`)) void removeSession(info.id);
  };
  return (
    <li class={`session ${here ? "here" : ""}`}>
      <a href={`#/${info.id}`} aria-current={here ? "page" : undefined}>
        <span class="session-title">{name}</span>
        <span class="session-facts">
          {info.source && <Icon name="branch" />}
          {ago(info.changed)} · {baseName(info.workspace)}
        </span>
        {info.matches?.[0] && <span class="session-match">{info.matches[0]}</span>}
      </a>
      <IconButton icon="close" label={`Remove ${name}`} onClick={remove} />
    </li>
  );
}
