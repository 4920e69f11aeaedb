/** Markdown of a model as HTML that can do nothing: no scripts, no styles, no requests. */

import DOMPurify from "dompurify";
import { Marked } from "marked";
import { escapeHtml, highlight } from "./highlight.ts";

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    code({ text, lang }) {
      const isPython = !lang || /^(py|python|json)/.test(lang);
      return `<pre tabindex="0"><code>${isPython ? highlight(text) : escapeHtml(text)}</code></pre>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const TAGS = `a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp small
  span strong sub summary sup table tbody td tfoot th thead tr u ul var`;
const PLAIN = ["align", "colspan", "rowspan", "start", "tabindex", "open"];

/** No class but those of highlighted code: with one of ours, text could look like an approval or cover the page. */
const MARKDOWN = {
  ALLOWED_TAGS: TAGS.split(/\s+/),
  ALLOWED_ATTR: ["href", "src", "alt", "class", ...PLAIN],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ADD_URI_SAFE_ATTR: PLAIN,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#|data:image\/(?:png|jpeg|gif|webp);)/i,
};

/** What names another host is taken out, and with it links and frames: a browser connects to some before a policy stops the load. */
const DISPLAY = {
  FORCE_BODY: true,
  FORBID_TAGS: ["dialog", "template"],
  FORBID_ATTR: ["srcset", "ping"],
  ALLOWED_URI_REGEXP: /^(?:data:image\/|(?![a-z][a-z0-9+.-]*:|[\\/]{2}))/i,
};

DOMPurify.addHook("uponSanitizeAttribute", (_, attribute, config) => {
  const isMarkdown = config.ALLOW_DATA_ATTR === false;
  if (isMarkdown && attribute.attrName === "class" && !/^t-\w+$/.test(attribute.attrValue)) attribute.keepAttr = false;
});
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
    node.setAttribute("title", node.getAttribute("href") ?? "");
  }
  if (node.tagName === "IMG" && !node.getAttribute("src")?.startsWith("data:image/")) {
    // A picture elsewhere would be a request; its words stay.
    node.replaceWith(document.createTextNode(node.getAttribute("alt") || node.getAttribute("src") || ""));
  }
  if (node.tagName === "TABLE") node.setAttribute("tabindex", "0");
});

export function renderMarkdown(text: string): string {
  return DOMPurify.sanitize(marked.parse(text, { async: false }), MARKDOWN);
}

/** The HTML of a display without scripts, for a frame of its own, and whether there were any. */
export function cleanDisplay(html: string): { html: string; hadScripts: boolean } {
  const clean = DOMPurify.sanitize(html, DISPLAY);
  return { html: clean, hadScripts: DOMPurify.removed.some((one) => "element" in one && one.element.nodeName === "SCRIPT") };
}
