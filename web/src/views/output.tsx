/** Printed text: long output is folded, and what is unfolded is split into parts the browser can leave out of layout. */

import { useState } from "preact/hooks";
import { readBlob } from "../api.ts";
import { attempt, view } from "../store.ts";
import { plural } from "../text/format.ts";

const SHORT = 24;
const HEAD = 10;
const PART = 200;
const MOST = 20_000;
const LIVE = 10_000;
/** Characters that are looked at while more comes: only the last lines are shown. */

interface Props {
  text: string;
  kind?: "stderr" | "error" | "value";
  live?: boolean;
  /** Where all of it is, if `text` is only a part. */
  whole?: string | null;
}

export function Output({ text, kind, live, whole }: Props) {
  const [open, setOpen] = useState(false);
  const [all, setAll] = useState<string | null>(null);
  const clean = plainText(all ?? (live && !open ? text.slice(-LIVE) : text));
  if (!clean && !whole) return null;
  const lines = clean.split("\n");
  const long = lines.length > SHORT;
  const shown = !long || open ? lines.slice(0, MOST) : live || kind === "error" ? lines.slice(-HEAD) : lines.slice(0, HEAD);
  const more = async () => {
    const blob = whole && all === null && view.value ? await attempt(readBlob(view.value.id, whole)) : undefined;
    if (blob) setAll(await blob.text());
    setOpen(true);
  };
  return (
    <div class={`output ${kind ?? ""}`}>
      {split(shown).map((part, place) => (
        <pre key={place} tabIndex={part.length ? 0 : -1}>
          {part}
        </pre>
      ))}
      {(long || (whole && all === null)) && (
        <button type="button" class="fold" aria-expanded={open} onClick={() => (open && all !== null ? setOpen(false) : open && !whole ? setOpen(false) : void more())}>
          {open && (all !== null || !whole) ? "Show less" : whole && all === null ? "Show all output" : `Show all ${plural(lines.length, "line")}`}
        </button>
      )}
    </div>
  );
}

function split(lines: string[]): string[] {
  const parts: string[] = [];
  for (let start = 0; start < lines.length; start += PART) parts.push(lines.slice(start, start + PART).join("\n"));
  return parts;
}

/** Without colours and other control sequences; a carriage return writes over its line. */
function plainText(text: string): string {
  const plain = text.replace(/\x1b\[[0-9;:?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "").replace(/\n+$/, "");
  if (!plain.includes("\r")) return plain;
  return plain
    .split("\n")
    .map((line) => line.replace(/\r+$/, "").split("\r").pop() ?? "")
    .join("\n");
}
