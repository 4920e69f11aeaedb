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
  },
});

const ALLOWED = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "iframe", "video", "audio", "source", "link", "meta", "base"],
  FORBID_ATTR: ["style", "id", "name", "srcset", "background"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#|data:image\/(?:png|jpeg|gif|webp);)/i,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.tagName === "IMG" && !node.getAttribute("src")?.startsWith("data:image/")) {
    // A picture elsewhere would be a request; its words stay.
    node.replaceWith(document.createTextNode(node.getAttribute("alt") || node.getAttribute("src") || ""));
  }
  if (node.tagName === "TABLE") node.setAttribute("tabindex", "0");
});

export function renderMarkdown(text: string): string {
  return DOMPurify.sanitize(marked.parse(text, { async: false }), ALLOWED);
}
