/** The variables of the session now: types, shapes, sizes; of tables the columns with their distribution. */

import { useEffect, useState } from "preact/hooks";
import { listVariables, readTable, type Column, type TablePage, type Variable } from "../api.ts";
import type { View } from "../state/view.ts";
import { attempt, dialog, filesChanged } from "../store.ts";
import { bytes, number } from "../text/format.ts";
import { Icon } from "./icons.tsx";
import { Empty, Histogram } from "./parts.tsx";

const HIDDEN = new Set(["module", "function", "type", "builtin_function_or_method"]);

export function VariablesPane({ view }: { view: View }) {
  const [variables, setVariables] = useState<Variable[] | null>(null);
  const changed = filesChanged.value;
  useEffect(() => {
    let gone = false;
    void attempt(listVariables(view.id)).then((found) => !gone && setVariables(found ?? []));
    return () => {
      gone = true;
    };
  }, [view.id, changed]);
  if (variables === null) return <Empty>Loading</Empty>;
  const shown = variables.filter((one) => !HIDDEN.has(one.type));
  if (!shown.length) return <Empty>No variables yet. What cells define stays here from one message to the next.</Empty>;
  return (
    <ul class="variables" aria-label="Variables">
      {shown.map((one) => (
        <VariableRow key={`${one.name} ${one.shape ?? ""} ${one.cell ?? ""}`} session={view.id} variable={one} />
      ))}
    </ul>
  );
}

function VariableRow({ session, variable }: { session: string; variable: Variable }) {
  const [page, setPage] = useState<TablePage | null>(null);
  const isTable = /^(DataFrame|Series|ndarray|Table|list|dict|tuple|set)$/.test(variable.type);
  const facts = [variable.shape ? variable.shape.replaceAll(" x ", " × ") : "", bytes(variable.size)].filter(Boolean).join(" · ");
  const head = (
    <>
      <code>{variable.name}</code>
      <span class="variable-type">{variable.type}</span>
      <span class="muted">{facts}</span>
    </>
  );
  if (!isTable) return <li class="variable">{head}</li>;
  const load = async (open: boolean) => {
    if (!open || page) return;
    const found = await attempt(readTable(session, variable.name, { offset: 0, limit: 1, sort: "", descending: false, filter: "" }));
    if (found) setPage(found);
  };
  return (
    <li>
      <details onToggle={(event) => void load(event.currentTarget.open)}>
        <summary class="variable">{head}</summary>
        {page && <Columns columns={page.columns} />}
        <button type="button" class="chip" onClick={() => (dialog.value = { type: "table", name: variable.name })}>
          <Icon name="table" /> Open {variable.name}
        </button>
      </details>
    </li>
  );
}

function Columns({ columns }: { columns: Column[] }) {
  return (
    <ul class="columns">
      {columns.map((column, place) => (
        <li key={place}>
          <span class="column-name">{column.name}</span>
          <span class="muted">{column.type}</span>
          {column.histogram ? <Histogram counts={column.histogram} label={`Distribution of ${column.name}`} /> : <span />}
          <small>{describeColumn(column)}</small>
        </li>
      ))}
    </ul>
  );
}

export function describeColumn(column: Column): string {
  const range = column.least !== null && column.greatest !== null ? `${cellText(column.least)} to ${cellText(column.greatest)}` : "";
  return [range, column.distinct !== null && column.distinct !== undefined ? `${number(column.distinct)} distinct` : "", column.missing ? `${number(column.missing)} missing` : ""]
    .filter(Boolean)
    .join(", ");
}

export function cellText(value: string | number | boolean | null): string {
  if (value === null) return "";
  if (typeof value === "number") return number(value);
  return String(value).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)/, "$1 $2").replace(/^(\d{4}-\d\d-\d\d) 00:00:00$/, "$1");
}
