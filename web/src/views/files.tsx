/** The files of the workspace: listed, added by drag and drop, looked at, and what cells changed in them. */

import { useEffect, useRef, useState } from "preact/hooks";
import { download, filePath, listFiles, readBlob, readFile, type FileEntry } from "../api.ts";
import type { FileChange } from "../state/events.ts";
import { currentPath, type View } from "../state/view.ts";
import { attempt, dialog, filesChanged, revision, upload } from "../store.ts";
import { diffLines, type DiffLine } from "../text/diff.ts";
import { baseName, bytes } from "../text/format.ts";
import { ChangeChip } from "./cell.tsx";
import { Icon } from "./icons.tsx";
import { Empty, IconButton } from "./parts.tsx";

const PREVIEW = 200_000;

export function FilesPane({ view }: { view: View }) {
  const [path, setPath] = useState("");
  const [entries, setEntries] = useState<FileEntry[] | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const changed = filesChanged.value;
  useEffect(() => {
    let gone = false;
    void attempt(listFiles(view.id, path)).then((found) => !gone && setEntries(found?.entries ?? []));
    return () => {
      gone = true;
    };
  }, [view.id, path, changed]);
  const inside = (name: string) => (path ? `${path}/${name}` : name);
  return (
    <>
      <div class="pane-actions">
        <nav class="crumbs" aria-label="Folder">
          <button type="button" class="fold" onClick={() => setPath("")}>
            {baseName(view.workspace) || "workspace"}
          </button>
          {path &&
            path.split("/").map((part, place, parts) => (
              <button key={place} type="button" class="fold" onClick={() => setPath(parts.slice(0, place + 1).join("/"))}>
                / {part}
              </button>
            ))}
        </nav>
        <span class="grow" />
        <button type="button" class="quiet" onClick={() => input.current?.click()}>
          <Icon name="upload" /> Upload
        </button>
        <input
          ref={input}
          id="upload"
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(event) => {
            void upload(event.currentTarget.files ?? [], path);
            event.currentTarget.value = "";
          }}
        />
      </div>
      {entries && entries.length === 0 && <Empty>Nothing here yet. Drop files anywhere on the page to add them.</Empty>}
      <ul class="files" aria-label="Files">
        {[...(entries ?? [])].sort(byKind).map((entry) => (
          <li key={entry.name}>
            <button
              type="button"
              class="file"
              onClick={() => (entry.type === "folder" ? setPath(inside(entry.name)) : (dialog.value = { type: "file", path: inside(entry.name) }))}
            >
              <Icon name={entry.type === "folder" ? "folder" : "file"} />
              <span>{entry.name}</span>
              <small>{entry.type === "file" ? bytes(entry.size) : ""}</small>
            </button>
            {entry.type === "file" && (
              <IconButton icon="save" label={`Save ${entry.name}`} onClick={() => void attempt(download(filePath(view.id, inside(entry.name))))} />
            )}
          </li>
        ))}
      </ul>
      <ChangesByCell view={view} />
    </>
  );
}

function byKind(a: FileEntry, b: FileEntry): number {
  return a.type === b.type ? a.name.localeCompare(b.name) : a.type === "folder" ? -1 : 1;
}

function ChangesByCell({ view }: { view: View }) {
  revision.value;
  const cells = currentPath(view).filter((step) => step.files.length).reverse();
  if (!cells.length) return null;
  return (
    <>
      <h3>Changed by cells</h3>
      <ul class="by-cell">
        {cells.map((step) => (
          <li key={step.id}>
            <span class="moment-number">{step.cell}</span>
            <div class="changes">
              {step.files.map((change) => (
                <ChangeChip key={change.path} change={change} cell={step.cell} />
              ))}
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}

export function DiffView({ lines }: { lines: DiffLine[] }) {
  return (
    <pre class="diff" tabIndex={0} role="region" aria-label="Difference">
      {lines.map((line, place) => (
        <span key={place} class={line.sign === "+" ? "added" : line.sign === "-" ? "removed" : line.sign === "…" ? "gap" : ""}>
          {`${line.sign} ${line.text}\n`}
        </span>
      ))}
    </pre>
  );
}

export async function readTexts(session: string, before: string | null, after: string | null): Promise<[string, string]> {
  const text = async (blob: string | null) => (blob ? (await readBlob(session, blob)).text() : "");
  return Promise.all([text(before), text(after)]);
}

export function ChangeView({ session, change }: { session: string; change: FileChange }) {
  const [lines, setLines] = useState<DiffLine[] | null>(null);
  const known = change.before !== null || change.after !== null;
  useEffect(() => {
    if (known) void attempt(readTexts(session, change.before, change.after)).then((texts) => texts && setLines(diffLines(...texts)));
  }, [session, change]);
  if (!known) return <Empty>This file was {change.how}. Its content was not stored: it is too large, or not text.</Empty>;
  if (!lines) return <Empty>Loading</Empty>;
  return lines.length ? <DiffView lines={lines} /> : <Empty>The content did not change, or the file is empty.</Empty>;
}

const PICTURE = /\.(png|jpe?g|gif|webp|svg)$/i;

export function FileView({ session, path }: { session: string; path: string }) {
  const [text, setText] = useState<string | null>(null);
  const [picture, setPicture] = useState("");
  useEffect(() => {
    let url = "";
    void attempt(readFile(session, path)).then(async (data) => {
      if (!data) return;
      if (PICTURE.test(path)) {
        const type = path.toLowerCase().endsWith("svg") ? "image/svg+xml" : data.type;
        url = URL.createObjectURL(new Blob([data], { type }));
        return setPicture(url);
      }
      const head = await data.slice(0, PREVIEW).text();
      const more = data.size > PREVIEW ? `\n… ${bytes(data.size - PREVIEW)} more` : "";
      setText(head.includes("\0") ? `Binary file, ${bytes(data.size)}` : head + more);
    });
    return () => URL.revokeObjectURL(url);
  }, [session, path]);
  return (
    <>
      <div class="pane-actions">
        <button type="button" onClick={() => void attempt(download(filePath(session, path)))}>
          <Icon name="save" /> Save
        </button>
      </div>
      {picture ? (
        <img class="preview" src={picture} alt={path} />
      ) : text === null ? (
        <Empty>Loading</Empty>
      ) : (
        <pre class="preview" tabIndex={0}>
          {text}
        </pre>
      )}
    </>
  );
}
