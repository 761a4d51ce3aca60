// Live sessions: what is done, what comes now, and what is next, as the service tells it.
import { $, call, complain, fill, get, guarded, json, make, number, onSubmit, percent } from "./base.js";
import { actionsOf, run } from "./runs.js";
import { video } from "./videos.js";

const PLANS = 3;
const MARK = "#session=";
const PLACE = "live-problem";
let state = null; // of the open session
let stream = null; // of its states, also after events of others
let going = false; // an event is being sent
let goal = () => ({}); // of the query

// ---- from the query

export function sessionRun() {
  leave();
  $("live").hidden = !run().any_length;
  $("live-goal").checked = false;
  $("live-video").hidden = !run().datasets.length;
}

export function sessionScenes() {
  const found = video();
  fill($("live-scene"), null, (found ? found.steps : []).map((step, place) => make(
    "option", { value: place + 1 }, found.id + ", second " + step.start.toFixed(1))));
}

// the session that the address of the page names
export async function openSession() {
  if (!location.hash.startsWith(MARK)) return null;
  const id = location.hash.slice(MARK.length);
  forget();
  return get("v1/sessions/" + encodeURIComponent(id));
}

const forget = () => history.replaceState(null, "", location.pathname + location.search);

// ---- begin and end

async function begin() {
  const body = { run: run().name, horizon: run().horizon };
  if ($("given").checked) body.task = Number($("task").value);
  const given = $("live-goal").checked ? goal() : {};
  if ($("live-goal").checked && !Object.keys(given).length) throw new Error("The query has no goal of a video or in words.");
  const response = await call("v1/sessions", json({ ...body, ...given }));
  followSession(await response.json());
  $("live-now-head").focus();
}

export function followSession(opened) {
  leave();
  history.replaceState(null, "", MARK + opened.id);
  $("live-open").hidden = false;
  $("live-closed").hidden = true;
  show(opened);
  stream = new EventSource("v1/sessions/" + opened.id + "/events");
  stream.addEventListener("state", (event) => show(JSON.parse(event.data)));
  stream.addEventListener("end", (event) => ended(JSON.parse(event.data).detail));
  stream.addEventListener("error", (event) => {
    if (event.target.readyState === EventSource.CLOSED) ended("it is not open any more.");
  });
}

function leave() {
  if (stream) {
    stream.close();
    forget();
  }
  state = stream = null;
  $("live-open").hidden = true;
  $("live-closed").hidden = false;
  $("live-said").textContent = "";
  complain("", PLACE);
}

function ended(reason) {
  leave();
  complain("The session has ended: " + reason, PLACE);
}

async function end() {
  const id = state.id;
  leave();
  $("live-begin").focus();
  await call("v1/sessions/" + id, { method: "DELETE" });
}

// ---- events

async function tell(send) {
  if (going) return;
  going = true;
  $("live").setAttribute("aria-busy", "true");
  complain("", PLACE);
  try {
    show(await (await send("v1/sessions/" + state.id)).json());
  } finally {
    going = false;
    $("live").removeAttribute("aria-busy");
  }
}

const add = guarded((event) => tell((path) => call(path + "/events", json(event))), PLACE);

// ---- the state

function show(next) {
  if (state && next.number <= state.number) return; // it is shown already
  state = next;
  const inList = $("live-now").contains(document.activeElement);
  const [best, second] = next.tasks;
  const likely = (task) => [task.name + ", ", number("task", percent(task.probability))];
  $("live-task").replaceChildren("Task: ", ...likely(best),
    ...(second && second.probability >= 0.05 ? ["; or ", ...likely(second)] : []), next.goal ? ". To the goal." : ".");
  $("live-notes").replaceChildren(...next.notes.map((text) => make("li", {}, text)));
  $("live-done").replaceChildren(...next.done.map((step) => make("li", {}, step.name + " ",
    make("span", { class: "soft" }, ...(step.reported ? ["reported"] : ["inferred, ", number("inferred", percent(step.probability))])))));
  $("live-done").scrollTop = $("live-done").scrollHeight;
  $("live-done").hidden = !next.done.length;
  $("live-nothing").hidden = next.done.length > 0;
  $("live-unseen").hidden = !next.unseen.length;
  $("live-unseen").textContent = "Usual, not seen: " + next.unseen.map((step) => step.name).join(", ");
  $("live-undo").disabled = next.events === 0;
  $("live-now").replaceChildren(...next.next_steps.map(nextStep));
  if (inList) $("live-now-head").focus();
  fillActions(best.id);
  $("live-remaining").replaceChildren(...remaining());
  $("live-plans").replaceChildren(...next.plans.slice(0, PLANS).map((plan, place) => make("div", { class: "p" },
    make("span", {}, number("probability", percent(plan.probability))),
    make("ol", { class: "s", "aria-label": "Plan " + (place + 1) }, ...plan.names.map((name) => make("li", {}, name))))));
  const latest = next.done.length ? "Done: " + next.done[next.done.length - 1].name + ". " : "";
  const likeliest = next.next_steps.length ? "Now: " + next.next_steps[0].name + "." : "";
  $("live-said").textContent = latest + likeliest;
}

function nextStep(step) {
  const button = make("button", { type: "button", "aria-label": "Done: " + step.name }, "Done");
  button.addEventListener("click", () => add({ done: step.id }));
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = 100 * step.probability + "%";
  return make("li", {}, make("span", {}, step.name), make("span", { class: "share" }, number("next", percent(step.probability))), bar, button);
}

function fillActions(task) {
  const own = new Set(run().tasks.find((one) => one.id === task).actions);
  const sorted = actionsOf(null);
  const group = (label, actions) => make("optgroup", { label: label },
    ...actions.map((action) => make("option", { value: action.id }, action.name)));
  fill($("live-action"), "choose a step", [
    group("of the task", sorted.filter((action) => own.has(action.id))),
    group("others", sorted.filter((action) => !own.has(action.id))),
  ]);
}

function remaining() {
  const counts = Object.entries(state.remaining);
  const most = state.goal ? "" : counts[counts.length - 1][0];
  const likely = counts.filter(([, share]) => share >= 0.05).sort((a, b) => b[1] - a[1]);
  return ["Steps that remain: ", ...likely.flatMap(([count, share], place) => [
    (place ? ", " : "") + count + (count === most ? " or more" : "") + " (", number("length", percent(share)), ")"]), "."];
}

// ---- controls

// `work` gives the goal of the query, in fields of a request
export function onSessionGoal(work) {
  goal = work;
}

$("live-begin").addEventListener("click", guarded(begin, PLACE));
$("live-end").addEventListener("click", guarded(end, PLACE));
$("live-undo").addEventListener("click", () => add({ undo: true }));
onSubmit("live-other", async () => {
  await add({ done: Number($("live-action").value) });
  $("live-action").value = "";
});
onSubmit("live-video", () => add({ video: { id: video().id, dataset: video().dataset, step: Number($("live-scene").value) } }));

