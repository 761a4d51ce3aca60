// The planning page: sends queries to the same service and shows its answers.
import { keep, showAnnotation } from "./annotation.js";
import { $, call, complain, fill, guarded, json, make, number, onSubmit, say, upload } from "./base.js";
import * as constraints from "./constraints.js";
import { checkSize, fileOf, filmName, hideFilm, onFilm, openFilm, showFilm, times } from "./film.js";
import { hideAnswer, showAnswer } from "./plans.js";
import { chooseLinked, counts, fillActions, limits, loadRuns, nameOf, run, runShown, taskOf } from "./runs.js";
import { endHidden, gap, hideTimeline, onTimeline, showSteps } from "./timeline.js";
import { chooseVideo, onVideo, video } from "./videos.js";
import { parts as inParts, t, tenth } from "./words.js";

const KINDS = ["video", "film", "pictures", "nothing"];
const NO_LINK = new URLSearchParams();
const OPTIONS = ["task", "steps", "goal", "goal_text", "done", "top_k", "coverage"]; // of a link
let going = null; // the request
let done = []; // ids of the steps done before, if they are listed

const valueOf = (id) => Number($(id).value);
const kind = () => KINDS.find((one) => $("of-" + one).checked);
const byVideo = () => kind() === "video";
const byFilm = () => kind() === "film";
const withoutGoal = () => run().any_length && $("no-goal").checked;
const goalText = () => ($("words").hidden ? "" : $("goal-text").value.trim());
const goalHidden = () => withoutGoal() || Boolean(goalText());
const elapsed = () => ($("elapsed-row").hidden ? 0 : valueOf("elapsed"));
const listed = () => run().any_length && $("done-kind").value === "listed";

// ---- runs, tasks, videos

async function begin() {
  await loadRuns();
  const link = new URLSearchParams(location.search);
  $("top-k").max = limits.top_k;
  const linked = chooseLinked(link);
  await runChosen(linked ? link : NO_LINK);
  if (!linked) return;
  $("options").open = OPTIONS.some((one) => link.has(one));
  $("elapsed").value = link.get("elapsed") || "";
  $("top-k").value = link.get("top_k") || $("top-k").defaultValue;
  $("coverage").value = link.get("coverage") || "";
  if (!$("plan").disabled) await plan();
  else if (byFilm() || kind() === "pictures") say(t("link.files"));
}

async function runChosen(link = NO_LINK) {
  reset();
  runShown();
  const open = run().any_length;
  const uploads = run().uploads;
  const possible = { video: run().datasets.length > 0, film: uploads.includes("video"), pictures: uploads.includes("pictures"), nothing: open };
  const kinds = KINDS.filter((one) => possible[one]);
  for (const one of KINDS) $("of-" + one).parentElement.hidden = !possible[one];
  $("kind").hidden = kinds.length < 2;
  $("nothing").hidden = kinds.length > 0;
  $("no-uploads").hidden = possible.film || possible.pictures || !kinds.length;
  $("of-" + (kinds.includes(link.get("from")) ? link.get("from") : kinds[0] || "video")).checked = true;
  $("open").hidden = $("before").hidden = $("follow-row").hidden = !open;
  $("add").hidden = !run().constraints;
  $("no-goal").checked = link.get("goal") === "0";
  $("goal-text").value = link.get("goal_text") || "";
  fill($("count"), t("any"), counts().map((count) => make("option", { value: count }, String(count))));
  $("count").value = link.get("steps") || "";
  const before = link.get("done");
  $("done-kind").value = before === null ? "" : before === "video" ? before : "listed";
  done = before && before !== "video" ? before.split(",").map(Number) : [];
  fill($("task"), t("task.all"), run().tasks.map((task) => make("option", { value: task.id }, task.name)));
  $("task").value = link.get("task") || "";
  for (const side of ["start", "end"]) $("time-" + side).value = link.get(side) || "";
  showAnnotation();
  kindChosen();
  await taskChosen(link);
}

async function taskChosen(link = NO_LINK) {
  const task = $("task").value;
  const known = task === "" ? null : taskOf(task);
  $("given").disabled = !task || !run().true_task;
  if ($("given").disabled) $("given").checked = false;
  if (link.has("given")) $("given").checked = !$("given").disabled;
  constraints.actionsKnown(known);
  fillActions($("done-action"), known);
  constraints.fromLink(link);
  $("plan").disabled = true;
  if (!(await chooseVideo(link.get("video") || "", link.get("dataset")))) return; // another choice came in between
  videoChosen({ first: Number(link.get("first")), last: Number(link.get("last")) });
  if (!video() && link.has("video")) complain(t("video.missing", { video: link.get("video") }));
  else if (!video() && run().datasets.length) say(t("videos.short"));
}

function videoChosen(wanted = {}) {
  $("video-task").textContent = video() ? t("task.named", { task: video().task.name }) : "";
  if (byVideo()) showVideo(wanted);
}

