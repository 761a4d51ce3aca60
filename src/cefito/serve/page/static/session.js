// Live sessions: what is done, what comes now, and what is next, as the service tells it.
import { $, bar, call, complain, fill, get, guarded, json, make, number, onSubmit, patiently, pause } from "./base.js";
import { dismissable, findingWords, missingSteps, newFindings } from "./findings.js";
import { actionsOf, chooseLinked, chooseRun, loadRuns, run, runShown } from "./runs.js";
import { drawSteps } from "./timeline.js";
import { chooseVideo, onVideo, video } from "./videos.js";
import { stopWatching, watchCamera, watchFilm, watching } from "./watch.js";
import { parts, percent, say, silence, t, tenth, voice } from "./words.js";

const PLANS = 3;
const MARK = "#session=";
const AWAY = t("away");
const GONE = "urn:cefito:not-found";
const NOT_THERE = t("lost");
const OVER = 0.5; // probability from which nothing is left to do
const LEAST = 60; // seconds of the strip of recognised steps
let state = null; // of the open session
let stream = null; // of its states, also after events of others
let going = false; // an event is being sent
let troubled = false; // the problem shown passes when the service answers
let ready = false; // whether the encoder of pictures is loaded
let spoken = ""; // what comes next, as it was said aloud

// ---- run, task, video, film

async function start() {
  await loadRuns();
  const link = new URLSearchParams(location.search);
  const open = await guarded(openSession)();
  const linked = chooseLinked(link);
  if (open) chooseRun(open.run, open.horizon);
  await patiently(() => runChosen(linked ? link : new URLSearchParams()));
  if (open) followSession(open);
  if (link.get("from") === "film") showFilm(openerFilm());
  await encoderLoaded();
}

// pictures are taken once the encoder is loaded
async function encoderLoaded() {
  while (!(ready = await fetch("ready").then((response) => response.ok, () => false))) await pause(2000);
  showSources();
}

async function runChosen(link = new URLSearchParams()) {
  runShown();
  fill($("task"), t("unknown"), run().tasks.map((task) => make("option", { value: task.id }, task.name)));
  $("task").value = link.get("task") || "";
  $("task").disabled = !run().true_task;
  $("goal-text").value = link.get("goal_text") || "";
  $("live-videos").hidden = !run().datasets.length;
  $("live-alarms-row").hidden = !(run().false_alarms && run().recogniser);
  await chooseVideo(link.get("video") || "", link.get("dataset"));
  videoChosen();
  if ($("goal-text").value) $("live-goal").value = "text";
  goalChosen();
  $("live-begin").disabled = false;
}

function videoChosen() {
  const steps = video() ? video().steps : [];
  fill($("live-scene"), null, steps.map((step, place) => make("option", { value: place + 1 }, t("scene.at", { video: video().id, second: tenth(step.start) }))));
  fill($("live-goal"), t("goal.end"), [
    ...(run().uploads.includes("text") ? [make("option", { value: "text" }, t("goal.in.words"))] : []),
    ...steps.map((step, place) => make("option", { value: place + 1 }, t("goal.after", { video: video().id, place: place + 1, name: step.name }))),
  ]);
  goalChosen();
  if (!$("film").files.length) showFilm();
}

const goalChosen = () => { $("live-words").hidden = $("live-goal").value !== "text"; };

// the film that the planning page has opened, if it is still there
function openerFilm() {
  try {
    return opener.document.getElementById("film").files[0];
  } catch (problem) {
    return null;
  }
}

// show a file, or the film of the video, where it can be played
function showFilm(file) {
  const view = $("live-view");
  if (watching() === "film") stopWatching();
  URL.revokeObjectURL(view.src);
  const facts = video() && { run: run().name, horizon: run().horizon, dataset: video().dataset, video: video().id };
  if (file) view.src = URL.createObjectURL(file);
  else if (facts) view.src = "film?" + new URLSearchParams(facts);
  else view.removeAttribute("src");
  showSources();
}

const able = () => run().recogniser && run().uploads.includes("pictures");

// what can be watched: a camera or a film, by a run that follows them
function showSources() {
  const view = $("live-view");
  const film = view.readyState > 0 && Boolean(view.src);
  $("live-watch").hidden = !state || !able() || !ready;
  $("live-wait").hidden = !state || !able() || ready;
  $("live-film-row").hidden = !film;
  $("live-camera").textContent = t(watching() === "camera" ? "camera.stop" : "camera.use");
  $("live-film").textContent = t(watching() === "film" ? "film.stop" : "film.play");
  view.hidden = !film && watching() !== "camera";
  view.controls = !watching();
}

