// A video of the user's own: its file, its pictures at both ends of the gap, and the two times.
import { $, complain, make } from "./base.js";
import { limits } from "./runs.js";
import { gap, moveTo, showLength } from "./timeline.js";
import { t, tenth } from "./words.js";

const SIDES = ["start", "end"];
const views = {}; // elements that show the video at both ends
let address = "";
let known = false; // whether the browser can read it
let changed = () => {};

// the file of a field, unless it is too large
export function fileOf(field) {
  const file = $(field).files[0];
  return file && file.size <= limits.upload_mib * 2 ** 20 ? file : undefined;
}

// say if a chosen file is too large
export function checkSize(field) {
  const file = $(field).files[0];
  const mib = (bytes) => t("mebibytes", { value: tenth(bytes / 2 ** 20) });
  if (file && !fileOf(field)) complain(t("too.large", { file: file.name, size: mib(file.size), most: mib(limits.upload_mib * 2 ** 20) }));
}

export const filmName = () => (fileOf("film") ? fileOf("film").name.replace(/\.[^.]*$/, "") : "");

// the two times, also of a video that the browser cannot read
export function times() {
  if (known) return gap();
  const [start, end] = SIDES.map((side) => $("time-" + side).valueAsNumber);
  if ($("time-end-row").hidden) return start >= 0 ? { start, end: start } : null;
  return start >= 0 && end > start ? { start, end } : null;
}

export function hideFilm() {
  for (const view of Object.values(views)) view.hidden = true;
}

// show the times and the pictures of the gap
export function showFilm(shown) {
  const found = times();
  for (const [side, view] of Object.entries(views)) {
    view.hidden = !known || !shown(side);
    if (!known || !found) continue;
    $("time-" + side).value = found[side];
    if (Math.abs(view.currentTime - found[side]) > 0.01) view.currentTime = found[side];
  }
}

// open the chosen file; its timeline comes once its length is known
export function openFilm(wanted = {}) {
  const file = fileOf("film");
  if (address) URL.revokeObjectURL(address);
  known = false;
  showLength(0);
  address = file ? URL.createObjectURL(file) : "";
  for (const view of Object.values(views)) {
    if (address) view.src = address;
    else view.removeAttribute("src");
  }
  views.start.onloadedmetadata = () => {
    known = Number.isFinite(views.start.duration) && views.start.duration > 0;
    showLength(known ? views.start.duration : 0, wanted);
    changed();
  };
  views.start.onerror = () => $("film-said").textContent = address ? t("film.unreadable") : "";
  $("film-said").textContent = "";
}

// call `work` when the file or its times have changed
export function onFilm(work) {
  changed = work;
  for (const side of SIDES) {
    views[side] = make("video", { id: side + "-film", "aria-label": t("film." + side), playsinline: true, preload: "auto", hidden: true });
    views[side].muted = true;
    $(side + "-said").before(views[side]);
    $("time-" + side).addEventListener("change", () => {
      if (known) moveTo(side, $("time-" + side).valueAsNumber || 0);
      else changed();
    });
  }
  $("film").addEventListener("change", () => {
    openFilm(known ? {} : times() || {}); // the times of a link stay
    changed();
    checkSize("film");
  });
}
