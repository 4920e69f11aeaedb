/** The panel at the side: timeline, variables, files, and what left this machine. */

import { useEffect, useState } from "preact/hooks";
import { listSent, type Sent } from "../api.ts";
import type { View } from "../state/view.ts";
import { attempt, filesChanged, panel, panelOpen, revision, type Panel } from "../store.ts";
import { bytes, number } from "../text/format.ts";
import { FilesPane } from "./files.tsx";
import { Empty, IconButton } from "./parts.tsx";
import { Timeline } from "./timeline.tsx";
import { VariablesPane } from "./variables.tsx";

const TABS: [Panel, string][] = [
  ["timeline", "Timeline"],
  ["variables", "Variables"],
  ["files", "Files"],
  ["sent", "Sent"],
];

export function SidePanel({ view }: { view: View }) {
  const now = panel.value;
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const place = TABS.findIndex(([name]) => name === now);
    panel.value = (TABS[(place + step + TABS.length) % TABS.length] ?? TABS[0]!)[0];
    document.querySelector<HTMLElement>(`#tab-${panel.value}`)?.focus();
  };
  return (
    <aside class="panel" aria-label="Session details">
      <div class="tabs">
        <div role="tablist" aria-label="Session details" onKeyDown={move}>
          {TABS.map(([name, label]) => (
            <button
              key={name}
              id={`tab-${name}`}
              type="button"
              role="tab"
              aria-selected={now === name}
              aria-controls="pane"
              tabIndex={now === name ? 0 : -1}
              onClick={() => (panel.value = name)}
            >
              {label}
            </button>
          ))}
        </div>
        <span class="grow" />
        <IconButton icon="close" label="Close the panel" onClick={() => (panelOpen.value = false)} />
      </div>
      <div class="pane" id="pane" role="tabpanel" aria-labelledby={`tab-${now}`} tabIndex={0}>
        {now === "timeline" && <Timeline view={view} />}
        {now === "variables" && <VariablesPane view={view} />}
        {now === "files" && <FilesPane view={view} />}
        {now === "sent" && <SentPane view={view} />}
      </div>
    </aside>
  );
}

function SentPane({ view }: { view: View }) {
  const [sent, setSent] = useState<Sent[] | null>(null);
  revision.value;
  const changed = filesChanged.value;
  useEffect(() => {
    let gone = false;
    void attempt(listSent(view.id)).then((found) => !gone && setSent(found ?? []));
    return () => {
      gone = true;
    };
  }, [view.id, changed]);
  if (!sent) return <Empty>Loading</Empty>;
  return (
    <>
      <h3>What left this machine</h3>
      {sent.length === 0 ? (
        <Empty>Nothing. Model, code and data are all on this machine.</Empty>
      ) : (
        <table class="data sent">
          <thead>
            <tr>
              <th scope="col">to</th>
              <th scope="col" class="number">
                times
              </th>
              <th scope="col" class="number">
                sent
              </th>
              <th scope="col" class="number">
                received
              </th>
            </tr>
          </thead>
          <tbody>
            {sent.map((one) => (
              <tr key={one.to}>
                <td>{one.to}</td>
                <td class="number">{number(one.times)}</td>
                <td class="number">{bytes(one.bytes_out)}</td>
                <td class="number">{bytes(one.bytes_back)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
