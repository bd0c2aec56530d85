// Makes a file of a picture: an SVG that needs no other file or, of a moving picture, a video.
import { svg } from "../lib/dom.js";

const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const FRAMES_PER_SECOND = 30;
const BITS_PER_SECOND = 6_000_000;

// The page's fonts of a family as CSS rules that contain the font files; "" if the page has none.
export async function inlineFonts(family) {
  const rules = [...document.styleSheets].flatMap(readRules);
  const faces = rules.filter((rule) => rule instanceof CSSFontFaceRule && familyOf(rule) === family);
  const inlined = await Promise.all(faces.map(inlineFace));
  return inlined.join("");
}

function readRules(sheet) {
  try {
    return [...sheet.cssRules];
  } catch {
    // The rules of a sheet from another origin cannot be read.
    return [];
  }
}

function familyOf(rule) {
  return rule.style.getPropertyValue("font-family").replace(/["']/g, "");
}

async function inlineFace(rule) {
  const [, address] = /url\(["']?([^"')]+)["']?\)/.exec(rule.style.getPropertyValue("src")) ?? [];
  if (!address) return "";
  try {
    const response = await fetch(new URL(address, rule.parentStyleSheet.href ?? document.baseURI));
    if (!response.ok) return "";
    const data = await readDataUrl(await response.blob());
    const weight = rule.style.getPropertyValue("font-weight") || "400";
    return `@font-face{font-family:"${familyOf(rule)}";font-weight:${weight};src:url(${data})}`;
  } catch {
    return "";
  }
}

function readDataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", reject);
    reader.readAsDataURL(blob);
  });
}

export function writeSvg(picture, fonts) {
  const copy = picture.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (fonts) copy.prepend(svg("style", {}, fonts));
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

// The first type of video that the browser can record, or undefined.
export function videoType() {
  const canRecord = typeof MediaRecorder !== "undefined" && HTMLCanvasElement.prototype.captureStream;
  return canRecord ? TYPES.find((type) => MediaRecorder.isTypeSupported(type)) : undefined;
}

async function paint(context, blob) {
  const url = URL.createObjectURL(blob);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    context.drawImage(image, 0, 0, context.canvas.width, context.canvas.height);
  } finally {
    URL.revokeObjectURL(url);
  }
}

// Records a video of `pictureAt(time)`, an SVG Blob, over `length` ms, in real time. `shouldContinue(time)` is called
// before each picture; when it returns false, the video ends.
export async function recordVideo({ pictureAt, length, width, height, shouldContinue }) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  await paint(context, pictureAt(0));
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_SECOND), {
    mimeType: videoType(),
    videoBitsPerSecond: BITS_PER_SECOND,
  });
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  const start = performance.now();
  try {
    for (let time = 0; time < length && shouldContinue(time); time = performance.now() - start) {
      await paint(context, pictureAt(time));
      await new Promise(requestAnimationFrame);
    }
    await paint(context, pictureAt(length));
  } finally {
    recorder.stop();
    await ended;
  }
  return new Blob(parts, { type: recorder.mimeType });
}