// windows have the chosen number of steps, otherwise any that the run plans
function showVideo(wanted = gap() || {}) {
  const count = valueOf("count");
  if (video()) showSteps(video().steps, count || run().shortest, count || run().horizon, wanted);
  else hideTimeline();
  gapChosen();
}

function gapChosen() {
  const found = moments();
  const shown = (side) => Boolean(found) && !(side === "end" && goalHidden());
  $("elapsed-row").hidden = !run().elapsed || goalHidden() || kind() === "nothing";
  $("elapsed").value = found ? Math.round(1000 * (found.end - found.start)) / 1000 : "";
  stale();
  ready();
  endHidden(goalHidden());
  if (byFilm()) showFilm(shown);
  else hideFilm();
  for (const side of ["start", "end"]) {
    $(side + "-said").replaceChildren(...(shown(side) ? inParts("frame." + side, { second: number("second", t("second.at", { second: tenth(found[side]) })) }) : []));
    frame($(side), byVideo() && shown(side) ? side : "");
  }
}

// the gap between two moments, if the query is of a video
const moments = () => (byVideo() ? gap() : byFilm() ? fileOf("film") && times() : null);

async function frame(image, side) {
  const found = gap();
  const wanted = side
    ? new URLSearchParams({ run: run().name, horizon: run().horizon, video: video().id, dataset: video().dataset,
                            step: found.first, side: side, length: found.last - found.first + 1 }).toString()
    : "";
  image.dataset.wanted = wanted;
  image.hidden = true;
  if (!wanted) return;
  const frame = fetch("frame?" + wanted).then((response) => response.status === 200 && response.blob());
  const data = await frame.catch(() => null); // frames are optional
  if (!data || image.dataset.wanted !== wanted) return;
  if (image.src) URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(data);
  image.hidden = false;
}

// ---- files

function kindChosen() {
  $("by-video").hidden = !byVideo();
  $("by-film").hidden = !byFilm();
  $("by-pictures").hidden = kind() !== "pictures";
  $("frames").hidden = kind() === "nothing";
  if (kind() === "nothing") $("options").open = true;
  $("words").hidden = !run().uploads.includes("text") || withoutGoal();
  $("goal-row").hidden = $("time-end-row").hidden = goalHidden();
  const ofVideo = $("done-kind").querySelector("[value=video]");
  ofVideo.hidden = ofVideo.disabled = !byVideo();
  if (ofVideo.hidden && $("done-kind").value === "video") $("done-kind").value = "";
  showDone();
  if (byVideo()) showVideo();
  else if (byFilm()) openFilm(times() || {});
  else hideTimeline();
  if (!byVideo()) gapChosen();
  if (kind() === "pictures") for (const [field, side] of [["initial", "start"], ["goal", "end"]]) pictureChosen(field, side);
}

function pictureOf(field) {
  return kind() === "pictures" && !(field === "goal" && goalHidden()) ? fileOf(field) : undefined;
}

function pictureChosen(field, side) {
  const file = pictureOf(field);
  const image = $(side);
  image.dataset.wanted = "";
  if (image.src) URL.revokeObjectURL(image.src);
  image.hidden = !file;
  if (file) image.src = URL.createObjectURL(file);
  $(side + "-said").textContent = file ? file.name : "";
  stale();
  ready();
  checkSize(field);
}

function ready() {
  const initial = moments() || pictureOf("initial");
  const goal = moments() || pictureOf("goal") || goalHidden();
  const known = pictureOf("initial") || pictureOf("goal") || goalText() || $("given").checked ||
    (listed() && done.length > 0);
  const partial = run().any_length && !byVideo() && !byFilm() && known;
  $("plan").disabled = !((initial && goal) || partial);
  const session = new URLSearchParams({ run: run().name, horizon: run().horizon });
  if ($("given").checked) session.set("task", $("task").value);
  if (goalText()) session.set("goal_text", goalText());
  if (byFilm()) session.set("from", "film");
  if (video()) for (const part of ["id", "dataset"]) session.set(part === "id" ? "video" : part, video()[part]);
  $("follow").href = "session?" + session;
}

// the files and times of an upload; null if the query has none
function parts() {
  if (byFilm()) {
    const { start, end } = times();
    return { video: fileOf("film"), start, ...(goalHidden() ? {} : { end }) };
  }
  const given = ["initial", "goal"].filter(pictureOf).map((field) => [field, pictureOf(field)]);
  return given.length ? Object.fromEntries(given) : null;
}

// ---- steps done before

function showDone() {
  for (const part of document.querySelectorAll(".listed")) part.hidden = !listed();
  $("done").replaceChildren(...(listed() ? done : []).map((id, place) => {
    const button = make("button", { type: "button", "aria-label": t("remove.done", { step: nameOf(id) }) }, t("remove"));
    button.addEventListener("click", () => { done.splice(place, 1); $("done-kind").focus(); doneChanged(); });
    return make("li", {}, make("span", {}, nameOf(id)), button);
  }));
  $("done-none").hidden = !listed() || done.length > 0;
}

