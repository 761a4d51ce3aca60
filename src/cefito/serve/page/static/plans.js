// The plans of an answer: strips of steps, their numbers, and what can be done with a step.
import { $, bar, make, number, onSubmit, percent, say } from "./base.js";
import { actionsKnown, add, held, showConstraints } from "./constraints.js";
import { showGraph } from "./graph.js";
import { MARKS, missingSteps, stepKinds } from "./mistakes.js";
import { run, taskOf } from "./runs.js";

let answer = null; // the one that is shown
let chosen = null; // step and action of the dialog
let shown = 0; // answers so far
let keep = null; // keeps a plan as an annotation; null if it has no video

export function hideAnswer() {
  answer = null;
  showGraph($("task").value ? taskOf($("task").value) : null);
  $("answer").hidden = true;
}

export function showAnswer(found, keeping) {
  answer = found;
  keep = keeping;
  const again = shown++ ? "Planned again: " : "";
  const best = answer.plans.length ? answer.plans[0].names.join(", ") : "";
  const count = answer.plans.length === 1 ? "1 plan" : answer.plans.length + " plans";
  if (best) {
    say(again + count + " in ", number("milliseconds", Math.round(answer.milliseconds) + " ms"), ".",
      make("span", { class: "apart" }, " The best: " + best + "."));
  } else say("No plan.");
  $("task-said").replaceChildren(...(answer.task === null ? [] : ["Task: " + answer.task]),
    ...(typeof answer.task_probability === "number" ? [", ", number("task", percent(answer.task_probability))] : []),
    answer.task === null ? "" : ".");
  if (answer.task !== null) {
    actionsKnown(taskOf(answer.task_id));
    showGraph(taskOf(answer.task_id));
  }
  $("warnings").replaceChildren(...answer.warnings.map((text) => make("li", {}, text)));
  showShares();
  $("sets-said").hidden = !answer.sets;
  if (answer.sets) $("sets-said").textContent = covered(answer.sets);
  $("choose-said").hidden = !run().constraints;
  $("effort").replaceChildren(...effort());
  $("truth-row").hidden = !answer.truth;
  $("answer").hidden = false;
  $("answer").classList.remove("old");
  showConstraints();
  strips();
}

// the set of plans that holds the right one
function covered({ coverage, plans }) {
  const many = plans.size === null ? "more than are listed" : plans.size === 1 ? "1 plan" : "the " + plans.size + " likeliest plans";
  return "The set for " + Number((100 * coverage).toFixed(2)) + " % of new videos: " + many + ".";
}

// the probability of each number of steps
function showShares() {
  const shares = Object.entries(answer.lengths || {});
  const toEnd = answer.known && !answer.known.goal;
  const most = shares.length ? shares[shares.length - 1][0] : "";
  $("shares").hidden = shares.length < 2;
  $("shares-said").textContent = toEnd ? "steps to the end, at most " + most : "number of steps";
  $("shares").querySelector("ol").replaceChildren(...shares.map(([count, share]) => {
    return make("li", {}, make("b", {}, count), make("span", { class: "share" }, number("length", percent(share))), bar(share));
  }));
}

function effort() {
  const cost = answer.evaluated;
  return [
    answer.exact ? "Exact: no other allowed sequence is better. " : "Not exact: there may be better plans. ",
    number("tokens", cost.token_forwards.toLocaleString("en") + " token forwards"), ", ",
    number("sequences", cost.leaves.toLocaleString("en") + " sequences scored"), ".",
  ];
}

function strips() {
  const truth = answer.truth && $("compare").checked ? answer.truth.actions : null;
  $("plans").replaceChildren(...answer.plans.map((one, place) => {
    const ids = one.actions;
    const kinds = truth ? stepKinds(ids, truth) : null;
    const steps = ids.map((id, step) => {
      const name = one.names[step];
      const pinned = held.pin[step + 1] === id;
      const button = run().constraints
        ? make("button", { type: "button", "aria-haspopup": "dialog" }, name)
        : make("span", {}, name);
      const words = (kinds ? " (" + kinds[step] + ")" : "") + (pinned ? " (pinned)" : "");
      if (words) button.append(make("span", { class: "apart" }, words));
      if (run().constraints) button.addEventListener("click", () => choose(step + 1, id, name));
      return make("li", { class: kinds ? MARKS[kinds[step]] : null, "data-pinned": pinned }, button);
    });
    const right = truth && ids.length === truth.length && ids.every((id, step) => id === truth[step]);
    return make("div", { class: "p" },
      make("span", {}, ...figures(one, place), right ? " · annotated " : " ", keep ? keeper(one, place) : "",
        ...(typeof one.probability === "number" ? [bar(one.probability)] : [])),
      make("ol", { class: "s", "aria-label": "Plan " + (place + 1) }, ...steps));
  }));
  $("truth").hidden = $("legend").hidden = !truth;
  if (!truth) return;
  const missing = answer.plans.length
    ? missingSteps(answer.plans[0].actions, truth)
    : truth.map(() => true);
  $("truth").replaceChildren(make("div", { class: "p" },
    make("b", {}, "annotated"),
    make("ol", { class: "s", "aria-label": "Annotated steps" }, ...answer.truth.names.map((name, step) => make(
      "li", { class: missing[step] ? "m" : null },
      make("span", {}, name, missing[step] ? make("span", { class: "apart" }, " (missing)") : ""))))));
}

function keeper(one, place) {
  const button = make("button", { type: "button", class: "keep", "aria-label": "Keep plan " + (place + 1) + " as an annotation" }, "Keep");
  button.addEventListener("click", () => keep(one, one.task || answer.task || ""));
  return button;
}

function figures(one, place) {
  const parts = [number("place", String(place + 1))];
  if (typeof one.probability === "number") parts.push(" · ", number("probability", percent(one.probability)));
  if (answer.weights && answer.weights.energy) parts.push(" · ", number("energy", "E " + one.energy.toFixed(3).replace("-", "−")));
  return parts;
}

// ---- one step

function choose(step, action, name) {
  chosen = { step: step, action: action };
  $("step-head").textContent = "Step " + step + ": " + name;
  $("step-pin").textContent = "Pin it to step " + step;
  $("step-then").value = "";
  $("step").showModal();
}

function decide(option, entry) {
  $("step").close();
  $("plans-head").focus();
  add(option, entry());
}

$("compare").addEventListener("change", () => { if (answer) strips(); });
$("step-pin").addEventListener("click", () => decide("pin", () => [chosen.step, chosen.action]));
$("step-forbid").addEventListener("click", () => decide("forbid", () => [chosen.action]));
onSubmit("step-before", () => decide("before", () => [chosen.action, Number($("step-then").value)]));
$("step-close").addEventListener("click", () => $("step").close());