// the session that the address of the page names
async function openSession() {
  if (!location.hash.startsWith(MARK)) return null;
  const id = location.hash.slice(MARK.length);
  try {
    return await patiently(() => get("v1/sessions/" + encodeURIComponent(id)));
  } catch (problem) {
    forget();
    throw problem;
  }
}

const forget = () => history.replaceState(null, "", location.pathname + location.search);

// ---- begin and end

async function begin() {
  const body = { run: run().name, horizon: run().horizon };
  const link = new URLSearchParams(body);
  if ($("task").value) {
    body.task = Number($("task").value);
    link.set("task", body.task);
  }
  if (video()) for (const [name, value] of [["video", video().id], ["dataset", video().dataset]]) link.set(name, value);
  const goal = $("live-goal").value;
  if (goal === "text") body.goal_text = $("goal-text").value.trim();
  else if (goal) body.goal_video = { id: video().id, dataset: video().dataset, step: Number(goal) };
  if (run().false_alarms && $("live-alarms").value) body.false_alarms = Number($("live-alarms").value);
  const response = await call("v1/sessions", json(body));
  history.replaceState(null, "", "?" + link);
  followSession(await response.json());
  $("live-now-head").focus();
}

function followSession(opened) {
  leave();
  history.replaceState(null, "", MARK + opened.id);
  $("live-open").hidden = $("live-big").hidden = false;
  $("live-closed").hidden = true;
  show(opened);
  listen();
}

// hear of each state; the browser connects again by itself, but not after an answer that is an error
function listen() {
  const { id } = state;
  stream = new EventSource("v1/sessions/" + id + "/events");
  stream.addEventListener("state", (event) => show(JSON.parse(event.data)));
  stream.addEventListener("end", (event) => ended(JSON.parse(event.data).detail));
  stream.addEventListener("error", (event) => {
    if (event.target.readyState === EventSource.CLOSED) listenAgain(id);
    else trouble(AWAY);
  });
  stream.addEventListener("open", () => trouble(""));
}

async function listenAgain(id) {
  if (!state || state.id !== id) return;
  try {
    show(await get("v1/sessions/" + id));
  } catch (problem) {
    if (problem.type === GONE) return ended(NOT_THERE);
    trouble(AWAY); // a proxy may have answered for the service
    return setTimeout(listenAgain, 3000, id);
  }
  listen();
}

function leave() {
  stopWatching();
  if (stream) {
    stream.close();
    forget();
  }
  state = stream = null;
  $("live-open").hidden = $("live-big").hidden = $("live-strip").hidden = true;
  $("live-closed").hidden = false;
  $("live-said").textContent = "";
  complain("");
  showSources();
}

function ended(reason) {
  leave();
  complain(t("ended", { reason }));
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
  complain("");
  try {
    show(await (await send("v1/sessions/" + state.id)).json());
  } finally {
    going = false;
    $("live").removeAttribute("aria-busy");
  }
}

// a problem that passes
function trouble(text) {
  if (text || troubled) complain(text);
  troubled = Boolean(text);
}

// Let the session see a picture of a second; the picture is left out if the service is busy.
async function see(picture, at) {
  const { id } = state;
  try {
    const answer = await call("v1/sessions/" + id + "/pictures?at=" + at, { method: "POST", body: await picture });
    const next = await answer.json();
    if (!state || state.id !== id) return;
    trouble("");
    show(next);
  } catch (problem) {
    if (!state || state.id !== id) return;
    if (problem.type === GONE) ended(NOT_THERE);
    else if (!problem.type || problem.passes) trouble(problem.type ? problem.message : AWAY);
    else stopped(problem.message);
  }
}

function stopped(reason) {
  const watched = watching();
  stopWatching();
  showSources();
  complain(reason);
  if (watched === "film" && !reason) add({ over: true });
}

// a button that begins to watch a source, or stops it
const watcher = (name, begin) => guarded(async () => {
  complain("");
  if (watching() === name) stopWatching();
  else if (state) await begin(state.followed ? state.followed.seconds : 0, see, stopped);
  if (!state) stopWatching(); // it has ended meanwhile
  showSources();
});

const present = () => state.followed && state.followed.now;
const over = () => !present() && state.finished >= OVER;
const waiting = () => !state.followed && state.events === 0 && !over() && able(); // nothing is seen or told yet
const ofTask = () => state.tasks[0].probability > 0.5; // else the film may show another one
// the next step; once nothing follows, a step that is missing
const coming = () => (over() ? missingSteps(state).map(({ name }) => ({ name }))[0] : state.next_steps[0]);

