/** A table of the session, a page at a time: sorted and filtered where the data is. */

import { useEffect, useState } from "preact/hooks";
import { readTable, type PageQuery, type TablePage } from "../api.ts";
import { attempt, filesChanged } from "../store.ts";
import { number } from "../text/format.ts";
import { Empty, Histogram } from "./parts.tsx";
import { cellText, describeColumn } from "./variables.tsx";

const ROWS = 50;
const TYPING_MS = 250;

export function TableView({ session, name }: { session: string; name: string }) {
  const [query, setQuery] = useState<PageQuery>({ offset: 0, limit: ROWS, sort: "", descending: false, filter: "" });
  const [page, setPage] = useState<TablePage | null>(null);
  const [words, setWords] = useState("");
  const changed = filesChanged.value;
  useEffect(() => {
    let gone = false;
    void attempt(readTable(session, name, query)).then((found) => found && !gone && setPage(found));
    return () => {
      gone = true;
    };
  }, [session, name, query, changed]);
  useEffect(() => {
    if (words === query.filter) return;
    const timer = setTimeout(() => setQuery({ ...query, filter: words, offset: 0 }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [words]);
  if (!page) return <Empty>Loading {name}</Empty>;
  const sortBy = (column: string) => {
    const again = query.sort === column;
    if (again && query.descending) setQuery({ ...query, sort: "", descending: false, offset: 0 });
    else setQuery({ ...query, sort: column, descending: again, offset: 0 });
  };
  const last = Math.min(page.offset + page.rows.length, page.matching);
  return (
    <div class="table-view">
      <div class="table-tools">
        <input type="search" aria-label={`Filter ${name}`} placeholder="Filter" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        <span class="muted" role="status">
          {page.matching ? `${number(page.offset + 1)} to ${number(last)} of ${number(page.matching)}` : "no rows"}
          {page.matching !== page.total && ` (${number(page.total)} in all)`}
        </span>
        <span class="grow" />
        <button type="button" disabled={page.offset === 0} onClick={() => setQuery({ ...query, offset: Math.max(0, query.offset - ROWS) })}>
          Previous
        </button>
        <button type="button" disabled={last >= page.matching} onClick={() => setQuery({ ...query, offset: query.offset + ROWS })}>
          Next
        </button>
      </div>
      <div class="table-box tall" tabIndex={0} role="region" aria-label={`Rows of ${name}`}>
        <table class="data">
          <thead>
            <tr>
              {page.columns.map((column, place) => {
                const sorted = query.sort === column.name;
                return (
                  <th key={place} scope="col" aria-sort={sorted ? (query.descending ? "descending" : "ascending") : "none"}>
                    <button type="button" onClick={() => sortBy(column.name)} title={describeColumn(column)}>
                      {column.name}
                      <span aria-hidden="true">{sorted ? (query.descending ? " ↓" : " ↑") : ""}</span>
                    </button>
                    <small>{column.type}</small>
                    {column.histogram && <Histogram counts={column.histogram} label={`Distribution of ${column.name}`} />}
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {page.rows.map((row, line) => (
              <tr key={line}>
                {row.map((cell, place) => (
                  <td key={place} class={typeof cell === "number" ? "number" : cell === null ? "missing" : ""}>
                    {cell === null ? "missing" : cellText(cell)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
