// New annotations: plans that are kept, corrected, and downloaded as a table of steps.
import { $, make, onSubmit } from "./base.js";
import { actionsOf, run } from "./runs.js";
import { parts, t, tenth } from "./words.js";

const STORE = "cefito-annotations"; // of this tab
const COLUMNS = ["video", "task", "step", "start", "end"];
// gaps of videos: { video, task, start, end, even, steps: [{ step, start, end }] }; as long as
// `even`, the steps have equal shares of the gap
let kept = [];

try {
  kept = JSON.parse(sessionStorage.getItem(STORE)) || [];
} catch (problem) {
  kept = []; // storage is optional
}

function store() {
  try {
    sessionStorage.setItem(STORE, JSON.stringify(kept));
  } catch (problem) {
    // storage is optional
  }
}

// Add the plan of a gap, or put it in the place of another plan of the same gap.
export function keep(one) {
  const same = kept.findIndex((other) => other.video === one.video && other.start === one.start && other.end === one.end);
  kept.splice(same < 0 ? kept.length : same, 1, one);
  for (const other of kept) if (other.video === one.video) other.task = one.task;
  showAnnotation();
  $("annotation-head").focus();
}

function spread(one) {
  if (!one.even) return;
  const share = (one.end - one.start) / one.steps.length;
  one.steps.forEach((step, place) => {
    step.start = rounded(one.start + place * share);
    step.end = rounded(one.start + (place + 1) * share);
  });
}

const rounded = (value) => Math.round(100 * value) / 100;

export function showAnnotation(focus) {
  store();
  $("annotation").hidden = !kept.length;
  const names = (all) => [...new Set(all.map((one) => one.name))].map((name) => make("option", { value: name }));
  $("step-names").replaceChildren(...names(actionsOf(null)));
  $("task-names").replaceChildren(...names(run().tasks));
  $("kept").replaceChildren(...kept.map(group));
  if (focus && $(focus)) $(focus).focus();
}

function input(attributes, label, value, work) {
  const field = make("input", { ...attributes, "aria-label": label, required: true });
  field.value = value;
  field.addEventListener("change", () => { work(field.value); store(); }); // it stays, and so does the focus
  return field;
}

function button(label, text, work, id, disabled = false) {
  const one = make("button", { type: "button", id: id, "aria-label": label, title: label, disabled: disabled }, text);
  one.addEventListener("click", work);
  return one;
}

function group(one, number) {
  spread(one);
  const id = "kept-" + number;
  const task = input({ list: "task-names", maxlength: 300, class: "task" }, t("task.of", { video: one.video }), one.task, (value) => {
    kept.forEach((other, place) => {
      if (other.video !== one.video) return;
      other.task = value.trim();
      $("kept").children[place].querySelector(".task").value = value;
    });
  });
  const added = () => {
    one.steps.push({ step: "", start: null, end: null });
    showAnnotation(id + "-step-" + (one.steps.length - 1));
  };
  const even = () => {
    one.even = true;
    showAnnotation(id + "-even");
  };
  const removed = () => {
    kept.splice(number, 1);
    showAnnotation();
    $("plans-head").focus();
  };
  return make("fieldset", {},
    make("legend", {}, ...parts("kept", { video: make("b", {}, one.video), start: tenth(one.start), end: tenth(one.end) })),
    make("div", { class: "row" }, make("label", {}, t("task") + " ", task)),
    make("ol", { class: "kept" }, ...one.steps.map((step, place) => row(one, step, place, id))),
    make("p", {}, button(t("step.add.to", { video: one.video }), t("step.add"), added, id + "-add"), " ",
      button(t("spread.of", { video: one.video }), t("spread"), even, id + "-even"), " ",
      button(t("remove.of", { video: one.video }), t("remove"), removed, id + "-remove")));
}

function row(one, step, place, id) {
  const named = { step: t("called", { place: place + 1, video: one.video }) };
  const time = (side) => input({ type: "number", min: 0, step: "any", class: "time", id: id + "-" + side + "-" + place },
    t(side + ".of", named), step[side] === null ? "" : step[side], (value) => {
      one.even = false;
      step[side] = value === "" ? null : Number(value);
    });
  const move = (by) => () => {
    const times = one.steps.map(({ start, end }) => ({ start, end })); // stay in their places
    one.steps.splice(place, 1);
    one.steps.splice(place + by, 0, step);
    one.steps.forEach((other, index) => Object.assign(other, times[index]));
    showAnnotation(id + "-step-" + (place + by));
  };
  const remove = () => {
    one.steps.splice(place, 1);
    showAnnotation(one.steps.length ? id + "-step-" + Math.min(place, one.steps.length - 1) : id + "-add");
  };
  return make("li", {},
    input({ list: "step-names", maxlength: 300, id: id + "-step-" + place }, t("name.of", named), step.step, (value) => {
      step.step = value.trim();
    }),
    make("span", { class: "times" }, ...parts("kept.times", { start: time("start"), end: time("end") })),
    make("span", { class: "moves" },
      button(t("up", named), "↑", move(-1), null, place === 0),
      button(t("down", named), "↓", move(1), null, place === one.steps.length - 1),
      button(t("remove.step", named), "✕", remove, null)));
}

// ---- the table of `cefito data prepare custom`

const FORMULA = /^'*[=+@\uff1d\uff0b\uff0d\uff20\t\r\n-]/;  // to spreadsheets; its reader removes the apostrophe
const plain = (value) => (FORMULA.test(value) ? "'" + value : String(value));
const quoted = (value) => (/[",;\t\r\n]/.test(value) ? '"' + plain(value).replaceAll('"', '""') + '"' : plain(value));

function table() {
  const rows = kept.flatMap((one) => one.steps.map((step) => [one.video, one.task, step.step, step.start, step.end]));
  return [COLUMNS, ...rows].map((row) => row.map(quoted).join(",") + "\n").join("");
}

// steps that end before they start cannot be downloaded
function check() {
  kept.forEach((one, number) => one.steps.forEach((step, place) =>
    $("kept-" + number + "-end-" + place).setCustomValidity(step.end < step.start ? t("ends.early") : "")));
  return $("annotation-form").reportValidity();
}

$("download").addEventListener("click", () => check());
onSubmit("annotation-form", () => {
  const address = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
  make("a", { href: address, download: "STEPS.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
});
$("discard").addEventListener("click", () => {
  kept = [];
  showAnnotation();
  $("plan").focus();
});