function doneChanged() {
  showDone();
  stale();
  ready();
}

// ---- plans

function reset() {
  constraints.clear();
  stale();
}

// the plans shown no longer belong to the query
function stale() {
  if (going) going.abort();
  hideAnswer();
  say("");
  complain("");
}

// the query in the address of the page
function link() {
  const query = new URLSearchParams({ run: run().name, horizon: run().horizon, from: kind() });
  if ($("task").value) query.set("task", $("task").value);
  if ($("given").checked) query.set("given", 1);
  if (byVideo()) {
    const { first, last } = gap();
    for (const [name, value] of Object.entries({ video: video().id, dataset: video().dataset, first, last })) query.set(name, value);
  }
  for (const [side, second] of Object.entries(byFilm() ? times() : {})) query.set(side, second);
  if (run().any_length && $("count").value) query.set("steps", $("count").value);
  if (elapsed()) query.set("elapsed", elapsed());
  if ($("top-k").value !== $("top-k").defaultValue) query.set("top_k", $("top-k").value);
  if ($("coverage").value) query.set("coverage", $("coverage").value);
  if (withoutGoal()) query.set("goal", 0);
  if (goalText()) query.set("goal_text", goalText());
  if (listed()) query.set("done", done.join(","));
  else if ($("done-kind").value) query.set("done", $("done-kind").value);
  constraints.toLink(query);
  history.replaceState(null, "", "?" + query);
}

function asked() {
  const question = { run: run().name, horizon: run().horizon, top_k: valueOf("top-k") || 1, constraints: constraints.held };
  if ($("given").checked) question.task = valueOf("task");
  if (run().any_length && $("count").value) question.steps = valueOf("count");
  if (elapsed()) question.elapsed = elapsed();
  if ($("coverage").value) question.coverage = valueOf("coverage");
  if (listed()) question.done = done;
  if (goalText()) question.goal_text = goalText();
  if (byVideo()) {
    const { first, last } = gap();
    question.video = { id: video().id, dataset: video().dataset, step: first };
    if (goalHidden()) question.video.goal = false;
    else question.video.last = last;
    if ($("done-kind").value === "video") question.video.done = true;
  }
  return question;
}

async function plan() {
  if (going) going.abort();
  const mine = (going = new AbortController());
  complain("");
  say(t("planning"));
  link();
  $("answer").classList.add("old");
  $("answer").setAttribute("aria-busy", "true");
  try {
    const request = asked();
    const given = parts();
    const response = given
      ? await upload("v1/plan/upload", { request: JSON.stringify(request), ...given }, mine.signal)
      : await call("v1/plan", { ...json(request), signal: mine.signal });
    showAnswer(await response.json(), moments() ? keepPlan : null);
  } finally {
    if (going === mine) {
      going = null;
      $("answer").removeAttribute("aria-busy");
      $("old-said").hidden = !$("answer").classList.contains("old");
    }
  }
}

// Keep a plan as an annotation of the gap; its steps have the annotated times if there are as many.
function keepPlan(plan, task) {
  const { first, last, start, end } = moments();
  const even = !byVideo() || plan.actions.length !== last - first + 1;
  const times = (place) => (even ? { start, end } : video().steps[first - 1 + place]);
  const steps = plan.names.map((name, place) => ({ step: name, start: times(place).start, end: times(place).end }));
  const of = byVideo() ? { video: video().id, task: video().task.name } : { video: filmName(), task: task };
  keep({ ...of, start, end, even, steps });
}

// ---- events

for (const side of ["start", "end"]) {
  $(side + "-said").before(make("img", { id: side, alt: t("picture.seen." + side), hidden: true }));
}
$("run").addEventListener("change", guarded(() => runChosen()));
$("task").addEventListener("change", guarded(() => { reset(); return taskChosen(); }));
$("given").addEventListener("change", () => { stale(); ready(); });
onVideo(() => { reset(); videoChosen(); });
onFilm(() => { if (byFilm()) gapChosen(); });
onTimeline(() => { reset(); gapChosen(); });
for (const id of ["elapsed", "top-k", "coverage"]) $(id).addEventListener("change", stale);
$("count").addEventListener("change", () => showVideo());
$("no-goal").addEventListener("change", kindChosen);
// while it is typed, for once a button is pressed, nothing may move
$("goal-text").addEventListener("input", () => { if (goalHidden() === $("goal-row").hidden) { stale(); ready(); } else kindChosen(); });
$("done-kind").addEventListener("change", doneChanged);
$("done-add").addEventListener("click", () => {
  if ($("done-action").value) done.push(valueOf("done-action"));
  doneChanged();
});
for (const one of KINDS) $("of-" + one).addEventListener("change", () => { reset(); kindChosen(); });
$("initial").addEventListener("change", () => pictureChosen("initial", "start"));
$("goal").addEventListener("change", () => pictureChosen("goal", "end"));
onSubmit("ask", guarded(plan));
constraints.onConstraints(guarded(async () => { if (!$("plan").disabled) await plan(); }));
guarded(begin)();
