// A picture as a file of its own, and a moving one as a video.
import { svg } from "./dom.js";

const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const FRAMES_A_SECOND = 30;
const BITS_A_SECOND = 6_000_000;

// The page's own faces of a family, as rules that need no other file; "" where the page has none.
export async function inlineFonts(family) {
  const rules = [...document.styleSheets].flatMap(readRules);
  const faces = rules.filter((rule) => rule instanceof CSSFontFaceRule && nameOf(rule) === family);
  const found = await Promise.all(faces.map(inlineFace));
  return found.join("");
}

function readRules(sheet) {
  try {
    return [...sheet.cssRules];
  } catch {
    // A sheet of another origin keeps its rules to itself.
    return [];
  }
}

function nameOf(rule) {
  return rule.style.getPropertyValue("font-family").replace(/["']/g, "");
}

async function inlineFace(rule) {
  const [, address] = /url\(["']?([^"')]+)["']?\)/.exec(rule.style.getPropertyValue("src")) ?? [];
  if (!address) return "";
  try {
    const answer = await fetch(new URL(address, rule.parentStyleSheet.href ?? document.baseURI));
    if (!answer.ok) return "";
    const data = await readData(await answer.blob());
    const weight = rule.style.getPropertyValue("font-weight") || "400";
    return `@font-face{font-family:"${nameOf(rule)}";font-weight:${weight};src:url(${data})}`;
  } catch {
    return "";
  }
}

function readData(blob) {
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

export function videoType() {
  const known = typeof MediaRecorder !== "undefined" && HTMLCanvasElement.prototype.captureStream;
  return known ? TYPES.find((type) => MediaRecorder.isTypeSupported(type)) : undefined;
}

async function paint(pen, blob) {
  const address = URL.createObjectURL(blob);
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    pen.drawImage(image, 0, 0, pen.canvas.width, pen.canvas.height);
  } finally {
    URL.revokeObjectURL(address);
  }
}

// The video of `pictureAt(time)`, an SVG Blob, over `length` ms. It is taken in real time; `going(time)` is asked before
// each picture, and false ends it.
export async function film({ pictureAt, length, width, height, going }) {
  const sheet = document.createElement("canvas");
  Object.assign(sheet, { width, height });
  const pen = sheet.getContext("2d");
  await paint(pen, pictureAt(0));
  const recorder = new MediaRecorder(sheet.captureStream(FRAMES_A_SECOND), {
    mimeType: videoType(),
    videoBitsPerSecond: BITS_A_SECOND,
  });
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  const start = performance.now();
  try {
    for (let time = 0; time < length && going(time); time = performance.now() - start) {
      await paint(pen, pictureAt(time));
      await new Promise(requestAnimationFrame);
    }
    await paint(pen, pictureAt(length));
  } finally {
    recorder.stop();
    await ended;
  }
  return new Blob(parts, { type: recorder.mimeType });
}
