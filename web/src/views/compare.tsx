/** Two branches side by side: what they share, what each did on its own, and how variables and files differ in the end. */

import { useEffect, useState } from "preact/hooks";
import { readEvents } from "../api.ts";
import type { Event } from "../state/events.ts";
import { apply } from "../state/fold.ts";
import { currentPath, newView, titleOf, type FileThen, type Item, type Step, type View } from "../state/view.ts";
import { attempt, go, revision } from "../store.ts";
import { diffLines, type DiffLine } from "../text/diff.ts";
import { plural } from "../text/format.ts";
import { renderMarkdown } from "../text/markdown.ts";
import { StepView } from "./cell.tsx";
import { DiffView, readTexts } from "./files.tsx";
import { Empty, IconButton } from "./parts.tsx";

export function Compare({ left, other }: { left: View; other: string }) {
  revision.value;
  const [right, setRight] = useState<View | null>(null);
  useEffect(() => {
    void attempt(readEvents(other)).then((events) => events && setRight(foldAll(other, events)));
  }, [other, left.id]);
  if (!right) return <Empty>Loading the other branch</Empty>;
  const [a, b] = [currentPath(left), currentPath(right)];
  let shared = 0;
  while (shared < a.length && shared < b.length && sameStep(a[shared], b[shared])) shared += 1;
  return (
    <section class="compare" aria-label="Comparison" tabIndex={0}>
      <header class="compare-head">
        <p>{shared ? `Both share the first ${plural(shared, "cell")}.` : "They share no cells."}</p>
        <IconButton icon="close" label="Close the comparison" onClick={() => go(left.id)} />
      </header>
      <div class="compare-columns">
        <Branch view={left} steps={a.slice(shared)} last={a[shared - 1]} />
        <Branch view={right} steps={b.slice(shared)} last={b[shared - 1]} />
      </div>
      <VariableDifferences left={left} right={right} />
      <FileDifferences left={left} right={right} />
    </section>
  );
}

function foldAll(id: string, events: Event[]): View {
  const view = newView(id);
  for (const event of events) apply(view, event);
  return view;
}

function sameStep(a: Step | undefined, b: Step | undefined): boolean {
  return a !== undefined && b !== undefined && a.id === b.id;
}

function Branch({ view, steps, last }: { view: View; steps: Step[]; last: Step | undefined }) {
  const answer = lastAnswer(last ? view.items.slice(view.items.indexOf(last) + 1) : view.items);
  return (
    <section class="branch" aria-label={titleOf(view.title, view.firstWords)}>
      <h2>
        <a href={`#/${view.id}`}>{titleOf(view.title, view.firstWords)}</a>
      </h2>
      {steps.length === 0 && <Empty>No cells of its own</Empty>}
      {steps.map((step) => (
        <StepView key={step.id} session={view.id} step={step} version={step.version} plain />
      ))}
      {answer && <article class="prose" dangerouslySetInnerHTML={{ __html: renderMarkdown(answer) }} />}
    </section>
  );
}

function lastAnswer(items: Item[]): string {
  const last = items.findLast((item) => item.type === "text" && !item.forgotten);
  return last?.type === "text" ? last.text : "";
}

function VariableDifferences({ left, right }: { left: View; right: View }) {
  const a = left.now.variables;
  const b = right.now.variables;
  const names = [...new Set([...a.keys(), ...b.keys()])].sort();
  const describe = (one: { shape: string; cell: number } | undefined) => (one ? one.shape || `set by cell ${one.cell}` : "not defined");
  const different = names.filter((name) => describe(a.get(name)) !== describe(b.get(name)));
  return (
    <section class="differences">
      <h2>Variables</h2>
      {different.length === 0 ? (
        <p class="muted">{names.length ? `The same ${plural(names.length, "variable")} in both` : "No variables in either"}</p>
      ) : (
        <div class="table-box" tabIndex={0} role="region" aria-label="Variables that differ">
          <table class="data">
            <thead>
              <tr>
                <th scope="col">name</th>
                <th scope="col">{titleOf(left.title, left.firstWords)}</th>
                <th scope="col">{titleOf(right.title, right.firstWords)}</th>
              </tr>
            </thead>
            <tbody>
              {different.map((name) => (
                <tr key={name}>
                  <td>
                    <code>{name}</code>
                  </td>
                  <td>{describe(a.get(name))}</td>
                  <td>{describe(b.get(name))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function FileDifferences({ left, right }: { left: View; right: View }) {
  const a = left.now.files;
  const b = right.now.files;
  const paths = [...new Set([...a.keys(), ...b.keys()])].sort().filter((path) => !sameFile(a.get(path), b.get(path)));
  return (
    <section class="differences">
      <h2>Files</h2>
      {paths.length === 0 && <p class="muted">No difference in files that cells changed</p>}
      {paths.map((path) => (
        <FileDifference key={path} path={path} left={[left, a.get(path)]} right={[right, b.get(path)]} />
      ))}
    </section>
  );
}

function sameFile(a: FileThen | undefined, b: FileThen | undefined): boolean {
  return a !== undefined && b !== undefined && a.blob === b.blob && (a.how === "removed") === (b.how === "removed");
}

function FileDifference({ path, left, right }: { path: string; left: [View, FileThen | undefined]; right: [View, FileThen | undefined] }) {
  const [lines, setLines] = useState<DiffLine[] | null>(null);
  const [[a, before], [b, after]] = [left, right];
  useEffect(() => {
    const load = async () => {
      const [was] = await readTexts(a.id, before?.blob ?? null, null);
      const [is] = await readTexts(b.id, after?.blob ?? null, null);
      setLines(diffLines(was, is));
    };
    void attempt(load());
  }, [before?.blob, after?.blob]);
  const state = (file: FileThen | undefined) => (file ? file.how : "unchanged");
  return (
    <details open>
      <summary>
        <code>{path}</code>{" "}
        <span class="muted">
          {state(before)} on the left, {state(after)} on the right
        </span>
      </summary>
      {lines && lines.length > 0 && <DiffView lines={lines} />}
    </details>
  );
}
