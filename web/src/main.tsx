import { render } from "preact";
import { start } from "./store.ts";
import { App } from "./views/app.tsx";

const root = document.querySelector("#root");
if (root) render(<App />, root);
void start();
