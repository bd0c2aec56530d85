import { setDuration } from "../../../specrace/ui/static/film/webm.js";

// Elements of a file: an id, a size and the content. A size of n bytes, if it is below 127, is the byte 0x80 + n.
const HEAD = [0x1a, 0x45, 0xdf, 0xa3, 0x80];
const SEGMENT = [0x18, 0x53, 0x80, 0x67];
const UNKNOWN = [0x01, 255, 255, 255, 255, 255, 255, 255];
const SEEK_HEAD = [0x11, 0x4d, 0x9b, 0x74, 0x82, 7, 7];
// A tick of 2 ms, and a duration of 1 tick.
const SCALE = [0x2a, 0xd7, 0xb1, 0x83, 0x1e, 0x84, 0x80];
const ONE_TICK = [0x44, 0x89, 0x84, 0x3f, 0x80, 0, 0];
const INFO = [0x15, 0x49, 0xa9, 0x66];
const CLUSTER = [0x1f, 0x43, 0xb6, 0x75, 0x82, 1, 2];
// A size in eight bytes, and the content; and a duration element with this number as its content.
const written = (...content) => [0x01, 0, 0, 0, 0, 0, 0, content.length, ...content];
const duration = (ticks) => [0x44, 0x89, 0x01, 0, 0, 0, 0, 0, 0, 8, ...ticks];
const withDuration = (...parts) => [...setDuration(Uint8Array.from(parts.flat()), 3000)];

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a recorded file gets its duration, in its own ticks": () => [
    withDuration(HEAD, SEGMENT, UNKNOWN, INFO, [0x87], SCALE, CLUSTER),
    // 1500 as a number of eight bytes.
    [HEAD, SEGMENT, UNKNOWN, INFO, written(...SCALE, ...duration([0x40, 0x97, 0x70, 0, 0, 0, 0, 0])), CLUSTER].flat(),
  ],
  "another duration and a table of places are left out": () => [
    withDuration(HEAD, SEGMENT, [0x9c], SEEK_HEAD, INFO, [0x87], ONE_TICK, CLUSTER),
    // 3000 ticks of 1 ms.
    [HEAD, SEGMENT, UNKNOWN, INFO, written(...duration([0x40, 0xa7, 0x70, 0, 0, 0, 0, 0])), CLUSTER].flat(),
  ],
  "other files are refused": () => [
    [[0, 0, 0, 0], HEAD, [...HEAD, ...SEGMENT, ...UNKNOWN]].map((bytes) => {
      try {
        return setDuration(Uint8Array.from(bytes), 1);
      } catch (error) {
        return error.name;
      }
    }),
    ["RangeError", "RangeError", "RangeError"],
  ],
};
