/** What opens above the page: a table, a file, a change, branches to compare, the shortcuts. */

import { useEffect, useRef } from "preact/hooks";
import { titleOf, type View } from "../state/view.ts";
import { branch, dialog, go, relatives, type Dialog } from "../store.ts";
import { ago } from "../text/format.ts";
import { ChangeView, FileView } from "./files.tsx";
import { Icon } from "./icons.tsx";
import { Empty, IconButton } from "./parts.tsx";
import { SHORTCUTS } from "./shortcuts.ts";
import { TableView } from "./table.tsx";

export function Dialogs({ view }: { view: View | null }) {
  const open = dialog.value;
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !box.current?.open) box.current?.showModal();
  }, [open]);
  if (!open) return null;
  const title = titleFor(open);
  return (
    <dialog
      ref={box}
      class={open.type === "table" ? "wide" : ""}
      aria-label={title}
      onClose={() => (dialog.value = null)}
      onClick={(event) => event.target === box.current && box.current?.close()}
    >
      <header>
        <h2>{title}</h2>
        <IconButton icon="close" label="Close" onClick={() => box.current?.close()} />
      </header>
      <div class="dialog-body" tabIndex={0}>{content(open, view)}</div>
    </dialog>
  );
}

function titleFor(open: Dialog): string {
  switch (open.type) {
    case "help":
      return "Keyboard shortcuts";
    case "table":
      return open.name;
    case "change":
      return open.cell ? `${open.change.path}, ${open.change.how} by cell ${open.cell}` : open.change.path;
    case "file":
      return open.path;
    case "branches":
      return "Compare two branches";
  }
}

function content(open: Dialog, view: View | null) {
  if (open.type === "help") return <Shortcuts />;
  if (!view) return null;
  switch (open.type) {
    case "table":
      return <TableView session={view.id} name={open.name} />;
    case "change":
      return <ChangeView session={view.id} change={open.change} />;
    case "file":
      return <FileView session={view.id} path={open.path} />;
    case "branches":
      return <Branches view={view} />;
  }
}

function Shortcuts() {
  return (
    <dl class="shortcuts">
      {SHORTCUTS.map(({ keys, what }) => (
        <div key={keys}>
          <dt>
            {keys.split("+").map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}

function Branches({ view }: { view: View }) {
  const others = relatives(view.id);
  const compareWith = (id: string) => {
    dialog.value = null;
    go(view.id, id);
  };
  return (
    <>
      {others.length === 0 && (
        <Empty>This session has no other branch yet. Choose a cell on the timeline and branch from there: the copy continues separately; this session stays as it is.</Empty>
      )}
      <ul class="files">
        {others.map((one) => (
          <li key={one.id}>
            <button type="button" class="file" onClick={() => compareWith(one.id)}>
              <Icon name="branch" />
              <span>{titleOf(one.title, "")}</span>
              <small>
                {ago(one.changed)}
              </small>
            </button>
          </li>
        ))}
      </ul>
      <div class="pane-actions">
        <button
          type="button"
          onClick={() => {
            dialog.value = null;
            void branch(view.head);
          }}
        >
          <Icon name="branch" /> Branch from now
        </button>
      </div>
    </>
  );
}
