// The learned order of a task's steps: a picture, and the same in words.
import { $, get, guarded, make } from "./base.js";
import { run } from "./runs.js";
import { t } from "./words.js";

let shown = ""; // address of the graph

// show the graph of a task, or of none
export const showGraph = guarded(async (task) => {
  const known = task && run().graph;
  const address = (form) => "v1/runs/" + encodeURIComponent(run().name) + "/graph?" +
    new URLSearchParams({ horizon: run().horizon, task: task.id, format: form });
  const mine = known ? address("json") : "";
  if (mine === shown) return;
  shown = mine;
  $("graph").hidden = true;
  if (!known) return;
  const picture = address("svg");
  const [{ edges }] = Object.values(await get(mine));
  if (mine !== shown || !edges.length) return;
  $("graph-head").textContent = t("graph.of", { task: task.name });
  $("graph-picture").src = picture;
  $("graph-orders").replaceChildren(...edges.map(([before, after]) => make("li", {}, before + " → " + after)));
  $("graph").hidden = false;
});
