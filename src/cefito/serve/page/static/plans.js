// The plans of an answer: strips of steps, their numbers, and what can be done with a step.
import { $, bar, make, number, onSubmit, say } from "./base.js";
import { actionsKnown, add, held, showConstraints } from "./constraints.js";
import { showGraph } from "./graph.js";
import { MARKS, missingSteps, stepKinds } from "./mistakes.js";
import { run, taskOf } from "./runs.js";
import { counted, language, parts, percent, t, whole } from "./words.js";

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
  const best = answer.plans.length ? answer.plans[0].names.join(", ") : "";
  const count = answer.plans.length;
  if (best) {
    const time = number("milliseconds", whole(answer.milliseconds) + " " + t("number.milliseconds"));
    const said = parts(count === 1 ? "plans.one" : "plans.many", { count: whole(count), time });
    say(...(shown++ ? parts("plans.again", { said }) : said), make("span", { class: "apart" }, " " + t("best", { plan: best })));
  } else say(t("plans.none"));
  const sure = typeof answer.task_probability === "number";
  const share = sure ? number("task", percent(answer.task_probability)) : "";
  $("task-said").replaceChildren(...(answer.task === null ? [] : parts(sure ? "task.one" : "task.named", { task: answer.task, share })));
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
  const many = plans.size === null ? t("set.more") : counted("set", plans.size);
  const share = t("percent", { value: Number((100 * coverage).toFixed(2)).toLocaleString(language) });
  return t("set", { share, plans: many });
}

// the probability of each number of steps
function showShares() {
  const shares = Object.entries(answer.lengths || {});
  const toEnd = answer.known && !answer.known.goal;
  const most = shares.length ? shares[shares.length - 1][0] : "";
  $("shares").hidden = shares.length < 2;
  $("shares-said").textContent = toEnd ? t("to.end", { most }) : t("number.length");
  $("shares").querySelector("ol").replaceChildren(...shares.map(([count, share]) => {
    return make("li", {}, make("b", {}, count), make("span", { class: "share" }, number("length", percent(share))), bar(share));
  }));
}

function effort() {
  const cost = answer.evaluated;
  return [
    t(answer.exact ? "exact" : "not.exact") + " ",
    ...parts("cost", {
      tokens: number("tokens", t("tokens", { count: whole(cost.token_forwards) })),
      sequences: number("sequences", t("sequences", { count: whole(cost.leaves) })),
    }),
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
      const words = (kinds ? " (" + t("kind." + kinds[step]) + ")" : "") + (pinned ? " (" + t("pinned") + ")" : "");
      if (words) button.append(make("span", { class: "apart" }, words));
      if (run().constraints) button.addEventListener("click", () => choose(step + 1, id, name));
      return make("li", { class: kinds ? MARKS[kinds[step]] : null, "data-pinned": pinned }, button);
    });
    const right = truth && ids.length === truth.length && ids.every((id, step) => id === truth[step]);
    return make("div", { class: "p" },
      make("span", {}, ...figures(one, place), right ? " · " + t("plan.annotated") + " " : " ", keep ? keeper(one, place) : "",
        ...(typeof one.probability === "number" ? [bar(one.probability)] : [])),
      make("ol", { class: "s", "aria-label": t("plan.place", { place: place + 1 }) }, ...steps));
  }));
  $("truth").hidden = $("legend").hidden = !truth;
  if (!truth) return;
  const missing = answer.plans.length
    ? missingSteps(answer.plans[0].actions, truth)
    : truth.map(() => true);
  $("truth").replaceChildren(make("div", { class: "p" },
    make("b", {}, t("plan.annotated")),
    make("ol", { class: "s", "aria-label": t("steps.annotated") }, ...answer.truth.names.map((name, step) => make(
      "li", { class: missing[step] ? "m" : null },
      make("span", {}, name, missing[step] ? make("span", { class: "apart" }, " (" + t("kind.missing") + ")") : ""))))));
}

function keeper(one, place) {
  const button = make("button", { type: "button", class: "keep", "aria-label": t("keep.plan", { place: place + 1 }) }, t("keep"));
  button.addEventListener("click", () => keep(one, one.task || answer.task || ""));
  return button;
}

function figures(one, place) {
  const parts = [number("place", String(place + 1))];
  if (typeof one.probability === "number") parts.push(" · ", number("probability", percent(one.probability)));
  if (answer.weights && answer.weights.energy) parts.push(" · ", number("energy", t("number.energy") + " " + one.energy.toFixed(3).replace("-", "−")));
  return parts;
}

// ---- one step

function choose(step, action, name) {
  chosen = { step: step, action: action };
  $("step-head").textContent = t("step.named", { step, name });
  $("step-pin").textContent = t("step.pin.to", { step });
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
