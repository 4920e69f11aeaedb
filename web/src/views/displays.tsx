/** What a cell showed. Pictures are <img> from a blob, tables are read as text, other HTML stays in a frame that can do nothing. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { readBlob } from "../api.ts";
import type { Display } from "../state/events.ts";
import { attempt } from "../store.ts";
import { cleanDisplay, renderMarkdown } from "../text/markdown.ts";
import { Icon } from "./icons.tsx";
import { WhenNear } from "./parts.tsx";
import { Output } from "./output.tsx";

/** The best first, with how a file of it is named. */
const PICTURES = new Map([
  ["image/svg+xml", "svg"],
  ["image/png", "png"],
  ["image/jpeg", "jpg"],
  ["image/gif", "gif"],
  ["image/webp", "webp"],
]);
const BEST = [...PICTURES.keys(), "text/html", "text/markdown", "application/json", "text/plain"];
const TABLE_ROWS = 60;
const MOST_HEIGHT = 320;
const SAVED_MS = 60_000;

export function DisplayView({ session, display, label }: { session: string; display: Display; label: string }) {
  const blobs = new Map(Object.entries(display.mime));
  const mime = BEST.find((one) => blobs.has(one)) ?? [...blobs.keys()][0];
  const blob = mime ? blobs.get(mime) : undefined;
  if (!mime || !blob) return null;
  const isPicture = PICTURES.has(mime);
  const others = [...PICTURES.keys()].flatMap((one) => (one !== mime && blobs.has(one) ? [[one, blobs.get(one) ?? ""] as const] : []));
  return (
    <WhenNear height={isPicture ? 320 : 120}>
      {() =>
        isPicture ? (
          <Picture session={session} blob={blob} mime={mime} label={label} others={others} />
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

function save(data: Blob, label: string, ending: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = `${label.toLowerCase().replace(/\W+/g, "-")}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVED_MS);
}

interface PictureProps {
  session: string;
  blob: string;
  mime: string;
  label: string;
  /** The same picture in other formats, and where they are. */
  others?: (readonly [mime: string, blob: string])[];
}

export function Picture({ session, blob, mime, label, others = [] }: PictureProps) {
  const found = useBlob(session, blob, mime);
  const ending = (one: string) => PICTURES.get(one) ?? "bin";
  const saveOther = async (one: string, where: string) => {
    const data = await attempt(readBlob(session, where));
    if (data) save(data.slice(0, data.size, one), label, ending(one));
  };
  return (
    <figure class="picture">
      {found ? <img src={found.url} alt={label} /> : <div class="waiting-picture" />}
      <figcaption>
        {[[mime, blob] as const, ...others].map(([one, where]) => (
          <button
            key={one}
            type="button"
            aria-label={`Save ${label.toLowerCase()} as ${ending(one)}`}
            title={`Save as ${ending(one)}`}
            onClick={() => (one === mime && found ? save(found.data, label, ending(one)) : void saveOther(one, where))}
          >
            <Icon name="save" /> {ending(one).toUpperCase()}
          </button>
        ))}
      </figcaption>
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
  return table ? <PlainTable table={table} label={label} /> : <HtmlDisplay text={text} label={label} />;
}

/** A frame without scripts and without an origin. Nothing tells its height, so it is estimated. */
function HtmlDisplay({ text, label }: { text: string; label: string }) {
  const { html, hadScripts } = useMemo(() => cleanDisplay(text), [text]);
  const content = html.replace(/<style[^]*?<\/style>|<(?!img|svg|math|hr|input|progress|meter)[^>]*>/gi, "").trim();
  const lines = Math.max(content.length / 90, html.match(/<(?:tr|p|li|h\d|br|dt|dd|pre)\b/gi)?.length ?? 0, 1);
  const height = /<(?:img|svg)\b/i.test(html) ? MOST_HEIGHT : Math.min(MOST_HEIGHT, 24 + 26 * Math.ceil(lines));
  return (
    <>
      {content && <iframe class="html-display" sandbox="" title={label} srcDoc={framed(html)} style={{ height }} referrerpolicy="no-referrer" />}
      {hadScripts && (
        <p class="step-note">
          The scripts of this display do not run here: they could send data away.{" "}
          <button type="button" class="fold" onClick={() => save(new Blob([text], { type: "text/html" }), label, "html")}>
            Save as HTML
          </button>
        </p>
      )}
    </>
  );
}

function framed(html: string): string {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && document.documentElement.dataset["theme"] !== "light";
  const ink = dark || document.documentElement.dataset["theme"] === "dark" ? "#e9e5dd" : "#23211d";
  return `<!doctype html><style>body{font:14px/1.5 system-ui,sans-serif;margin:8px;color:${ink}}</style>${html}`;
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
