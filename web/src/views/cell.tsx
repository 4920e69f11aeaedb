/** A cell or a call of a tool: its code, what it printed and showed, what it changed. */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import type { FileChange } from "../state/events.ts";
import { detailOf, summaryOf, type Stage, type Step } from "../state/view.ts";
import { dialog, moment, showMoment } from "../store.ts";
import { plural, seconds, showHidden } from "../text/format.ts";
import { escapeHtml, highlight } from "../text/highlight.ts";
import { DisplayView } from "./displays.tsx";
import { Icon } from "./icons.tsx";
import { Output } from "./output.tsx";

const CODE_LINES = 30;
const CODE_HEAD = 16;

interface Props {
  session: string;
  step: Step;
  version: number;
  /** Without its point on the timeline, for a comparison. */
  plain?: boolean;
}

export const StepView = memo(function StepView({ session, step, plain }: Props) {
  const [open, setOpen] = useState(false);
  const failed = ["error", "timeout", "killed"].includes(step.outcome);
  const folded = step.undone && !open;
  const name = step.cell !== null ? `Cell ${step.cell}` : step.action.type === "cell" ? "Cell" : step.action.tool;
  return (
    <section class={`step ${step.undone ? "undone" : ""} ${failed ? "failed" : ""}`} data-cell={step.cell ?? undefined} aria-label={name}>
      {!plain && <Point cell={step.cell} stage={step.stage} failed={failed} />}
      <header class="step-head">
        <span class="step-name">{name}</span>
        <span class="step-what">{step.action.type === "tool" && step.cell !== null ? step.action.tool : step.by === "user" ? "run by you" : ""}</span>
        <span class="step-state">{describeState(step)}</span>
        {step.undone && (
          <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide" : "Show"}
          </button>
        )}
      </header>
      {folded ? (
        <p class="step-summary">{summaryOf(step.action)}</p>
      ) : (
        <>
          <Code step={step} />
          <Results session={session} step={step} />
        </>
      )}
    </section>
  );
}, same);

function same(before: Props, after: Props): boolean {
  return before.step === after.step && before.version === after.version;
}

function describeState(step: Step): string {
  if (step.undone) return "undone";
  if (step.stage === "running") return "running";
  if (step.stage === "asking") return "waiting for you";
  if (step.stage === "proposed") return "";
  if (step.stage === "denied") return "denied";
  const how = step.outcome === "ok" ? "" : step.outcome.replace("_", " ");
  return [how, seconds(step.duration)].filter(Boolean).join(" · ");
}

function Point({ cell, stage, failed }: { cell: number | null; stage: Stage; failed: boolean }) {
  const state = stage === "running" || stage === "asking" ? stage : failed ? "failed" : "";
  if (cell === null) return <span class={`point small ${state}`} aria-hidden="true" />;
  const chosen = moment.value === cell;
  return (
    <button
      type="button"
      class={`point ${state} ${chosen ? "chosen" : ""}`}
      aria-label={`Show variables and files after cell ${cell}`}
      aria-pressed={chosen}
      title={`Variables and files after cell ${cell}`}
      onClick={() => showMoment(chosen ? null : cell)}
    />
  );
}

function Code({ step }: { step: Step }) {
  const [open, setOpen] = useState(false);
  const action = step.action;
  if (action.type === "tool") {
    const text = JSON.stringify(action.args, null, 2) ?? "";
    return (
      <details class="arguments">
        <summary>{detailOf(action.args) || "Arguments"}</summary>
        <pre class="code" tabIndex={0} dangerouslySetInnerHTML={{ __html: escapeHtml(text) }} />
      </details>
    );
  }
  const lines = showHidden(action.code).replace(/\n+$/, "").split("\n");
  const long = lines.length > CODE_LINES && !open;
  const html = highlight((long ? lines.slice(0, CODE_HEAD) : lines).join("\n"));
  return (
    <>
      <pre class="code" tabIndex={0} dangerouslySetInnerHTML={{ __html: html }} />
      {lines.length > CODE_LINES && (
        <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Show less code" : `Show all ${plural(lines.length, "line")} of code`}
        </button>
      )}
    </>
  );
}

function Results({ session, step }: { session: string; step: Step }) {
  const live = step.stage === "running";
  const valueIsShown = step.value !== null && step.displays.some((one) => "text/html" in one.mime || "image/svg+xml" in one.mime);
  return (
    <>
      <Output text={step.stdout} live={live} whole={step.wholeOutput} />
      <Output text={step.stderr} kind="stderr" live={live} />
      {step.calls.map((call) => (
        <Call key={call.id} call={call} />
      ))}
      {step.displays.map((display, place) => (
        <DisplayView key={place} session={session} display={display} label={`Cell ${step.cell ?? ""} display ${place + 1}`} />
      ))}
      {step.value !== null && !valueIsShown && <Output text={step.value} kind="value" />}
      {step.error && <Output text={step.error} kind="error" />}
      {step.stage === "denied" && step.reason && <p class="step-note">{step.reason}</p>}
      {step.notices.map((notice, place) => (
        <p class="step-note" key={place}>
          {notice}
        </p>
      ))}
      <Changes step={step} />
    </>
  );
}

function Call({ call }: { call: Step }) {
  const outcome = call.stage === "asking" ? "waiting for you" : call.outcome.replace("_", " ") || call.stage;
  return (
    <details class="arguments">
      <summary>
        {summaryOf(call.action)} <small>{outcome === "ok" ? seconds(call.duration) : outcome}</small>
      </summary>
      <pre class="code" tabIndex={0}>
        {call.action.type === "tool" ? JSON.stringify(call.action.args, null, 2) : call.action.code}
      </pre>
      <Output text={[call.stdout, call.error ?? call.reason].filter(Boolean).join("\n")} />
    </details>
  );
}

function Changes({ step }: { step: Step }) {
  const table = tableShown(step);
  if (!step.files.length && !table) return null;
  return (
    <ul class="changes" aria-label="What it changed">
      {table && (
        <li>
          <button type="button" class="chip" onClick={() => (dialog.value = { type: "table", name: table })}>
            <Icon name="table" /> Explore {table}
          </button>
        </li>
      )}
      {step.files.map((change) => (
        <li key={change.path}>
          <ChangeChip change={change} cell={step.cell} />
        </li>
      ))}
      {step.moreFiles > 0 && <li class="muted">and {plural(step.moreFiles, "more file")}</li>}
    </ul>
  );
}

export function ChangeChip({ change, cell }: { change: FileChange; cell: number | null }) {
  const mark = change.how === "added" ? "+" : change.how === "removed" ? "−" : "±";
  const name = `${change.path}, ${change.how}${cell ? ` by cell ${cell}` : ""}: show the difference`;
  return (
    <button type="button" class={`chip ${change.how}`} aria-label={name} title={name} onClick={() => (dialog.value = { type: "change", change, cell })}>
      <b aria-hidden="true">{mark}</b> {change.path}
    </button>
  );
}

/** The variable that the last line names, if it is a table. */
function tableShown(step: Step): string | null {
  if (step.action.type !== "cell" || step.undone || !step.displays.some((one) => "text/html" in one.mime)) return null;
  const last = step.action.code.trimEnd().split("\n").pop() ?? "";
  return /^([A-Za-z_]\w*)(?:\.(?:head|tail|sample)\(.*\))?$/.exec(last)?.[1] ?? null;
}
