// Records what is drawn on a canvas as a video: as MP4, which slide programs accept, or as WebM where the browser
// cannot.
import { downloadBlob } from "../lib/files.js";
import { setDuration } from "./webm.js";

// The types of video, the preferred one first; avc1 is H.264.
const TYPES = [
  "video/mp4;codecs=avc1.640028",
  "video/mp4;codecs=avc1",
  "video/webm;codecs=vp9",
  "video/webm;codecs=vp8",
  "video/webm",
  "video/mp4",
];
// Common values, not tuned.
const FRAMES_PER_SECOND = 30;
const BITS_PER_SECOND = 6_000_000;
// How long the last picture stays: two frames of the video.
const LAST_PICTURE_MS = 2000 / FRAMES_PER_SECOND;

// The first type of video that the browser can record, or undefined.
export function videoType() {
  const canRecord = typeof MediaRecorder !== "undefined" && HTMLCanvasElement.prototype.captureStream;
  return canRecord ? TYPES.find((type) => MediaRecorder.isTypeSupported(type)) : undefined;
}

// The ending of a video's file name.
export function endingOf(type) {
  return type.startsWith("video/mp4") ? "mp4" : "webm";
}

// A clock in ms that stops, like the recording, while the page is hidden and nothing is drawn.
class VisibleTime {
  constructor(recorder) {
    this.start = performance.now();
    this.listener = () => {
      if (document.hidden) {
        this.hiddenAt = performance.now();
        recorder.pause();
      } else if (this.hiddenAt !== undefined) {
        this.start += performance.now() - this.hiddenAt;
        this.hiddenAt = undefined;
        recorder.resume();
      }
    };
    document.addEventListener("visibilitychange", this.listener);
  }

  get ms() {
    return performance.now() - this.start;
  }

  end() {
    document.removeEventListener("visibilitychange", this.listener);
  }
}

/**
 * Records `length` ms in real time. Before each picture `shouldContinue(time)` is called; when it returns false, the
 * video ends. `draw(context, time)` draws a picture, and may take a while.
 * @param {{
 *   canvas: HTMLCanvasElement, draw: (context: CanvasRenderingContext2D, time: number) => void | Promise<void>,
 *   length: number, shouldContinue: (time: number) => boolean, type?: string,
 * }} film
 * @returns {Promise<Blob>}
 */
export async function recordVideo({ canvas, draw, length, shouldContinue, type = videoType() }) {
  const context = canvas.getContext("2d");
  await draw(context, 0);
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_SECOND), {
    mimeType: type,
    videoBitsPerSecond: BITS_PER_SECOND,
  });
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  const clock = new VisibleTime(recorder);
  let lengthMs = 0;
  try {
    for (let time = 0; time < length && shouldContinue(time); time = clock.ms) {
      await draw(context, time);
      await new Promise(requestAnimationFrame);
    }
    // The stream may skip a picture that comes soon after another, so the last one is drawn again for a while.
    const end = clock.ms + LAST_PICTURE_MS;
    do {
      await draw(context, length);
      await new Promise(requestAnimationFrame);
    } while (clock.ms < end);
  } finally {
    lengthMs = clock.ms;
    clock.end();
    recorder.stop();
    await ended;
  }
  return finish(new Blob(parts, { type: recorder.mimeType }), lengthMs);
}

// Adds the duration to a WebM file, whose recording lacks it.
async function finish(video, ms) {
  if (endingOf(video.type) === "mp4") return video;
  return new Blob([setDuration(new Uint8Array(await video.arrayBuffer()), ms)], { type: video.type });
}

// A button that records a video and saves it; pressed again, it stops the recording.
export class VideoButton {
  // `status` shows the progress, or the sentence `noVideo` where the browser can record none.
  constructor(button, status, noVideo) {
    this.button = button;
    this.status = status;
    this.noVideo = noVideo;
    this.label = button.textContent;
    this.recording = undefined;
  }

  stop() {
    this.recording = undefined;
  }

  // `prepare` receives the ending of the file's name; it returns this name, and what `recordVideo` takes.
  async press(prepare) {
    if (this.recording) return this.stop();
    const type = videoType();
    if (!type) {
      this.status.textContent = this.noVideo;
      return;
    }
    // A new object, so that this recording is not confused with a later one.
    const recording = (this.recording = {});
    this.button.textContent = "Stop";
    try {
      const { name, ...film } = await prepare(endingOf(type));
      const shouldContinue = (time) => this.showProgress(recording, time, film.length);
      const video = await recordVideo({ ...film, shouldContinue, type });
      if (this.recording === recording) downloadBlob(video, name);
    } finally {
      // While a stopped recording ended, the visitor may have begun another.
      if (!this.recording || this.recording === recording) {
        this.stop();
        this.button.textContent = this.label;
        this.status.textContent = "";
      }
    }
  }

  // Returns false once the visitor has stopped the recording.
  showProgress(recording, time, length) {
    const seconds = `Recording: ${Math.floor(time / 1000)} of ${Math.round(length / 1000)} s`;
    if (this.recording === recording && this.status.textContent !== seconds) this.status.textContent = seconds;
    return this.recording === recording;
  }
}
