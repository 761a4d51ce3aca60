// The runs of the service, and the one that is chosen.
import { $, complain, fill, get, make, patiently } from "./base.js";
import { language, t } from "./words.js";

let runs = [];
export let limits = null;

export async function loadRuns() {
  const model = await patiently(() => get("v1/model"));
  runs = model.runs;
  limits = model.limits;
  for (const one of runs) one.names = new Map(one.actions.map((action) => [action.id, action.name]));
}

export function run() {
  const { run: name, horizon } = $("run").selectedOptions[0].dataset;
  return runs.find((one) => one.name === name && String(one.horizon) === horizon);
}

// choose the run of a name and a horizon, or of any horizon, if it is there
export function chooseRun(name, horizon) {
  const option = [...$("run").options].find((one) => one.dataset.run === name && (horizon === null || one.dataset.horizon === String(horizon)));
  if (option) option.selected = true;
  return Boolean(option);
}

// choose the run of a link; false if it names none that is there
export function chooseLinked(link) {
  const found = link.has("run") && chooseRun(link.get("run"), link.get("horizon"));
  if (link.has("run") && !found) complain(t("run.missing", { run: link.get("run") }));
  return found;
}

export function runShown() {
  $("simulated").hidden = !run().simulated;
}

// all numbers of steps that the run plans
export function counts() {
  const one = run();
  return Array.from({ length: one.horizon - one.shortest + 1 }, (_, place) => one.shortest + place);
}

export const taskOf = (id) => run().tasks.find((task) => task.id === Number(id));
export const nameOf = (id) => run().names.get(id) || t("action.unknown", { id });

// the actions of a task by name, or all
export function actionsOf(task) {
  const known = task ? task.actions.map((id) => ({ id: id, name: nameOf(id) })) : run().actions.slice();
  return known.sort((a, b) => a.name.localeCompare(b.name, language));
}

export function fillActions(select, task) {
  fill(select, t("action.choose"), actionsOf(task).map((action) => make("option", { value: action.id }, action.name)));
}
