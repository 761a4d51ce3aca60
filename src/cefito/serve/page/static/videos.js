// The search of a video: a text field whose list holds the videos that fit it, a page at a time.
import { $, get, guarded, make, number } from "./base.js";
import { run } from "./runs.js";
import { counted, t } from "./words.js";

const PAGE = 20; // videos
const PAUSE = 150; // milliseconds without a key before the search

let chosen = null;
let found = []; // videos of the list
let total = 0;
let listed = ""; // words of the list
let active = -1; // place in the list
let going = null; // the search
let timer = 0; // until it begins
let typed = false; // words that have not been searched
let picked = () => {};

export const video = () => chosen;

async function search(words, offset) {
  if (going) going.abort();
  const mine = (going = new AbortController());
  const query = new URLSearchParams({ run: run().name, horizon: run().horizon, search: words, windows: true, offset: offset, limit: PAGE });
  if ($("task").value) query.set("task", $("task").value);
  const answer = await get("v1/videos?" + query, { signal: mine.signal });
  total = answer.total;
  return answer.videos;
}

// Choose a video by its id; without one, the first. False if another choice came in between.
export async function chooseVideo(id = "", dataset = null) {
  close();
  found = [];
  if (run().datasets.length) {
    try {
      found = await search(id, 0);
    } catch (problem) {
      if (problem.name === "AbortError") return false;
      throw problem;
    }
  }
  const same = (one) => one.id === id && (!dataset || one.dataset === dataset);
  chosen = (id ? found.find(same) : found[0]) || null;
  $("video").value = chosen ? chosen.id : "";
  tell();
  return true;
}

function tell() {
  $("videos-said").replaceChildren(run().datasets.length ? (total ? number("videos", counted("videos", total)) : t("videos.none")) : "");
}

function option(one, place) {
  const about = [one.task.name, counted("steps", one.steps.length), one.split];
  if (run().datasets.length > 1) about.push(one.dataset);
  const item = make("li", { role: "option", id: "video-" + place, "aria-selected": "false" },
    make("b", {}, one.id), " ", make("span", { class: "soft" }, about.join(", ")));
  item.addEventListener("click", () => choose(place));
  return item;
}

function show(videos) {
  const before = found.length;
  found.push(...videos);
  $("videos").append(...videos.map((one, place) => option(one, before + place)));
  $("videos").hidden = !found.length;
  $("video").setAttribute("aria-expanded", String(found.length > 0));
  tell();
}

async function open(words) {
  clearTimeout(timer);
  const videos = await search(words, 0);
  typed = typed && $("video").value !== words; // typed on while the list was fetched
  listed = words;
  found = [];
  activate(-1);
  $("videos").replaceChildren();
  $("videos").scrollTop = 0;
  show(videos);
  if (words) activate(0);
}

let adding = false;
const more = guarded(async () => {
  if (adding || found.length >= total) return;
  adding = true;
  try {
    show(await search(listed, found.length));
  } finally {
    adding = false;
  }
});

function activate(place) {
  const items = $("videos").children;
  if (items[active]) items[active].setAttribute("aria-selected", "false");
  active = Math.min(place, items.length - 1);
  const item = items[active];
  if (item) {
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    $("video").setAttribute("aria-activedescendant", item.id);
  } else $("video").removeAttribute("aria-activedescendant");
  if (active >= 0 && active >= items.length - 3) more();
}

const isOpen = () => !$("videos").hidden;

function close() {
  clearTimeout(timer);
  typed = false;
  if (going) going.abort();
  activate(-1);
  $("videos").hidden = true;
  $("video").setAttribute("aria-expanded", "false");
  $("video").value = chosen ? chosen.id : "";
}

function choose(place) {
  chosen = found[place];
  close();
  picked();
}

// call `work` when the user has chosen a video
export function onVideo(work) {
  picked = work;
  const field = $("video");
  const wanted = guarded(open);
  const first = guarded(async () => {
    await open(field.value);
    if (found.length) choose(0);
  });
  field.addEventListener("focus", () => field.select());
  field.addEventListener("click", () => { if (!isOpen()) wanted(""); });
  field.addEventListener("input", () => {
    clearTimeout(timer);
    typed = true;
    timer = setTimeout(() => wanted(field.value), PAUSE);
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) {
      if (isOpen()) activate(Math.max(0, active + step));
      else wanted("");
    } else if (event.key === "Enter" && typed) first();
    else if (event.key === "Enter" && isOpen() && active >= 0) choose(active);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  $("videos").addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
  $("videos").addEventListener("scroll", () => {
    const list = $("videos");
    if (list.scrollTop + list.clientHeight > list.scrollHeight - 40) more();
  });
}
