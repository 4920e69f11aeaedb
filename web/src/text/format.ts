export function bytes(size: number | null): string {
  if (size === null) return "";
  if (size < 1000) return `${size} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = size / 1000;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function seconds(value: number): string {
  if (value < 0.01) return "";
  if (value < 10) return `${value.toFixed(value < 1 ? 2 : 1)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 90 ? `${minutes} min ${Math.round(value % 60)} s` : `${(value / 3600).toFixed(1)} h`;
}

export function dollars(value: number): string {
  if (value === 0) return "$0";
  return value < 0.01 ? `$${value.toPrecision(1)}` : `$${value.toFixed(2)}`;
}

export function tokens(count: number): string {
  return count < 1000 ? String(count) : count < 100_000 ? `${(count / 1000).toFixed(1)}k` : `${Math.round(count / 1000)}k`;
}

export function number(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 6 });
}

export function plural(count: number, word: string): string {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** With characters that show nothing, or that turn text around, written out. */
export function showHidden(text: string): string {
  return text.replace(HIDDEN, (char) => `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Where the last paragraph begins, behind an empty line outside of code: more text changes nothing before it. */
export function endOfParagraphs(text: string): number {
  let [end, place, code] = [0, 0, false];
  for (const line of text.split("\n")) {
    if (/^ *(```|~~~)/.test(line)) code = !code;
    place += line.length + 1;
    if (!line && !code) end = Math.min(place, text.length);
  }
  return end;
}

/** A moment in ISO format, told from now. */
export function ago(at: string, now = Date.now()): string {
  const passed = Math.max(0, (now - Date.parse(at)) / 1000);
  if (passed < 60) return "now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h`;
  if (passed < 7 * 86_400) return `${Math.floor(passed / 86_400)} d`;
  return new Date(at).toLocaleDateString("en", { day: "numeric", month: "short" });
}

export function baseName(path: string): string {
  return path.replace(/\/+$/, "").split("/").pop() ?? path;
}
