/** Python and JSON as HTML with classes. Every piece of the source is escaped. */

const PYTHON = new RegExp(
  [
    /(?<comment>#[^\n]*)/,
    /(?<string>(?:\b[rbfuRBFU]{1,2})?(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
    /(?<number>\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?j?)\b)/,
    /(?<keyword>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|case|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b)/,
    /(?<constant>\b(?:True|False|None|self)\b)/,
    /(?<magic>^[ \t]*[%!@][\w.]+)/,
    /(?<call>\b[A-Za-z_]\w*(?=\())/,
  ]
    .map((part) => part.source)
    .join("|"),
  "gm",
);

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

export function highlight(code: string): string {
  let html = "";
  let place = 0;
  for (const found of code.matchAll(PYTHON)) {
    html += escapeHtml(code.slice(place, found.index));
    const kind = Object.entries(found.groups ?? {}).find(([, text]) => text !== undefined)?.[0] ?? "";
    html += `<span class="t-${kind}">${escapeHtml(found[0])}</span>`;
    place = found.index + found[0].length;
  }
  return html + escapeHtml(code.slice(place));
}
