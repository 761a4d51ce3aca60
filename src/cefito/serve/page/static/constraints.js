// The constraints of every plan: those that are held, their words, and the forms that add them.
import { $, fill, make, onSubmit } from "./base.js";
import { fillActions, nameOf, run } from "./runs.js";
import { t } from "./words.js";

// one form for each constraint that the service knows, by its option
const forms = new Map([...document.querySelectorAll("form.constraint")].map((form) => [form.dataset.option, form.dataset]));
const EMPTY = { map: () => ({}), list: () => [], value: () => undefined };
export let held = nothing();
let changed = () => {};

function nothing() {
  return Object.fromEntries([...forms].map(([option, form]) => [option, EMPTY[form.shape]()]));
}

export function clear() {
  held = nothing();
  showConstraints();
}

export function actionsKnown(task) {
  for (const select of document.querySelectorAll("select.actions")) fillActions(select, task);
  const steps = () => Array.from({ length: run().horizon }, (_, step) => make("option", { value: step + 1 }, String(step + 1)));
  for (const select of document.querySelectorAll("select.steps")) fill(select, null, steps());
}

// the words of a constraint, with the parts of an entry in their places
function inWords(option, form, entry) {
  const kinds = form.kinds.split(" ");
  return t("held." + option, entry.map((part, place) => (kinds[place] === "action" ? nameOf(Number(part)) : part)), form.words);
}

// the entries of an option, each with how to remove it
function entries(option, shape) {
  const value = held[option];
  if (shape === "map") return Object.entries(value).map((entry) => [entry, () => delete value[entry[0]]]);
  if (shape === "value") return value === undefined ? [] : [[[value], () => { held[option] = undefined; }]];
  return value.map((item) => [[item].flat(), () => { held[option] = value.filter((other) => other !== item); }]);
}

export function showConstraints() {
  const found = [...forms].flatMap(([option, form]) =>
    entries(option, form.shape).map(([entry, remove]) => [inWords(option, form, entry), remove]));
  $("held").replaceChildren(...found.map(([text, remove]) => {
    const button = make("button", { type: "button", "aria-label": t("remove.named", { what: text }) }, t("remove"));
    button.addEventListener("click", () => { remove(); settled(); });
    return make("li", {}, make("span", {}, text), button);
  }));
  $("constraints").hidden = !found.length;
}

function hold(option, entry) {
  const shape = forms.get(option).shape;
  if (shape === "map") held[option][entry[0]] = entry[1];
  else if (shape === "value") held[option] = entry.length ? entry[0] : true;
  else {
    const item = entry.length === 1 ? entry[0] : entry;
    if (!held[option].some((other) => JSON.stringify(other) === JSON.stringify(item))) held[option].push(item);
  }
}

export function add(option, entry) {
  hold(option, entry);
  changed();
}

// ---- as parts of a link: pin=1,17

export function toLink(link) {
  for (const [option, form] of forms) {
    for (const [entry] of entries(option, form.shape)) link.append(option, entry[0] === true ? "" : entry.join(","));
  }
}

export function fromLink(link) {
  for (const option of forms.keys()) {
    for (const text of link.getAll(option)) {
      const entry = text ? text.split(",").map(Number) : [];
      if (entry.every(Number.isInteger)) hold(option, entry);
    }
  }
  showConstraints();
}

// after a removal: the focus stays in the list, or goes to the options
function settled() {
  changed();
  ($("constraints").hidden ? $("options").querySelector("summary") : $("constraints-head")).focus();
}

// call `work` after each change
export function onConstraints(work) {
  changed = () => { showConstraints(); work(); };
  $("constraint").addEventListener("change", () => {
    for (const option of forms.keys()) $("add-" + option).hidden = option !== $("constraint").value;
  });
  for (const option of forms.keys()) {
    onSubmit("add-" + option, () => {
      const entry = [];
      for (const input of $("add-" + option).querySelectorAll("[data-part]")) entry[input.dataset.part] = Number(input.value);
      add(option, entry);
    });
  }
  $("clear").addEventListener("click", () => { held = nothing(); settled(); });
}
