import { endingOf, recordVideo, VideoButton, videoType } from "../../../specrace/ui/static/film/video.js";

const TYPES = ["video/mp4;codecs=avc1.640028", "video/webm"].filter((type) => MediaRecorder.isTypeSupported(type));
// A browser on a busy machine may capture no second picture of a short recording, so each is twice as long as the last.
const LENGTHS_MS = [300, 600, 1200, 2400, 4800, 9600];
// What `record` returns for a video that is as it should be.
const GOOD = JSON.stringify([true, 320, 180, true]);

// What `record` returns for the first good video or, if there is none, for the longest.
async function recordAny(type) {
  let seen;
  for (const length of LENGTHS_MS) {
    seen = await record(type, length);
    if (JSON.stringify(seen) === GOOD) break;
  }
  return seen;
}

// Records a square that turns from red to blue, and reads the video as a player does. Returns whether it lasts as long
// as the recording, its width and height, and whether its last picture is blue.
async function record(type, length) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 180 });
  const times = [];
  const draw = (context, time) => {
    times.push(time);
    context.fillStyle = time < length / 2 ? "red" : "blue";
    context.fillRect(0, 0, 320, 180);
  };
  const video = await recordVideo({ canvas, draw, length, shouldContinue: () => true, type });
  const player = document.createElement("video");
  player.muted = true;
  player.src = URL.createObjectURL(video);
  await new Promise((resolve, reject) => Object.assign(player, { onloadedmetadata: resolve, onerror: reject }));
  const { duration } = player;
  player.currentTime = duration;
  await new Promise((resolve) => (player.onseeked = resolve));
  const { videoWidth, videoHeight } = player;
  const seen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  seen.drawImage(player, 0, 0, 1, 1);
  const [red, , blue] = seen.getImageData(0, 0, 1, 1).data;
  URL.revokeObjectURL(player.src);
  // A busy machine draws the last picture late, so that the video is longer than it was meant to be.
  return [Number.isFinite(duration) && duration >= (0.9 * length) / 1000, videoWidth, videoHeight, blue > 2 * red];
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "MP4 is preferred, because slides take it": () => [
    [TYPES.includes(videoType()), endingOf(videoType())],
    [true, TYPES.length > 1 ? "mp4" : "webm"],
  ],
  "a video of each kind plays, and has its duration": async () => {
    const videos = [];
    for (const type of TYPES) videos.push(await recordAny(type));
    return [videos, TYPES.map(() => [true, 320, 180, true])];
  },
  "a recording that is stopped ends": async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 32, height: 32 });
    const video = await recordVideo({ canvas, draw: () => {}, length: 1e9, shouldContinue: (time) => time < 50 });
    return [video.type.split(";")[0], videoType().split(";")[0]];
  },
  "a second press stops the recording, and nothing is saved": async () => {
    const [node, status] = ["button", "p"].map((name) => document.createElement(name));
    node.textContent = "Save";
    const video = new VideoButton(node, status, "");
    const labels = [];
    const draw = (_, time) => {
      if (time && video.recording) {
        labels.push(node.textContent, status.textContent !== "");
        video.press();
      }
    };
    const canvas = Object.assign(document.createElement("canvas"), { width: 32, height: 32 });
    await video.press((ending) => ({ name: `stopped.${ending}`, canvas, draw, length: 60_000 }));
    return [
      [...labels, video.recording, node.textContent, status.textContent],
      ["Stop", true, undefined, "Save", ""],
    ];
  },
};
