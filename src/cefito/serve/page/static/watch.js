// Pictures of a camera or of the film of the query, one of each second, for a live session.
import { $, make } from "./base.js";
import { filmAddress } from "./film.js";

const SIDE = 256; // pixels of a picture's shorter side
const TICK = 15; // milliseconds between looks at the clock
const REFUSED = {
  NotAllowedError: "The browser may not use the camera. Allow it for this page, and try again.",
  NotFoundError: "There is no camera. Connect one, and try again.",
  NotReadableError: "The camera is in use by another program. Close that one, and try again.",
};

const canvas = make("canvas");
let watched = null; // the present source
let lock = null; // keeps the screen on

export const watching = () => (watched ? watched.name : "");

// Watch the camera, from a second of the session; `send` takes a picture and its second.
export async function watchCamera(from, send, stopped) {
  if (!navigator.mediaDevices) throw new Error("The browser gives no camera to this page. Open it over https, or as localhost.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 640 } } });
  } catch (problem) {
    throw new Error(REFUSED[problem.name] || "The camera cannot be used: " + problem.message + ".");
  }
  stopWatching();
  const view = $("live-view");
  const [track] = stream.getVideoTracks();
  track.addEventListener("ended", () => {
    stopWatching();
    stopped("The camera has stopped. Connect it, and use the camera again.");
  });
  view.srcObject = stream;
  view.playbackRate = 1;
  await view.play();
  const began = performance.now() - 1000 * from;
  watch({
    name: "camera",
    clock: () => (performance.now() - began) / 1000,
    over: () => false,
    end: () => {
      track.stop();
      view.srcObject = null;
    },
  }, send, stopped);
}

// Play the film, or go on with it. It waits for late answers, and goes back to a second that it passed.
export async function watchFilm(from, send, stopped) {
  stopWatching();
  const view = $("live-view");
  if (view.src !== filmAddress()) view.src = filmAddress();
  if (view.ended) view.currentTime = 0;
  const speed = () => view.playbackRate = Number($("live-speed").value);
  $("live-speed").onchange = speed;
  await view.play();
  speed();
  const before = from - Math.round(view.currentTime);
  let shown = view.currentTime; // time of the frame that is seen
  const source = {
    name: "film",
    clock: () => before + (view.ended ? view.duration : shown),
    over: (second) => second + 0.5 >= before + view.duration,
    hold: () => view.pause(),
    go: () => view.play(),
    back: async (second) => {
      view.currentTime = second + 0.5 - before;
      await new Promise((resolve) => view.addEventListener("seeked", resolve, { once: true }));
      shown = view.currentTime;
      view.play();
    },
    end: () => view.pause(),
  };
  const frame = (_, { mediaTime }) => {
    shown = mediaTime;
    if (watched === source) view.requestVideoFrameCallback(frame);
  };
  view.requestVideoFrameCallback(frame);
  watch(source, send, stopped);
}

export function stopWatching() {
  if (!watched) return;
  const { end } = watched;
  watched = null;
  end();
  if (lock) lock.release();
  lock = null;
}

// The picture of a second is taken in its middle, and the next one after the answer to it.
async function watch(source, send, stopped) {
  watched = source;
  let next = Math.round(source.clock());
  let going = null;
  if (navigator.wakeLock) navigator.wakeLock.request("screen").then((given) => lock = given, () => {});
  while (watched === source) {
    if (source.clock() < next + 0.5) {
      await new Promise((resolve) => setTimeout(resolve, TICK));
    } else if (going) {
      source.hold?.();
      await going;
      if (watched === source) source.go?.();
    } else if (source.back && source.clock() >= next + 1) {
      await source.back(next);
    } else {
      const at = Math.max(next, Math.floor(source.clock()));
      going = send(picture(), at).finally(() => going = null);
      next = at + 1;
      if (source.over(next)) {
        await going;
        if (watched !== source) return;
        stopWatching();
        stopped("");
      }
    }
  }
}

// the present picture as a small JPEG
function picture() {
  const view = $("live-view");
  const scale = Math.min(1, SIDE / Math.min(view.videoWidth, view.videoHeight));
  canvas.width = Math.round(scale * view.videoWidth);
  canvas.height = Math.round(scale * view.videoHeight);
  canvas.getContext("2d").drawImage(view, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
}
