// The page of `cefito serve`: sends queries to the same service and shows its answers.
import { liveSession } from "./live.js";

(function () {
  const LISTED = 5; // plans
  const VIDEOS = 1000; // listed at most
  const MARKS = { right: "r", substitution: "u", order: "o", repetition: "a", missing: "m" };
  const state = { runs: [], videos: [], answer: null, chosen: null, going: null, shown: 0, listing: 0 };
  let done = []; // ids of the steps done before, if they are listed

  const $ = (id) => document.getElementById(id);

  // one form for each constraint that the service knows, by its option
  const forms = new Map([...document.querySelectorAll("form.constraint")].map((form) => [form.dataset.option, form.dataset]));
  const EMPTY = { map: () => ({}), list: () => [], value: () => undefined };
  let held = nothing();

  function nothing() {
    return Object.fromEntries([...forms].map(([option, form]) => [option, EMPTY[form.shape]()]));
  }

  // ---- elements

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function fill(select, first, options) {
    const before = select.value;
    select.replaceChildren(...(first === null ? [] : [make("option", { value: "" }, first)]), ...options);
    if ([...select.options].some((option) => option.value === before)) select.value = before;
  }

  const seconds = (value) => value.toFixed(1) + " s";
  const percent = (value) => (100 * value).toFixed(1) + " %";

  function say(text) {
    $("said").textContent = text;
  }

  function complain(text, place = "problem") {
    $(place).replaceChildren(...(text ? [make("p", { class: "problem" }, text)] : []));
  }

  // ---- the interface

  async function call(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new Error("The service does not answer. See that it still runs, and try again.");
    }
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    const wait = response.headers.get("Retry-After");
    const text = problem.detail || problem.title || "The service answered " + response.status + ".";
    throw new Error(wait ? text + " (try again in " + wait + " s)" : text);
  }

  const get = async (path) => (await call(path)).json();
  const json = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

  function guarded(work, place) {
    return async function (event) {
      try {
        return await work(event);
      } catch (problem) {
        if (problem.name !== "AbortError") {
          say("");
          complain(problem.message, place);
        }
      }
    };
  }

  // ---- runs, tasks, videos

  function run() {
    const option = $("run").selectedOptions[0];
    if (!option) return null;
    const found = state.runs.find(
      (one) => one.name === option.dataset.run && String(one.horizon) === option.dataset.horizon
    );
    return found || null;
  }

  // all numbers of steps that the run plans
  function counts() {
    const one = run();
    return Array.from({ length: one.horizon - one.shortest + 1 }, (_, place) => one.shortest + place);
  }

  const withoutGoal = () => run().any_length && $("no-goal").checked;

  function taskOf(id) {
    return run().tasks.find((task) => task.id === Number(id));
  }

  async function begin() {
    const model = await get("v1/model");
    state.runs = model.runs;
    const open = await guarded(live.found, "live-problem")();
    if (open) {
      const options = [...$("run").options];
      $("run").value = options.find((one) => one.dataset.run === open.run && one.dataset.horizon === String(open.horizon)).value;
    }
    await runChosen();
    if (open) live.follow(open);
  }

  async function runChosen() {
    reset();
    const pictures = run().uploads.includes("pictures");
    const videos = run().datasets.length > 0;
    const open = run().any_length;
    const possible = { "of-video": videos, "of-pictures": pictures, "of-nothing": open };
    const kinds = Object.keys(possible).filter((kind) => possible[kind]);
    for (const kind of Object.keys(possible)) $(kind).parentElement.hidden = !possible[kind];
    $("kind").hidden = kinds.length < 2;
    $("nothing").hidden = kinds.length > 0;
    $(kinds[0] || "of-video").checked = true;
    $("open").hidden = $("before").hidden = !open;
    $("no-goal").checked = false;
    $("goal-text").value = "";
    fill($("count"), "any", counts().map((count) => make("option", { value: count }, String(count))));
    $("count").value = "";
    $("done-kind").value = "";
    done = [];
    fill($("task"), "all tasks", run().tasks.map((task) => make("option", { value: task.id }, task.name)));
    live.runChosen();
    kindChosen();
    await taskChosen();
  }

  async function taskChosen() {
    const task = $("task").value;
    $("given").disabled = !task || !run().true_task;
    if ($("given").disabled) $("given").checked = false;
    actionsKnown(task === "" ? null : taskOf(task));
    fillActions($("done-action"), task === "" ? null : taskOf(task));
    $("plan").disabled = true;
    if (!(await listVideos(task))) return; // another choice came in between
    videoChosen();
    if (!state.videos.length && run().datasets.length) say("No video has enough steps for this run.");
  }

  async function listVideos(task) {
    const mine = ++state.listing;
    const groups = [];
    const videos = [];
    let total = 0;
    for (const split of run().datasets.length ? ["test", "val", "train"] : []) {
      const query = new URLSearchParams({ run: run().name, horizon: run().horizon, split: split,
                                          limit: Math.max(1, VIDEOS - videos.length) });
      if (task) query.set("task", task);
      const listed = await get("v1/videos?" + query);
      if (mine !== state.listing) return false;
      total += listed.total;
      const found = videos.length < VIDEOS ? listed.videos.filter((video) => video.first_steps.length) : [];
      if (found.length) {
        groups.push(make("optgroup", { label: split }, ...found.map((video, place) => make(
          "option", { value: videos.length + place }, video.id))));
      }
      videos.push(...found);
    }
    state.videos = videos;
    fill($("video"), null, groups);
    if (groups.length) $("video").selectedIndex = 0;
    $("more").textContent = total > VIDEOS
      ? "The first " + videos.length + " of " + total + " videos; choose a task for others."
      : "";
    return true;
  }

  function video() {
    return state.videos[$("video").selectedIndex];
  }

  function moment() {
    const found = video();
    return found && windowsOf(found).find((one) => String(one.step) === $("window").value);
  }

  // windows have the chosen number of steps, otherwise the rest of the video up to the longest
  function windowsOf(video) {
    const count = Number($("count").value);
    const length = (step) => Math.min(count || run().horizon, video.steps.length - step + 1);
    return video.first_steps.filter((step) => length(step) >= count).map((step) => ({
      step: step,
      length: length(step),
      start: video.steps[step - 1].start,
      end: video.steps[step + length(step) - 2].end,
    }));
  }

  function windowsKnown() {
    const found = video();
    fill($("window"), null, (found ? windowsOf(found) : []).map((one) => make(
      "option",
      { value: one.step },
      "from step " + one.step + ": " + seconds(one.start) +
        (goalHidden() ? "" : " to " + seconds(one.end))
    )));
  }

  function videoChosen() {
    live.videoChosen();
    windowsKnown();
    if (video()) $("window").selectedIndex = 0;
    momentChosen();
  }

  function momentChosen() {
    const found = moment();
    stale();
    ready();
    for (const [side, word] of [["start", "before"], ["end", "after"]]) {
      const shown = found && !(side === "end" && goalHidden());
      $(side + "-said").textContent = shown
        ? word + ": second " + (side === "start" ? found.start : found.end).toFixed(1)
        : "";
      frame($(side), shown ? side : "");
    }
  }

  async function frame(image, side) {
    const wanted = side && byVideo()
      ? new URLSearchParams({ run: run().name, horizon: run().horizon, video: video().id, dataset: video().dataset,
                              step: $("window").value, side: side, length: moment().length }).toString()
      : "";
    image.dataset.wanted = wanted;
    image.hidden = true;
    if (!wanted) return;
    let data = null;
    try {
      const response = await fetch("frame?" + wanted);
      if (response.status === 200) data = await response.blob();
    } catch (problem) {
      data = null; // frames are optional
    }
    if (!data || image.dataset.wanted !== wanted) return;
    if (image.src) URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(data);
    image.hidden = false;
  }

  // ---- pictures

  const byVideo = () => $("of-video").checked;
  const byPictures = () => $("of-pictures").checked;
  const goalText = () => ($("words").hidden ? "" : $("goal-text").value.trim());
  const goalHidden = () => withoutGoal() || Boolean(goalText());

  function kindChosen() {
    $("by-video").hidden = !byVideo();
    $("by-pictures").hidden = !byPictures();
    $("frames").hidden = !(byVideo() || byPictures());
    $("words").hidden = !run().uploads.includes("text") || withoutGoal();
    $("goal-row").hidden = goalHidden();
    const ofVideo = $("done-kind").querySelector("[value=video]");
    ofVideo.hidden = ofVideo.disabled = !byVideo();
    if (ofVideo.hidden && $("done-kind").value === "video") $("done-kind").value = "";
    showDone();
    stale();
    ready();
    if (byVideo()) momentChosen();
    else for (const [field, side] of [["initial", "start"], ["goal", "end"]]) pictureChosen(field, side);
  }

  function pictureOf(field) {
    return byPictures() && !(field === "goal" && goalHidden()) ? $(field).files[0] : undefined;
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
  }

  function ready() {
    const initial = byVideo() ? moment() : pictureOf("initial");
    const goal = byVideo() || pictureOf("goal") || goalHidden();
    const known = pictureOf("initial") || pictureOf("goal") || goalText() || $("given").checked ||
      (listed() && done.length > 0);
    $("plan").disabled = !((initial && goal) || (run().any_length && !byVideo() && known));
  }

  // ---- steps done before

  const listed = () => run().any_length && $("done-kind").value === "listed";

  function showDone() {
    for (const part of document.querySelectorAll(".listed")) part.hidden = !listed();
    $("done").replaceChildren(...(listed() ? done : []).map((id, place) => {
      const button = make("button", { type: "button", "aria-label": "Remove step done: " + nameOf(id) }, "Remove");
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

  // ---- constraints

  const nameOf = (id) => (run().names.get(id) || "action " + id);

  function fillActions(select, task) {
    const one = run();
    if (!one.names) one.names = new Map(one.actions.map((action) => [action.id, action.name]));
    const known = task
      ? task.actions.map((id) => ({ id: id, name: one.names.get(id) }))
      : one.actions.slice();
    fill(select, "choose an action", known
      .sort((a, b) => a.name.localeCompare(b.name))
      .map((action) => make("option", { value: action.id }, action.name)));
  }

  function actionsKnown(task) {
    for (const select of document.querySelectorAll("select.actions")) fillActions(select, task);
    const steps = () => Array.from({ length: run().horizon }, (_, step) => make("option", { value: step + 1 }, String(step + 1)));
    for (const select of document.querySelectorAll("select.steps")) fill(select, null, steps());
  }

  // the words of a constraint, with the parts of an entry in their places
  function inWords(form, entry) {
    const kinds = form.kinds.split(" ");
    let next = 0;
    return form.words.replace(/(action )?\{(\d*)\}/g, (_, word, number) => {
      const part = number === "" ? next++ : Number(number);
      return kinds[part] === "action" ? "“" + nameOf(Number(entry[part])) + "”" : (word || "") + entry[part];
    });
  }

  function entries(option, shape) {
    const value = held[option];
    if (shape === "map") return Object.entries(value).map((entry) => [entry, () => delete value[entry[0]]]);
    if (shape === "value") return value === undefined ? [] : [[[value], () => { held[option] = undefined; }]];
    return value.map((item) => [[item].flat(), () => { held[option] = value.filter((other) => other !== item); }]);
  }

  function constraints() {
    return [...forms].flatMap(([option, form]) =>
      entries(option, form.shape).map(([entry, remove]) => [inWords(form, entry), remove]));
  }

  function showConstraints() {
    const found = constraints();
    $("held").replaceChildren(...found.map(([text, remove]) => {
      const button = make("button", { type: "button", "aria-label": "Remove: " + text }, "Remove");
      button.addEventListener("click", () => { remove(); $("constraints-head").tabIndex = -1; $("constraints-head").focus(); changed(); });
      return make("li", {}, make("span", {}, text), button);
    }));
    $("none").hidden = found.length > 0;
    $("clear").hidden = found.length === 0;
  }

  function add(option, entry) {
    const shape = forms.get(option).shape;
    if (shape === "map") held[option][entry[0]] = entry[1];
    else if (shape === "value") held[option] = entry.length ? entry[0] : true;
    else {
      const item = entry.length === 1 ? entry[0] : entry;
      if (!held[option].some((other) => JSON.stringify(other) === JSON.stringify(item))) held[option].push(item);
    }
    changed();
  }

  const changed = guarded(async () => {
    showConstraints();
    await plan();
  });

  function reset() {
    if (state.going) state.going.abort();
    held = nothing();
    state.answer = null;
    showConstraints();
    $("answer").hidden = true;
    $("constraints").hidden = true;
    say("");
    complain("");
  }

  // the plans shown no longer belong to the query
  function stale() {
    if (state.going) state.going.abort();
    if (state.answer) {
      state.answer = null;
      $("answer").hidden = true;
    }
    say("");
    complain("");
  }

  // ---- plans

  function asked() {
    const question = { run: run().name, horizon: run().horizon, top_k: LISTED, constraints: held };
    if ($("given").checked) question.task = Number($("task").value);
    if (run().any_length && $("count").value) question.steps = Number($("count").value);
    if (listed()) question.done = done;
    if (goalText()) question.goal_text = goalText();
    return question;
  }

  async function plan() {
    if (state.going) state.going.abort();
    const going = (state.going = new AbortController());
    complain("");
    say("Planning …");
    $("answer").classList.add("old");
    $("answer").setAttribute("aria-busy", "true");
    try {
      let response;
      const files = ["initial", "goal"].filter(pictureOf);
      if (!files.length) {
        const question = asked();
        if (byVideo()) {
          question.video = { id: video().id, dataset: video().dataset, step: Number($("window").value) };
          if (goalHidden()) question.video.goal = false;
          if ($("done-kind").value === "video") question.video.done = true;
        }
        response = await call("v1/plan", { ...json(question), signal: going.signal });
      } else {
        const form = new FormData();
        form.append("request", JSON.stringify(asked()));
        for (const field of files) form.append(field, pictureOf(field));
        response = await call("v1/plan/upload", { method: "POST", body: form, signal: going.signal });
      }
      state.answer = await response.json();
      show();
    } finally {
      if (state.going === going) {
        state.going = null;
        $("answer").removeAttribute("aria-busy");
        $("old-said").hidden = !$("answer").classList.contains("old");
      }
    }
  }

  function show() {
    const answer = state.answer;
    const task = answer.task && answer.task.id !== null && answer.task.id !== undefined ? answer.task : null;
    const again = state.shown++ ? "Planned again: " : "";
    const best = answer.plans.length ? answer.plans[0].actions.map((action) => action.name).join(", ") : "";
    const count = answer.plans.length === 1 ? "1 plan" : answer.plans.length + " plans";
    say(best ? again + count + " in " + Math.round(answer.milliseconds) + " ms." : "No plan.");
    if (best) $("said").append(make("span", { class: "apart" }, " The best: " + best + "."));
    $("task-said").textContent = task
      ? "Task: " + task.name + (typeof task.probability === "number" ? ", " + percent(task.probability) : "") + "."
      : "";
    if (task) actionsKnown(taskOf(task.id));
    $("warnings").replaceChildren(...answer.warnings.map((text) => make("li", {}, text)));
    showShares(answer);
    $("choose-said").hidden = !run().constraints;
    $("effort").textContent = effort(answer);
    $("truth-row").hidden = !answer.truth;
    $("answer").hidden = false;
    $("answer").classList.remove("old");
    $("constraints").hidden = !run().constraints;
    showConstraints();
    strips();
  }

  // the probability of each number of steps
  function showShares(answer) {
    const shares = Object.entries(answer.lengths || {});
    const toEnd = answer.known && !answer.known.goal;
    const most = shares.length ? shares[shares.length - 1][0] : "";
    $("shares").hidden = shares.length < 2;
    $("shares-said").textContent = toEnd ? "steps to the end, at most " + most : "number of steps";
    $("shares").querySelector("ol").replaceChildren(...shares.map(([count, share]) => {
      const bar = make("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = 6 * share + "rem";
      return make("li", {}, make("b", {}, count), make("span", { class: "share" }, percent(share)), bar);
    }));
  }

  function effort(answer) {
    const parts = [answer.exact ? "Exact: no other allowed sequence is better." : "Not exact: there may be better plans."];
    const cost = answer.effort;
    parts.push(cost.token_forwards.toLocaleString("en") + " token forwards, " +
      cost.leaves.toLocaleString("en") + " sequences scored.");
    return parts.join(" ");
  }

  function strips() {
    const answer = state.answer;
    const truth = answer.truth && $("compare").checked ? answer.truth.map((action) => action.id) : null;
    $("plans").replaceChildren(...answer.plans.map((one, place) => {
      const ids = one.actions.map((action) => action.id);
      const kinds = truth ? stepKinds(ids, truth) : null;
      const steps = one.actions.map((action, step) => {
        const pinned = held.pin[step + 1] === action.id;
        const button = run().constraints
          ? make("button", { type: "button", "aria-haspopup": "dialog" }, action.name)
          : make("span", {}, action.name);
        const words = (kinds ? " (" + kinds[step] + ")" : "") + (pinned ? " (pinned)" : "");
        if (words) button.append(make("span", { class: "apart" }, words));
        if (run().constraints) button.addEventListener("click", () => choose(step + 1, action));
        return make("li", { class: kinds ? MARKS[kinds[step]] : null, "data-pinned": pinned }, button);
      });
      const right = truth && ids.length === truth.length && ids.every((id, step) => id === truth[step]);
      return make("div", { class: "p" },
        make("span", {}, figures(one, place, answer.weights) + (right ? " · annotated" : "")),
        make("ol", { class: "s", "aria-label": "Plan " + (place + 1) }, ...steps));
    }));
    $("truth").hidden = $("legend").hidden = !truth;
    if (!truth) return;
    const missing = answer.plans.length
      ? missingSteps(answer.plans[0].actions.map((action) => action.id), truth)
      : truth.map(() => true);
    $("truth").replaceChildren(make("div", { class: "p" },
      make("b", {}, "annotated"),
      make("ol", { class: "s", "aria-label": "Annotated steps" }, ...answer.truth.map((action, step) => make(
        "li", { class: missing[step] ? "m" : null },
        make("span", {}, action.name, missing[step] ? make("span", { class: "apart" }, " (missing)") : ""))))));
  }

  function figures(one, place, weights) {
    const parts = [String(place + 1)];
    if (typeof one.probability === "number") parts.push(percent(one.probability));
    if (weights && weights.energy) parts.push("E " + one.energy.toFixed(3).replace("-", "−"));
    return parts.join(" · ");
  }

  // The same rules as in `cefito.report.mistakes`.
  function stepKinds(planned, truth) {
    const left = new Map();
    for (const action of truth) left.set(action, (left.get(action) || 0) + 1);
    const use = (action) => left.set(action, left.get(action) - 1);
    const kinds = planned.map((action, step) => (action === truth[step] ? (use(action), "right") : null));
    planned.forEach((action, step) => {
      if (!kinds[step] && (left.get(action) || 0) > 0) {
        kinds[step] = "order";
        use(action);
      }
    });
    const used = new Set(planned.filter((_, step) => kinds[step]));
    return planned.map((action, step) => {
      const kind = kinds[step] || (used.has(action) ? "repetition" : "substitution");
      used.add(action);
      return kind;
    });
  }

  function missingSteps(planned, truth) {
    const left = new Map();
    for (const action of planned) left.set(action, (left.get(action) || 0) + 1);
    const use = (action) => left.set(action, left.get(action) - 1);
    const missing = truth.map((action, step) => (action === planned[step] ? (use(action), false) : true));
    return truth.map((action, step) => {
      if (!missing[step] || !((left.get(action) || 0) > 0)) return missing[step];
      use(action);
      return false;
    });
  }

  // ---- one step

  function choose(step, action) {
    state.chosen = { step: step, action: action.id };
    $("step-head").textContent = "Step " + step + ": " + action.name;
    $("step-pin").textContent = "Pin it to step " + step;
    $("step-then").value = "";
    $("step").showModal();
  }

  function decide(work) {
    return function (event) {
      event.preventDefault();
      $("step").close();
      $("plans-head").focus();
      work(state.chosen);
    };
  }

  // ---- live sessions

  // the goal of the query as a session takes it: fields of the request, or a picture
  function goal() {
    if (goalText()) return { goal_text: goalText() };
    if (withoutGoal()) return {};
    if (!byVideo()) return { picture: pictureOf("goal") };
    const found = moment();
    return found ? { goal_video: { id: video().id, dataset: video().dataset, step: found.step + found.length - 1 } } : {};
  }

  const live = liveSession({ $, make, fill, call, get, json, guarded, complain, percent, run, video, goal });

  // ---- events

  const number = (id) => Number($(id).value);

  for (const [side, words] of [["start", "before the first step"], ["end", "after the last step"]]) {
    $(side + "-said").before(make("img", { id: side, alt: "What is seen " + words, hidden: true }));
  }

  function onSubmit(id, work) {
    $(id).addEventListener("submit", (event) => {
      event.preventDefault();
      work();
    });
  }

  $("run").addEventListener("change", guarded(runChosen));
  $("task").addEventListener("change", guarded(() => { reset(); return taskChosen(); }));
  $("given").addEventListener("change", stale);
  $("video").addEventListener("change", () => { reset(); videoChosen(); });
  $("window").addEventListener("change", () => { reset(); momentChosen(); });
  $("given").addEventListener("change", ready);
  $("count").addEventListener("change", () => { windowsKnown(); momentChosen(); });
  for (const id of ["no-goal", "goal-text"]) $(id).addEventListener("change", () => { windowsKnown(); kindChosen(); });
  $("done-kind").addEventListener("change", doneChanged);
  $("done-add").addEventListener("click", () => {
    if ($("done-action").value) done.push(number("done-action"));
    doneChanged();
  });
  for (const id of ["of-video", "of-pictures", "of-nothing"]) $(id).addEventListener("change", () => { reset(); kindChosen(); });
  $("initial").addEventListener("change", () => pictureChosen("initial", "start"));
  $("goal").addEventListener("change", () => pictureChosen("goal", "end"));
  onSubmit("ask", guarded(plan));
  for (const option of forms.keys()) {
    onSubmit("add-" + option, () => {
      const entry = [];
      for (const input of $("add-" + option).querySelectorAll("[data-part]")) entry[input.dataset.part] = Number(input.value);
      add(option, entry);
    });
  }
  $("clear").addEventListener("click", () => { held = nothing(); $("constraints-head").tabIndex = -1; $("constraints-head").focus(); changed(); });
  $("compare").addEventListener("change", () => { if (state.answer) strips(); });
  $("step-pin").addEventListener("click", decide((chosen) => add("pin", [chosen.step, chosen.action])));
  $("step-forbid").addEventListener("click", decide((chosen) => add("forbid", [chosen.action])));
  onSubmit("step-before", () => decide((chosen) => add("before", [chosen.action, number("step-then")]))({ preventDefault() {} }));
  $("step-close").addEventListener("click", () => $("step").close());

  guarded(begin)();
})();