function speak() {
  if (!state || !$("live-speak").checked) return;
  const fresh = newFindings(state);
  for (const finding of fresh) say(t("speak.finding", findingWords(finding)));
  const next = over() && !coming() ? t("speak.finished") : coming() ? t(state.followed || waiting() ? "speak.next" : "now.named", { step: coming().name }) : "";
  if (!next || next === spoken) return;
  spoken = next;
  say(next, !fresh.length);
}

const add = guarded((event) => tell((path) => call(path + "/events", json(event))));

// ---- the state

function show(next) {
  if (state && next.number <= state.number) return; // it is shown already
  state = next;
  const followed = next.followed;
  const [best, second] = next.tasks;
  const task = { task: best.name, share: number("task", percent(best.probability)) };
  const two = second && second.probability >= 0.05;
  if (two) Object.assign(task, { other: second.name, other_share: number("task", percent(second.probability)) });
  $("live-task").replaceChildren(...parts(two ? "task.two" : "task.one", task), ...(next.goal ? [" " + t("to.goal")] : []));
  showNotes();
  const done = present() ? next.done.slice(0, -1) : next.done;
  anew("live-done", done, () => {
    $("live-done").replaceChildren(...done.map((step) => make("li", {}, step.name + " ", make("span", { class: "soft" },
      ...(step.reported ? [t("reported")] : parts("inferred", { share: number("inferred", percent(step.probability)) }))))));
    $("live-done").scrollTop = $("live-done").scrollHeight;
  });
  $("live-done").hidden = !done.length;
  $("live-nothing").hidden = done.length > 0;
  $("live-unseen").hidden = !next.unseen.length;
  $("live-unseen").textContent = t("unseen", { steps: next.unseen.map((step) => step.name).join(", ") });
  $("live-undo").disabled = next.events === 0;
  $("live-undo").textContent = t(followed ? "undo.report" : "undo");
  $("live-video").hidden = Boolean(followed) || !run().datasets.length;
  $("live-now-head").textContent = t(followed ? "correct" : over() ? "correct.finished" : "now");
  $("live-tell").textContent = t(word());
  $("live-tell").setAttribute("aria-label", t(word() + ".named", { step: t("other") }));
  showNextSteps();
  anew("live-action", best.id, () => fillActions(best.id));
  $("live-remaining").replaceChildren(...remaining());
  $("live-plans").replaceChildren(...(over() ? [] : next.plans.slice(0, PLANS)).map((plan, place) => make("div", { class: "p" },
    make("span", {}, number("probability", percent(plan.probability))),
    make("ol", { class: "s", "aria-label": t("plan.place", { place: place + 1 }) }, ...plan.names.map((name) => make("li", {}, name))))));
  showBig();
  const latest = !followed && done.length ? [t("said.done", { step: done[done.length - 1].name })] : [];
  const now = t("said.now", { step: $("live-going").textContent, next: $("live-coming").textContent });
  const said = [...latest, now, ...next.findings.map((finding) => t("speak.finding", findingWords(finding)) + ".")].join(" ");
  if ($("live-said").textContent !== said) $("live-said").textContent = said;
  showSources();
  speak();
}

// What was wrong, each with its buttons, and remarks.
function showNotes() {
  state.findings = dismissable(state);
  const list = $("live-notes");
  const unsure = state.followed ? state.followed.unsure : [];
  const open = unsure.map((step) => t("open", { finding: t("speak.finding", findingWords(step)), share: percent(step.probability) }));
  const texts = [...state.findings.map(() => ""), ...open, ...state.notes];
  anew("live-notes", [state.findings.map((finding) => finding.key), open, state.notes], () => {
    list.replaceChildren(...texts.map((text, place) => make("li", {}, make("span", {}, text),
      ...(place < state.findings.length ? noteButtons(state.findings[place]) : []))));
  });
  state.findings.forEach((finding, place) => {
    const shown = { ...findingWords(finding), share: number("mistake", percent(finding.probability)), evidence: make("span", { lang: "en" }, finding.evidence) };
    list.children[place].firstChild.replaceChildren(...parts("finding", shown));
  });
}

function noteButtons(finding) {
  const words = t("speak.finding", findingWords(finding));
  const button = (key, work) => {
    const one = make("button", { type: "button", class: "keep", "aria-label": t(key + ".named", { finding: words }) }, t(key));
    one.addEventListener("click", work);
    return [" ", one];
  };
  const dismiss = () => {
    finding.dismiss();
    $("live-now-head").focus();
    showNotes();
    showBig();
  };
  return [...(voice ? button("finding.say", () => say(words, true)) : []), ...button("finding.dismiss", dismiss)];
}

