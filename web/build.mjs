/** Builds the page into the folder that is given. The same sources give the same bytes. */

import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2] ?? "../src/pinfold/front/server/assets";
mkdirSync(out, { recursive: true });

await build({
  entryPoints: { page: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome110", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  outdir: out,
});
await build({ entryPoints: ["src/page.css"], minify: true, charset: "utf8", outdir: out });
for (const name of ["index.html", "icon.svg"]) copyFileSync(`src/${name}`, `${out}/${name}`);

const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
const packages = [...Object.keys(dependencies), "@preact/signals-core"].sort();
const notices = packages.map((name) => {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).filter((one) => /^licen[sc]e/i.test(one)).sort()[0];
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
writeFileSync(`${out}/licences.txt`, `page.js contains these packages.\n\n${notices.join(`\n${"-".repeat(80)}\n\n`)}`);
