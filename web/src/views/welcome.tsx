/** The start page: what Pinfold does, in three examples on real data, and a place to begin one's own work. */

import { about, newSession } from "../store.ts";
import { baseName } from "../text/format.ts";
import { Composer } from "./composer.tsx";

const POINTS = [
  ["It works in Python", "The agent writes cells and runs them in a sandbox on this machine. Variables and files stay between messages."],
  ["Everything can be undone", "Each cell is a point on the timeline. Go back to any of them, or branch and compare."],
  ["You decide what leaves", "Requests to the outside wait for your approval and are listed under Sent."],
] as const;

export function Welcome() {
  const info = about.value;
  return (
    <section class="welcome" aria-label="Start" tabIndex={0}>
      <div class="column">
        <h1>What would you like to find out?</h1>
        <Composer placeholder={`Ask about the files in ${baseName(info?.workspace ?? "") || "this folder"}`} />
        <h2>Or try it on a small table of sales</h2>
        <ul class="examples">
          {(info?.examples ?? []).slice(0, 3).map((example) => (
            <li key={example.title}>
              <button type="button" onClick={() => void newSession({ demo: true }, example.prompt)}>
                <b>{example.title}</b>
                <span>{example.prompt}</span>
              </button>
            </li>
          ))}
        </ul>
        <dl class="points">
          {POINTS.map(([what, how]) => (
            <div key={what}>
              <dt>{what}</dt>
              <dd>{how}</dd>
            </div>
          ))}
        </dl>
      </div>
    </section>
  );
}
