/** The conversation: what was said, run and shown. Only the last part is in the page until one scrolls up. */

import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Plan } from "../state/events.ts";
import type { EndItem, Item, NoteItem, TextItem, UserItem } from "../state/view.ts";
import { summaryOf, type View } from "../state/view.ts";
import { busy, revision, tell } from "../store.ts";
import { dollars, endOfParagraphs, seconds, tokens } from "../text/format.ts";
import { renderMarkdown } from "../text/markdown.ts";
import { StepView } from "./cell.tsx";
import { Picture } from "./displays.tsx";

const WINDOW = 80;
const NEAR_EDGE = 600;
const NEAR_END = 80;
/** Pixels from the end within which new text keeps the end in view. */

const EVENT = "pinfold-show-cell";

/** Scrolls to a cell, wherever it is. */
export function scrollToCell(cell: number): void {
  window.dispatchEvent(new CustomEvent(EVENT, { detail: cell }));
}

/** Follows the end again, wherever one is. */
export function scrollToEnd(): void {
  window.dispatchEvent(new CustomEvent(EVENT, { detail: null }));
}

export function Conversation({ view }: { view: View }) {
  revision.value;
  const box = useRef<HTMLElement>(null);
  /** The first item in the page; null: the last ones are, and the end is kept in view. */
  const [start, setStart] = useState<number | null>(null);
  const [atEnd, setAtEnd] = useState(true);
  const [target, setTarget] = useState<{ cell: number } | null>(null);
  const lastTop = useRef(0);
  const anchor = useRef<{ element: Element; top: number } | null>(null);
  const count = view.items.length;
  const first = start ?? Math.max(0, count - WINDOW);
  const last = start === null ? count : Math.min(count, start + WINDOW);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const { current } = anchor;
    anchor.current = null;
    if (current) element.scrollTop += current.element.getBoundingClientRect().top - current.top;
  });
  const follows = atEnd && last === count;
  useLayoutEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follows, start]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    // Text that streams in, a picture that was loaded, an approval that takes room from it.
    const observer = new ResizeObserver(() => {
      if (element.dataset["end"] === "true") element.scrollTop = element.scrollHeight;
    });
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => observer.disconnect();
  }, [view]);
  useEffect(() => {
    const show = (event: globalThis.Event) => {
      const cell = (event as CustomEvent<number | null>).detail;
      if (cell === null) {
        setStart(null);
        return setAtEnd(true);
      }
      const place = view.items.findIndex((item) => item.type === "step" && item.cell === cell);
      if (place < 0) return;
      setAtEnd(false);
      setStart(Math.max(0, place - WINDOW / 2));
      setTarget({ cell });
    };
    window.addEventListener(EVENT, show);
    return () => window.removeEventListener(EVENT, show);
  }, [view]);
  useLayoutEffect(() => {
    if (!target) return;
    const show = () => box.current?.querySelector(`[data-cell="${target.cell}"]`)?.scrollIntoView({ block: "center" });
    show();
    // What comes into view now takes its real height first.
    requestAnimationFrame(() => requestAnimationFrame(show));
  }, [target]);

  /** Moves the window over the items; what is on the screen stays where it is. */
  const move = (to: number) => {
    const element = box.current;
    if (!element) return;
    const edge = element.getBoundingClientRect().top;
    const seen = [...(element.firstElementChild?.children ?? [])].find((child) => child.getBoundingClientRect().bottom > edge + 1);
    anchor.current = seen ? { element: seen, top: seen.getBoundingClientRect().top } : null;
    setStart(to + WINDOW >= count ? (atEnd ? null : Math.max(0, count - WINDOW)) : Math.max(0, to));
  };
  const onScroll = () => {
    const element = box.current;
    if (!element) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    // Growing content also moves the end away; only going up is the user's.
    if (below < NEAR_END && last === count) setAtEnd(true);
    else if (element.scrollTop < lastTop.current) setAtEnd(false);
    const isUp = element.scrollTop < lastTop.current;
    lastTop.current = element.scrollTop;
    if (isUp && element.scrollTop < NEAR_EDGE && first > 0) move(first - WINDOW / 2);
    else if (!isUp && below < NEAR_EDGE && last < count) move(first + WINDOW / 2);
  };
  return (
    <section class="conversation" ref={box} data-end={follows} onScroll={onScroll} aria-label="Conversation" tabIndex={0}>
      <div class="column">
        {first > 0 && (
          <button type="button" class="fold" onClick={() => move(first - WINDOW / 2)}>
            Show earlier
          </button>
        )}
        {view.items.slice(first, last).map((item) => (
          <ItemView key={item.key} session={view.id} item={item} version={item.version} />
        ))}
        {last < count ? (
          <button type="button" class="fold" onClick={scrollToEnd}>
            Go to the end
          </button>
        ) : (
          <>
            {view.plan && view.plan.tasks.length > 0 && <PlanView plan={view.plan} />}
            <Activity view={view} />
          </>
        )}
      </div>
    </section>
  );
}

