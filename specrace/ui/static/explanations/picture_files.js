// Makes a file of a picture: an SVG that needs no other file.
import { svg } from "../lib/dom.js";

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

// A @font-face rule with its font file as a data URL; "" if the file cannot be loaded.
async function inlineFace(rule) {
  // The address in the first url(...), with or without quotes.
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

// Draws an SVG file so that it fills a canvas.
export async function paint(context, blob) {
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
