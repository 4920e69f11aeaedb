/** Line differences by the longest common subsequence, with long unchanged parts left out. */

export interface DiffLine {
  sign: " " | "+" | "-" | "…";
  text: string;
}

const CONTEXT = 3;
const MOST_PAIRS = 4_000_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const a = before === "" ? [] : before.replace(/\n$/, "").split("\n");
  const b = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const lines: DiffLine[] = [
    ...a.slice(0, start).map((text) => ({ sign: " " as const, text })),
    ...changes(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map((text) => ({ sign: " " as const, text })),
  ];
  return shorten(lines);
}

function changes(a: string[], b: string[]): DiffLine[] {
  if (a.length * b.length > MOST_PAIRS) {
    return [...a.map((text) => ({ sign: "-" as const, text })), ...b.map((text) => ({ sign: "+" as const, text }))];
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i] ?? "" });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ sign: "-", text: a[i++] ?? "" });
    } else {
      lines.push({ sign: "+", text: b[j++] ?? "" });
    }
  }
  return lines;
}

function shorten(lines: DiffLine[]): DiffLine[] {
  const near = new Set<number>();
  lines.forEach((line, place) => {
    if (line.sign !== " ") for (let at = place - CONTEXT; at <= place + CONTEXT; at++) near.add(at);
  });
  const shown: DiffLine[] = [];
  let left = 0;
  lines.forEach((line, place) => {
    if (near.has(place)) {
      if (left) shown.push({ sign: "…", text: `${left} unchanged` });
      left = 0;
      shown.push(line);
    } else left += 1;
  });
  if (left) shown.push({ sign: "…", text: `${left} unchanged` });
  return shown;
}
