/** Follows a session's events: one stream per session and browser, shared by its tabs, opened again when it ends. */

import { ApiError, openEvents, readEvents } from "./api.ts";
import type { Event } from "./state/events.ts";

export type Connection = "connecting" | "live" | "waiting" | "refused";

export interface Listener {
  /** The number of the last event that was seen. */
  seen(): number;
  receive(events: Event[]): void;
  connection(state: Connection): void;
}

type Message = { events: Event[] } | { state: Connection };

const SLOTS = 4;
/** Streams of one browser at a time: it opens six connections to a host, and requests need some too. */
const BATCH_MS = 50;
/** Events are passed on this often at most: between two batches the page has time for keys. */
const POLL_MS = 1_500;
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 8_000;
/** The server sends a comment every 15 s; without one, the connection is gone. */
const SILENCE_MS = 40_000;

/** Returns the function that ends it. */
export function follow(session: string, listener: Listener): () => void {
  const ended = new AbortController();
  const channel = new BroadcastChannel(`pinfold:${session}`);
  const share = (message: Message) => {
    if (!ended.signal.aborted) channel.postMessage(message);
    hand(message);
  };
  const hand = (message: Message) => {
    if (ended.signal.aborted) return;
    if ("state" in message) listener.connection(message.state);
    else listener.receive(message.events);
  };
  channel.onmessage = async ({ data }: MessageEvent<Message>) => {
    if ("events" in data && isGap(listener.seen(), data.events)) {
      hand({ events: await readEvents(session, listener.seen()).catch(() => []) });
    }
    hand(data);
  };
  // The tab that has the lock reads the stream; when it closes, the next one goes on.
  navigator.locks
    .request(`pinfold:${session}`, { signal: ended.signal }, () => lead(session, listener, share, ended.signal))
    .catch(() => undefined);
  return () => {
    ended.abort();
    channel.close();
  };
}

function isGap(seen: number, events: Event[]): boolean {
  const first = events.find((event) => event.seq !== undefined)?.seq;
  return first !== undefined && first > seen + 1;
}

async function lead(session: string, listener: Listener, share: (message: Message) => void, ended: AbortSignal): Promise<void> {
  let wait = FIRST_WAIT_MS;
  const { add, flush } = batches((events) => share({ events }));
  while (!ended.aborted) {
    try {
      const streamed = await withSlot(() =>
        readStream(session, listener.seen(), ended, (events) => {
          wait = FIRST_WAIT_MS;
          if (events) add(events);
          else share({ state: "live" });
        }).finally(flush),
      );
      if (!streamed) {
        const events = await readEvents(session, listener.seen());
        if (events.length) share({ events });
        share({ state: "live" });
        await pause(POLL_MS, ended);
        continue;
      }
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return share({ state: "refused" });
    }
    share({ state: "waiting" });
    await pause(wait, ended);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

function batches(pass: (events: Event[]) => void): { add: (events: Event[]) => void; flush: () => void } {
  let held: Event[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = 0;
  const flush = () => {
    clearTimeout(timer);
    timer = undefined;
    last = performance.now();
    const events = held;
    held = [];
    if (events.length) pass(events);
  };
  const add = (events: Event[]) => {
    held.push(...events);
    timer ??= setTimeout(flush, Math.max(0, last + BATCH_MS - performance.now()));
  };
  return { add, flush };
}

/** Runs it if fewer than SLOTS streams are open in this browser; returns whether it ran. */
async function withSlot(run: () => Promise<void>): Promise<boolean> {
  for (let slot = 0; slot < SLOTS; slot++) {
    const ran = await navigator.locks.request(`pinfold:slot:${slot}`, { ifAvailable: true }, async (lock) => {
      if (lock) await run();
      return lock !== null;
    });
    if (ran) return true;
  }
  return false;
}

async function readStream(
  session: string,
  after: number,
  ended: AbortSignal,
  receive: (events: Event[] | null) => void,
): Promise<void> {
  const quiet = new AbortController();
  const stop = () => quiet.abort();
  ended.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const response = await openEvents(session, after, quiet.signal);
    receive(null);
    const reader = (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream() as never).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await (reader as ReadableStreamDefaultReader<string>).read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      const blocks = (rest + value.replaceAll("\r", "")).split("\n\n");
      rest = blocks.pop() ?? "";
      const events = blocks.flatMap(parseBlock);
      if (events.length) receive(events);
    }
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", stop);
    quiet.abort();
  }
}

function parseBlock(block: string): Event[] {
  const data = block
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
  return data ? [JSON.parse(data) as Event] : [];
}

function pause(ms: number, ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    ended.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
