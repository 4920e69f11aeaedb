/** The timeline: every cell a point. Choosing one shows variables and files as they were, and offers to go there. */

import { memo } from "preact/compat";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { FileChange } from "../state/events.ts";
import { momentOf, summaryOf, type Step, type View } from "../state/view.ts";
import { branch, busy, dialog, moment, redo, relatives, revision, showMoment, undo } from "../store.ts";
import { plural } from "../text/format.ts";
import { ChangeChip } from "./cell.tsx";
import { scrollToCell } from "./conversation.tsx";
import { Icon } from "./icons.tsx";
import { Empty } from "./parts.tsx";

export function Timeline({ view }: { view: View }) {
  revision.value;
  const chosen = moment.value;
  // Text that streams in changes nothing here: it has no number.
  const rows = useMemo(() => {
    const cells = [...view.cells.values()].sort((a, b) => (b.cell ?? 0) - (a.cell ?? 0));
    return cells.map((step) => (
      <li key={step.id}>
        <Row step={step} version={step.version} isHead={step.cell === view.head} chosen={chosen === step.cell} />
      </li>
    ));
  }, [view, view.seq, chosen]);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    if (chosen !== null) list.current?.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return (
    <>
      <div class="pane-actions">
        <button type="button" class="quiet" disabled={busy.value || view.head === 0} aria-keyshortcuts="Alt+Z" onClick={() => void undo()}>
          <Icon name="undo" /> Undo
        </button>
        <button type="button" class="quiet" disabled={busy.value || !view.canRedo} aria-keyshortcuts="Alt+Y" onClick={() => void redo()}>
          <Icon name="redo" /> Redo
        </button>
        <span class="grow" />
        <button type="button" class="quiet" onClick={() => (dialog.value = { type: "branches", cell: view.head })}>
          <Icon name="compare" /> Compare
          {relatives(view.id).length > 0 && <small>{relatives(view.id).length}</small>}
        </button>
      </div>
      {chosen !== null && <MomentView view={view} cell={chosen} />}
      {rows.length === 0 ? (
        <Empty>Every cell that runs becomes a point here. You can go back to any of them, or branch from it.</Empty>
      ) : (
        <ol class="timeline" ref={list} aria-label="Cells, the latest first">
          {rows}
          <li>
            <button
              type="button"
              class={`moment-row start ${chosen === 0 ? "chosen" : ""} ${view.head === 0 ? "head" : ""}`}
              aria-current={chosen === 0}
              onClick={() => showMoment(chosen === 0 ? null : 0)}
            >
              <span class="dot" aria-hidden="true" />
              <span class="moment-what">The start</span>
            </button>
          </li>
        </ol>
      )}
    </>
  );
}

interface RowProps {
  step: Step;
  /** The step is changed in place; this says that it was. */
  version: number;
  isHead: boolean;
  chosen: boolean;
}

const Row = memo(function Row({ step, isHead, chosen }: RowProps) {
  const cell = step.cell ?? 0;
  const failed = step.outcome !== "ok" && step.outcome !== "";
  const marks = [step.undone ? "undone" : "", failed ? "failed" : "", isHead ? "head" : "", chosen ? "chosen" : ""];
  const changed = [
    step.variables ? plural(step.variables.added.length + step.variables.changed.length + step.variables.removed.length, "variable") : "",
    step.files.length ? plural(step.files.length + step.moreFiles, "file") : "",
  ].filter(Boolean);
  return (
    <button
      type="button"
      class={`moment-row ${marks.filter(Boolean).join(" ")}`}
      aria-current={chosen}
      onClick={() => {
        showMoment(chosen ? null : cell);
        scrollToCell(cell);
      }}
    >
      <span class="dot" aria-hidden="true" />
      <span class="moment-number">{cell}</span>
      <span class="moment-what">
        <code>{summaryOf(step.action)}</code>
        <small>
          {[isHead ? "now" : "", step.undone ? "undone" : failed ? step.outcome : "", ...changed].filter(Boolean).join(" · ") || "no change"}
        </small>
      </span>
    </button>
  );
});

function MomentView({ view, cell }: { view: View; cell: number }) {
  revision.value;
  const then = momentOf(view, cell);
  const changes = [...then.files.values()].map(
    (file): [FileChange, number] => [{ path: file.path, how: file.how, before: null, after: file.blob }, file.cell],
  );
  const name = cell ? `After cell ${cell}` : "At the start";
  return (
    <section class="moment" aria-label={name}>
      <header>
        <h3>{name}</h3>
        <button type="button" class="fold" onClick={() => showMoment(null)}>
          Close
        </button>
      </header>
      <h4>Variables</h4>
      {then.variables.size ? (
        <ul class="then">
          {[...then.variables.values()].map((one) => (
            <li key={one.name}>
              <code>{one.name}</code> <span class="muted">{one.shape || `set by cell ${one.cell}`}</span>
            </li>
          ))}
        </ul>
      ) : (
        <p class="muted">None yet</p>
      )}
      <h4>Files changed so far</h4>
      {changes.length ? (
        <ul class="changes">
          {changes.map(([change, by]) => (
            <li key={change.path}>
              <ChangeChip change={ownChange(view, by, change)} cell={by} />
            </li>
          ))}
        </ul>
      ) : (
        <p class="muted">None</p>
      )}
      <div class="pane-actions">
        <button type="button" class="primary" disabled={busy.value || cell === view.head} onClick={() => void undo(cell)}>
          <Icon name="undo" /> {view.cells.get(cell)?.undone ? "Go to here" : "Undo to here"}
        </button>
        <button type="button" disabled={busy.value} onClick={() => void branch(cell)}>
          <Icon name="branch" /> Branch from here
        </button>
      </div>
    </section>
  );
}

/** The change as the cell recorded it, which also has what was there before. */
function ownChange(view: View, cell: number, change: FileChange): FileChange {
  return view.cells.get(cell)?.files.find((one) => one.path === change.path) ?? change;
}
