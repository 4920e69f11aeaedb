/** What a cell showed. Pictures are <img> from a blob, tables are read as text, other HTML stays in a frame that can do nothing. */

import { useEffect, useState } from "preact/hooks";
import { readBlob } from "../api.ts";
import type { Display } from "../state/events.ts";
import { renderMarkdown } from "../text/markdown.ts";
import { IconButton, WhenNear } from "./parts.tsx";
import { Output } from "./output.tsx";

const PICTURES: Record<string, string> = {
  "image/svg+xml": "svg",
  "image/png": "png",
  "image/jpeg": "jpg",
  "image/gif": "gif",
  "image/webp": "webp",
};
const BEST = [...Object.keys(PICTURES), "text/html", "text/markdown", "application/json", "text/plain"];
const TABLE_ROWS = 60;

export function DisplayView({ session, display, label }: { session: string; display: Display; label: string }) {
  const mime = BEST.find((one) => one in display.mime) ?? Object.keys(display.mime)[0];
  const blob = mime ? display.mime[mime] : undefined;
  if (!mime || !blob) return null;
  return (
    <WhenNear height={mime in PICTURES ? 320 : 120}>
      {() =>
        mime in PICTURES ? (
          <Picture session={session} blob={blob} mime={mime} label={label} />
        ) : (
          <TextDisplay session={session} blob={blob} mime={mime} label={label} />
        )
      }
    </WhenNear>
  );
}

function useBlob(session: string, blob: string, mime: string): { url: string; data: Blob } | null {
  const [found, setFound] = useState<{ url: string; data: Blob } | null>(null);
  useEffect(() => {
    let url = "";
    let gone = false;
    readBlob(session, blob)
      .then((data) => {
        if (gone) return;
        const typed = new Blob([data], { type: mime });
        url = URL.createObjectURL(typed);
        setFound({ url, data: typed });
      })
      .catch(() => undefined);
    return () => {
      gone = true;
      URL.revokeObjectURL(url);
    };
  }, [session, blob, mime]);
  return found;
}

export function Picture({ session, blob, mime, label }: { session: string; blob: string; mime: string; label: string }) {
  const found = useBlob(session, blob, mime);
  const save = () => {
    if (!found) return;
    const link = document.createElement("a");
    link.href = found.url;
    link.download = `${label.toLowerCase().replace(/\W+/g, "-")}.${PICTURES[mime] ?? "bin"}`;
    link.click();
  };
  return (
    <figure class="picture">
      {found ? <img src={found.url} alt={label} /> : <div class="waiting-picture" />}
      <IconButton icon="save" label={`Save ${label.toLowerCase()} as ${PICTURES[mime] ?? "file"}`} onClick={save} />
    </figure>
  );
}

function TextDisplay({ session, blob, mime, label }: { session: string; blob: string; mime: string; label: string }) {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    readBlob(session, blob)
      .then((data) => data.text())
      .then(setText)
      .catch(() => setText(""));
  }, [session, blob]);
  if (text === null) return <div class="waiting-picture" />;
  if (mime === "text/markdown") return <div class="prose" dangerouslySetInnerHTML={{ __html: renderMarkdown(text) }} />;
  if (mime !== "text/html") return <Output text={text} kind="value" />;
  const table = readPlainTable(text);
  if (table) return <PlainTable table={table} label={label} />;
  return <iframe class="html-display" sandbox="" title={label} srcDoc={framed(text)} referrerpolicy="no-referrer" />;
}

function framed(html: string): string {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && document.documentElement.dataset["theme"] !== "light";
  const ink = dark || document.documentElement.dataset["theme"] === "dark" ? "#e9e5dd" : "#23211d";
  return `<!doctype html><meta charset="utf-8"><style>body{font:14px/1.5 system-ui,sans-serif;margin:8px;color:${ink}}</style>${html}`;
}

interface Table {
  head: string[];
  rows: string[][];
  note: string;
}

/** The cells of a table and nothing else, if the HTML is a data frame's. */
function readPlainTable(html: string): Table | null {
  const page = new DOMParser().parseFromString(html, "text/html");
  const table = page.querySelector("table.dataframe");
  if (!table || page.querySelectorAll("table").length !== 1 || page.querySelector("script, svg, img")) return null;
  const cells = (row: Element) => [...row.children].map((cell) => cell.textContent?.trim() ?? "");
  const heads = [...table.querySelectorAll("thead tr")].map(cells);
  const rows = [...table.querySelectorAll("tbody tr")].map(cells);
  const head = heads.pop() ?? [];
  if (heads.length || !rows.length || rows.some((row) => row.length !== head.length)) return null;
  return { head, rows, note: page.querySelector("p")?.textContent ?? "" };
}

function PlainTable({ table, label }: { table: Table; label: string }) {
  const numeric = table.head.map((_, place) => table.rows.every((row) => /^(?:[-+]?[\d.,]+(?:e[-+]?\d+)?|NaN|nan|\.\.\.|)$/.test(row[place] ?? "")));
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table class="data">
        <thead>
          <tr>
            {table.head.map((name, place) =>
              name ? (
                <th key={place} scope="col" class={numeric[place] ? "number" : ""}>
                  {name}
                </th>
              ) : (
                <td key={place} />
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {table.rows.slice(0, TABLE_ROWS).map((row, line) => (
            <tr key={line}>
              {row.map((cell, place) => (
                <td key={place} class={`${numeric[place] ? "number" : ""} ${place === 0 && !table.head[0] ? "index" : ""}`}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {table.note && <p class="table-note">{table.note}</p>}
    </div>
  );
}
