import assert from "node:assert/strict";
import { test } from "node:test";
import { endOfParagraphs, showHidden } from "../src/text/format.ts";

test("characters that hide or turn text are written out, and all others stay", () => {
  assert.equal(showHidden("rm \u202egnp.exe\u200b"), "rm ⟨U+202E⟩gnp.exe⟨U+200B⟩");
  assert.equal(showHidden("a\tb\nÄ 日本 😀"), "a\tb\nÄ 日本 😀");
});

test("the last paragraph begins behind an empty line that is not in code", () => {
  const last = (text: string) => text.slice(endOfParagraphs(text));
  assert.equal(last("one\n\ntwo\n\nthr"), "thr");
  assert.equal(last("one"), "one");
  assert.equal(last("one\n\n```py\na\n\nb"), "```py\na\n\nb");
  assert.equal(last("```\na\n\nb\n```\n\nend"), "end");
  assert.equal(last("one\n\n"), "");
});