// What goes on and what follows: of a video as recognised, else the likeliest step and what the best plan has after it.
function showBig() {
  const { now, done, seconds } = state.followed || { now: waiting() ? null : coming() };
  const plan = state.plans[0]; // begins with the likeliest step
  const next = state.followed || waiting() ? coming() : now && plan && plan.names.length > 1 ? { name: plan.names[1] } : undefined;
  $("live-going").textContent = now ? now.name : t(waiting() ? "picture.waits" : over() && !next && ofTask() ? "finished" : state.followed ? "pause" : "nothing");
  $("live-coming").textContent = next ? next.name : t("nothing");
  $("live-going-share").replaceChildren(...(now ? [number(state.followed ? "inferred" : "next", percent(now.probability))] : []));
  $("live-coming-share").replaceChildren(...(next && next.probability ? [number("next", percent(next.probability))] : []));
  $("live-strip").hidden = !state.followed;
  if (!state.followed) return;
  const length = watching() === "film" ? $("live-view").duration : LEAST;
  drawSteps($("live-strip"), [...done, ...(now ? [now] : [])], Math.max(length, seconds));
}

// Draw an element only if it does not show the same already, so that what is pressed stays in place.
function anew(id, shown, draw) {
  const key = state.id + JSON.stringify(shown);
  if ($(id).dataset.shown !== key) draw();
  $(id).dataset.shown = key;
}

function showNextSteps() {
  const list = $("live-now");
  anew("live-now", [word(), state.next_steps.map((step) => step.id)], () => {
    const inList = list.contains(document.activeElement);
    list.replaceChildren(...state.next_steps.map(nextStep));
    if (inList) $("live-now-head").focus();
  });
  state.next_steps.forEach((step, place) => {
    list.children[place].querySelector(".share").replaceChildren(number("next", percent(step.probability)));
    list.children[place].querySelector(".bar").replaceWith(bar(step.probability));
  });
}

// what a step is told to be: while a video is followed, the step that goes on
const word = () => (state.followed ? "now" : "done");

function nextStep(step) {
  const button = make("button", { type: "button", "aria-label": t(word() + ".named", { step: step.name }) }, t(word()));
  button.addEventListener("click", () => add({ done: step.id }));
  return make("li", {}, make("span", {}, step.name), make("span", { class: "share" }), bar(0), button);
}

function fillActions(task) {
  const own = new Set(run().tasks.find((one) => one.id === task).actions);
  const sorted = actionsOf(null);
  const group = (label, actions) => make("optgroup", { label: label },
    ...actions.map((action) => make("option", { value: action.id }, action.name)));
  fill($("live-action"), t("other.choose"), [
    group(t("other.task"), sorted.filter((action) => own.has(action.id))),
    group(t("other.rest"), sorted.filter((action) => !own.has(action.id))),
  ]);
}

function remaining() {
  if (over()) return coming() || !ofTask() ? [] : [t("remain.nothing")];
  const counts = Object.entries(state.remaining);
  const most = state.goal ? "" : counts[counts.length - 1][0];
  const likely = counts.filter(([, share]) => share >= 0.05).sort((a, b) => b[1] - a[1]);
  return parts("remain", { counts: likely.flatMap(([count, share], place) => [...(place ? [", "] : []),
    ...parts(count === most ? "remain.most" : "remain.count", { count, share: number("length", percent(share)) })]) });
}

// ---- controls

$("run").addEventListener("change", guarded(() => runChosen()));
$("task").addEventListener("change", guarded(async () => { if (await chooseVideo()) videoChosen(); }));
onVideo(videoChosen);
$("live-goal").addEventListener("change", goalChosen);
$("film").addEventListener("change", () => {
  complain("");
  showFilm($("film").files[0]);
});
showFilm($("film").files[0]); // perhaps chosen before this program was loaded
$("live-view").addEventListener("error", () => {
  const file = $("film").files[0];
  if (file) complain(t("film.unplayable", { file: file.name }));
});
for (const event of ["loadedmetadata", "error"]) $("live-view").addEventListener(event, showSources);
onSubmit("live-closed", guarded(begin));
$("live-end").addEventListener("click", guarded(end));
$("live-camera").addEventListener("click", watcher("camera", watchCamera));
$("live-film").addEventListener("click", watcher("film", watchFilm));
$("live-speak").parentElement.hidden = !voice;
$("live-speak").addEventListener("change", () => {
  spoken = "";
  silence();
  speak();
});
$("live-undo").addEventListener("click", () => add({ undo: true }));
onSubmit("live-other", async () => {
  await add({ done: Number($("live-action").value) });
  $("live-action").value = "";
});
onSubmit("live-video", () => add({ video: { id: video().id, dataset: video().dataset, step: Number($("live-scene").value) } }));
guarded(start)();
