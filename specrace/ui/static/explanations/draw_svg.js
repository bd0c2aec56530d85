// Draws text and layers of a moving picture, and computes motion.
import { svg } from "../lib/dom.js";

// The opacity with which boxes are filled.
export const TINT = 0.17;

// `more`: further attributes of the text element.
export function drawText(text, x, y, fill, more = {}) {
  return svg("text", { x, y, fill, "xml:space": "preserve", "unicode-bidi": "isolate", ...more }, text);
}

// A group of elements that have one opacity. `name` says which part of the picture it is.
export function layer(opacity, name) {
  return svg("g", { opacity: Number(opacity.toFixed(3)), "data-part": name });
}

// How far `value` is on the way from `from` to `to`: 0 to 1, slower at both ends (smoothstep).
export function ramp(value, from, to) {
  const share = Math.min(1, Math.max(0, (value - from) / (to - from)));
  return share * share * (3 - 2 * share);
}

// The number that is this share of the way from `from` to `to`.
export function between(from, to, share) {
  return from + (to - from) * share;
}