interface ItemProps {
  session: string;
  item: Item;
  version: number;
}

const ItemView = memo(
  function ItemView({ session, item, version }: ItemProps) {
    switch (item.type) {
      case "user":
        return <UserView session={session} item={item} />;
      case "text":
        return <TextView item={item} />;
      case "thinking":
        return <ThinkingView item={item} />;
      case "step":
        return <StepView session={session} step={item} version={version} />;
      case "note":
        return <NoteView item={item} />;
      case "end":
        return <EndView item={item} />;
    }
  },
  (before, after) => before.item === after.item && before.version === after.version,
);

function UserView({ session, item }: { session: string; item: UserItem }) {
  return (
    <article class={`said ${item.forgotten ? "forgotten" : ""}`} aria-label="You">
      <p>{item.text}</p>
      {item.images.map(({ mime, blob }) => (
        <Picture key={blob} session={session} blob={blob} mime={mime} label="Attached picture" />
      ))}
    </article>
  );
}

/** While text streams in, only its last paragraph is read again. */
function TextView({ item }: { item: TextItem }) {
  const split = item.streaming ? endOfParagraphs(item.text) : 0;
  return (
    <article class={`${item.streaming ? "streaming" : ""} ${item.forgotten ? "forgotten" : ""}`} aria-label="Pinfold">
      {split > 0 && <Prose text={item.text.slice(0, split)} />}
      <Prose text={item.text.slice(split)} />
    </article>
  );
}

function Prose({ text }: { text: string }) {
  const html = useMemo(() => renderMarkdown(text), [text]);
  return <div class="prose" dangerouslySetInnerHTML={{ __html: html }} />;
}

function ThinkingView({ item }: { item: TextItem }) {
  return (
    <details class={`thinking ${item.streaming ? "live" : ""}`} open={item.streaming}>
      <summary>{item.streaming ? "Thinking" : "Thought"}</summary>
      <p>{item.text}</p>
    </details>
  );
}

function NoteView({ item }: { item: NoteItem }) {
  return <p class={`note ${item.tone}`}>{item.text}</p>;
}

function EndView({ item }: { item: EndItem }) {
  const facts = [
    seconds(item.seconds),
    item.tokens ? `${tokens(item.tokens)} tokens` : "",
    item.cost !== null ? dollars(item.cost) : "",
  ].filter(Boolean);
  if (item.state === "ended") {
    return <p class="end">{facts.join(" · ")}</p>;
  }
  return (
    <div class={`end-notice ${item.state}`}>
      <p>{item.text}</p>
      {item.canContinue && (
        <button type="button" class="quiet" onClick={() => tell("Continue")}>
          Continue
        </button>
      )}
    </div>
  );
}

function PlanView({ plan }: { plan: Plan }) {
  const done = plan.tasks.filter((task) => task.status === "done").length;
  return (
    <details class="plan">
      <summary>
        Plan: {done} of {plan.tasks.length} done
      </summary>
      <ol>
        {plan.tasks.map((task, place) => (
          <li key={place} class={task.status}>
            {task.text} <small>{task.status === "todo" ? "" : task.status}</small>
          </li>
        ))}
      </ol>
    </details>
  );
}

function Activity({ view }: { view: View }) {
  revision.value;
  if (view.cutOff) {
    return (
      <div class="end-notice interrupted">
        <p>The last turn was cut off. Its work so far is kept.</p>
        <button type="button" class="quiet" onClick={() => tell("Continue")}>
          Continue
        </button>
      </div>
    );
  }
  if (!busy.value) return null;
  const last = view.items[view.items.length - 1];
  const what = view.approvals.size
    ? "Waiting for your decision"
    : last?.type === "step" && last.stage === "running"
      ? `Running ${summaryOf(last.action).slice(0, 60)}`
      : view.turn?.waiting
        ? "Thinking"
        : "Working";
  return (
    <p class="activity" role="status">
      <span class="pulse" aria-hidden="true" />
      {what}
    </p>
  );
}
