// Pictures of a camera or of the film that is shown, one of each second, for a live session.
import { $, make, pause } from "./base.js";
import { t } from "./words.js";

const SIDE = 256; // pixels of a picture's shorter side
const LATEST = 500; // milliseconds to wait for a frame; a hidden tab has no callback

const canvas = make("canvas");
let watched = null; // the present source
let lock = null; // keeps the screen on

export const watching = () => (watched ? watched.name : "");

// Watch the camera, from a second of the session; `send` takes a picture and its second.
export async function watchCamera(from, send, stopped) {
  if (!navigator.mediaDevices) throw new Error(t("camera.none"));
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 640 } } });
  } catch (problem) {
    throw new Error(t(problem.name === "NotAllowedError" ? "camera.refused" : "camera.busy", { problem: problem.message }));
  }
  stopWatching();
  const view = $("live-view");
  const [track] = stream.getVideoTracks();
  track.addEventListener("ended", () => stopped(t("camera.stopped")));
  view.srcObject = stream;
  await view.play();
  const began = performance.now() - 1000 * from;
  const clock = () => (performance.now() - began) / 1000;
  watch({
    name: "camera",
    first: from,
    last: Infinity,
    due: (second) => pause(1000 * (second + 0.5 - clock())),
    look: (second) => {
      draw();
      return Math.max(second, Math.floor(clock()));
    },
    end: () => {
      track.stop();
      view.srcObject = null;
    },
  }, send, stopped);
}

// Play the film, or go on with it: each second is shown in its middle until its turn is over.
export async function watchFilm(from, send, stopped) {
  stopWatching();
  const view = $("live-view");
  await view.play();
  const before = from - Math.round(view.currentTime);
  const speed = () => Number($("live-speed").value);
  let began = -Infinity; // when the present second was shown
  watch({
    name: "film",
    first: from,
    last: before + view.duration - 0.5,
    due: () => pause(began + 1000 / speed() - performance.now()),
    look: async (second) => {
      view.pause();
      const shown = frameAt(second + 0.5 - before);
      view.currentTime = second + 0.5 - before;
      await new Promise((resolve) => view.addEventListener("seeked", resolve, { once: true }));
      await Promise.race([shown, pause(LATEST)]);
      draw();
      began = performance.now();
      if (speed() === 1) view.play().catch(() => {}); // it may be paused before it plays
      return second;
    },
    end: () => view.pause(),
  }, send, stopped);
}

// the frame of a second, which may be shown after the event "seeked"
function frameAt(second) {
  const view = $("live-view");
  return new Promise((resolve) => {
    const shown = (now, { mediaTime }) => (Math.abs(mediaTime - second) < 0.5 ? resolve() : wait());
    const wait = () => view.requestVideoFrameCallback && view.requestVideoFrameCallback(shown);
    wait();
  });
}

export function stopWatching() {
  if (!watched) return;
  const { end } = watched;
  watched = null;
  end();
  if (lock) lock.release();
  lock = null;
}

// The picture of a second is taken in its middle, after the answer to the picture before.
async function watch(source, send, stopped) {
  watched = source;
  let going = null;
  if (navigator.wakeLock) navigator.wakeLock.request("screen").then((given) => lock = given, () => {});
  for (let next = source.first; next < source.last; next++) {
    await source.due(next);
    await going;
    if (watched !== source) return;
    next = await source.look(next);
    going = send(picture(), next);
  }
  await going;
  if (watched === source) stopped("");
}

// draw the present frame, small
function draw() {
  const view = $("live-view");
  const scale = Math.min(1, SIDE / Math.min(view.videoWidth, view.videoHeight));
  canvas.width = Math.round(scale * view.videoWidth);
  canvas.height = Math.round(scale * view.videoHeight);
  canvas.getContext("2d").drawImage(view, 0, 0, canvas.width, canvas.height);
}

const picture = () => new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
