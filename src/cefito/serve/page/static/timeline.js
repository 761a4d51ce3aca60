// The timeline of a video: its steps, and two handles at the start and the end of the gap to plan.
// Handles of an annotated video snap to its steps; those of another video move freely.
import { $, clamp, make, number } from "./base.js";
import { parts, seconds, t, tenth } from "./words.js";

const FINE = 0.5; // seconds of a key on a free handle
const COARSE = 5;
const SIDES = ["start", "end"];

let scale = null; // of the present video
let changed = () => {};

export const handle = (side) => $("handle-" + side);

// the gap: its `start` and `end` in seconds; `first` and `last`, its steps, if they are known
export const gap = () => scale && scale.gap();

// The gap is from the start of step `first` to the end of step `last`, `least` to `most` steps.
function snapped(steps, least, most, wanted) {
  const count = steps.length;
  const place = { start: 1, end: least };
  const scale = {
    to: Math.max(...steps.map((step) => step.end)),
    steps: steps,
    gap: () => ({ first: place.start, last: place.end, start: scale.time("start"), end: scale.time("end") }),
    time: (side) => steps[place[side] - 1][side],
    range: (side) => (side === "start" ? [1, count - least + 1] : [least, count]),
    value: (side) => place[side],
    words: () => t(place.start === place.end ? "gap.step" : "gap.steps", { first: place.start, last: place.end }),
    text: (side) => t("handle." + side, { step: place[side], name: steps[place[side] - 1].name, second: tenth(scale.time(side)) }),
    nearest: (side, time) => steps.reduce((best, step, index) =>
      (Math.abs(step[side] - time) < Math.abs(steps[best - 1][side] - time) ? index + 1 : best), 1),
    key: (side, fine, coarse) => place[side] + fine + 5 * coarse,
    move: (side, value) => {
      place[side] = clamp(value, ...scale.range(side));
      const { start, end } = place;
      if (side === "start") place.end = clamp(end, start + least - 1, Math.min(count, start + most - 1));
      else place.start = clamp(start, Math.max(1, end - most + 1), end - least + 1);
    },
  };
  scale.move("start", wanted.first || 1);
  place.end = clamp(wanted.last || count, place.start + least - 1, Math.min(count, place.start + most - 1));
  return scale;
}

// The gap is between two times of a video of which the length alone is known.
function free(duration, wanted) {
  const LEAST = 0.1;
  const time = { start: clamp(wanted.start || 0, 0, duration), end: clamp(wanted.end || duration, 0, duration) };
  const scale = {
    to: duration,
    steps: [],
    gap: () => ({ ...time }),
    time: (side) => time[side],
    range: () => [0, duration],
    value: (side) => time[side],
    words: () => t("gap.free"),
    text: (side) => t("second.at", { second: tenth(time[side]) }),
    nearest: (_, value) => value,
    key: (side, fine, coarse) => time[side] + FINE * fine + COARSE * coarse,
    move: (side, value) => {
      const [least, most] = side === "start" ? [0, time.end - LEAST] : [time.start + LEAST, duration];
      time[side] = Math.round(10 * clamp(value, least, most)) / 10;
    },
  };
  return scale;
}

// Show an annotated video; the present gap stays if `wanted` is it and it fits.
export function showSteps(steps, least, most, wanted = {}) {
  scale = steps.length >= least ? snapped(steps, least, most, wanted) : null;
  draw();
}

// Show a video of a length in seconds.
export function showLength(duration, wanted = {}) {
  scale = duration > 0 ? free(duration, wanted) : null;
  draw();
}

export function hideTimeline() {
  scale = null;
  draw();
}

// whether there is an end of the gap
export function endHidden(hidden) {
  handle("end").hidden = hidden;
  place();
}

const share = (time, to) => 100 * time / (to || 1) + "%";
const part = (time) => share(time, scale.to);

// Draw steps into a list, which is as wide as a number of seconds; a narrow one shows its number.
export function drawSteps(list, steps, to) {
  list.replaceChildren(...steps.map((step, index) => {
    const words = t("strip.step", { place: index + 1, name: step.name, start: tenth(step.start), end: tenth(step.end) });
    const item = make("li", { title: words }, make("span", { class: "apart" }, words), make("span", { class: "named", "aria-hidden": "true" }, step.name), make("span", { class: "place", "aria-hidden": "true" }, String(index + 1)));
    item.style.left = share(step.start, to);
    item.style.width = share(step.end - step.start, to);
    return item;
  }));
  list.hidden = !steps.length;
}

function draw() {
  $("timeline").hidden = !scale;
  if (!scale) return;
  drawSteps($("timeline-steps"), scale.steps, scale.to);
  $("timeline-end").replaceChildren(number("second", seconds(scale.to)));
  place();
}

function place() {
  if (!scale) return;
  for (const side of SIDES) {
    const one = handle(side);
    const [least, most] = scale.range(side);
    one.style.left = part(scale.time(side));
    one.setAttribute("aria-valuemin", least);
    one.setAttribute("aria-valuemax", most);
    one.setAttribute("aria-valuenow", scale.value(side));
    one.setAttribute("aria-valuetext", scale.text(side));
  }
  const open = handle("end").hidden;
  $("timeline-gap").style.left = part(scale.time("start"));
  $("timeline-gap").style.width = "calc(" + (open ? "100%" : part(scale.time("end"))) + " - " + part(scale.time("start")) + ")";
  $("timeline-gap").classList.toggle("open", open);
  const said = open ? parts("gap.open", { second: number("second", t("second.at", { second: tenth(scale.time("start")) })) })
    : parts("gap.said", { gap: scale.words(), length: number("gap", seconds(scale.time("end") - scale.time("start"))) });
  $("timeline-said").replaceChildren(...said);
}

function move(side, value) {
  scale.move(side, value);
  place();
  changed();
}

export const moveTo = (side, time) => move(side, scale.nearest(side, time));

function timeAt(event) {
  const box = $("timeline-track").getBoundingClientRect();
  return scale.to * clamp((event.clientX - box.left) / box.width, 0, 1);
}

// call `work` when the user has moved a handle
export function onTimeline(work) {
  changed = work;
  for (const side of SIDES) {
    const one = handle(side);
    one.addEventListener("keydown", (event) => {
      const [fine, coarse] = {
        ArrowRight: [1, 0], ArrowUp: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [-1, 0], PageUp: [0, 1], PageDown: [0, -1],
      }[event.key] || [0, 0];
      if (fine || coarse) move(side, scale.key(side, fine, coarse));
      else if (event.key === "Home") move(side, scale.range(side)[0]);
      else if (event.key === "End") move(side, scale.range(side)[1]);
      else return;
      event.preventDefault();
    });
  }
  // a press anywhere takes the nearer handle
  $("timeline-track").addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [nearest] = SIDES.filter((side) => !handle(side).hidden).sort((a, b) => distance(a, event) - distance(b, event));
    const moved = (now) => move(nearest, scale.nearest(nearest, timeAt(now)));
    const track = $("timeline-track");
    event.preventDefault();
    handle(nearest).focus();
    track.setPointerCapture(event.pointerId);
    moved(event);
    track.addEventListener("pointermove", moved);
    for (const end of ["pointerup", "pointercancel"]) {
      track.addEventListener(end, () => track.removeEventListener("pointermove", moved), { once: true });
    }
  });
}

function distance(side, event) {
  const box = handle(side).getBoundingClientRect();
  const signed = event.clientX - (box.left + box.right) / 2;
  // where both are in one place, the side of the press decides
  return Math.abs(signed) + (signed > 0 === (side === "start") ? 0.5 : 0);
}
