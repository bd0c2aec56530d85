// Writes the duration into a WebM file. Browsers record WebM as a stream, whose head they write before they know how
// long it will be: a player then shows no length, and slides cannot loop it. Formats: RFC 8794 (EBML), RFC 9559
// (Matroska).
const EBML = 0x1a45dfa3;
const SEGMENT = 0x18538067;
const SEEK_HEAD = 0x114d9b74;
const INFO = 0x1549a966;
const TIMESTAMP_SCALE = 0x2ad7b1;
const DURATION = 0x4489;
// Nanoseconds in a tick, if the file does not say.
const DEFAULT_SCALE = 1_000_000;

/**
 * An element of the file: the offsets at which it, its content and the next element begin.
 * @typedef {{ id: number, start: number, content: number, end: number }} Element
 */

// Reads a variable-length integer of 1 to 8 bytes: the first 1 bit marks its length. `keepsMark`: that bit is part of
// the value, as in an element's id. A size whose other bits are all 1 is unknown.
function readNumber(bytes, at, keepsMark) {
  // `clz32` counts leading zeros in 32 bits: 24 more than there are in the byte.
  const length = Math.clz32(bytes[at]) - 23;
  if (length > 8 || at + length > bytes.length) throw new RangeError("a number is cut off");
  const mark = 0x80 >> (length - 1);
  let value = keepsMark ? bytes[at] : bytes[at] & (mark - 1);
  let isUnknown = (bytes[at] & (mark - 1)) === mark - 1;
  for (let index = 1; index < length; index++) {
    value = value * 256 + bytes[at + index];
    isUnknown &&= bytes[at + index] === 255;
  }
  return { value, length, isUnknown };
}

// The element at offset `start`; one of unknown size ends with the file.
/** @returns {Element} */
function readElement(bytes, start) {
  const id = readNumber(bytes, start, true);
  const size = readNumber(bytes, start + id.length, false);
  const content = start + id.length + size.length;
  return { id: id.value, start, content, end: size.isUnknown ? bytes.length : content + size.value };
}

function* readChildren(bytes, { content, end }) {
  for (let at = content; at < end;) {
    const child = readElement(bytes, at);
    yield child;
    at = child.end;
  }
}

function readInteger(bytes, { content, end }) {
  return bytes.subarray(content, end).reduce((value, byte) => value * 256 + byte, 0);
}

// An element with an eight-byte size, in which any content fits.
function writeElement(id, content) {
  const size = new Uint8Array(8);
  new DataView(size.buffer).setBigUint64(0, (1n << 56n) | BigInt(content.length));
  return join([id, size, content]);
}

function join(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// The segment's Info element, with a duration of `ms`.
function writeInfo(bytes, info, ms) {
  const children = [...readChildren(bytes, info)];
  const scale = children.find(({ id }) => id === TIMESTAMP_SCALE);
  const ticks = (ms * 1e6) / (scale ? readInteger(bytes, scale) : DEFAULT_SCALE);
  const duration = new Uint8Array(8);
  new DataView(duration.buffer).setFloat64(0, ticks);
  const others = children.filter(({ id }) => id !== DURATION).map(({ start, end }) => bytes.subarray(start, end));
  // The bytes are the ids DURATION and, below, INFO.
  const written = writeElement(Uint8Array.of(0x44, 0x89), duration);
  return writeElement(Uint8Array.of(0x15, 0x49, 0xa9, 0x66), join([...others, written]));
}

/**
 * The file with a duration. The segment gets an unknown size, as in a stream, and loses its index of offsets
 * (SeekHead), which would be wrong. Throws RangeError for bytes that are no WebM file.
 * @param {Uint8Array} bytes
 * @param {number} ms
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function setDuration(bytes, ms) {
  const head = readElement(bytes, 0);
  const segment = readElement(bytes, head.end);
  if (head.id !== EBML || segment.id !== SEGMENT) throw new RangeError("this is no WebM file");
  // The id SEGMENT, then an unknown size: eight bytes, in which all bits after the mark are 1.
  const parts = [bytes.subarray(0, head.end), Uint8Array.of(0x18, 0x53, 0x80, 0x67, 0x01)];
  parts.push(new Uint8Array(7).fill(255));
  for (const child of readChildren(bytes, segment)) {
    if (child.id === INFO) return join([...parts, writeInfo(bytes, child, ms), bytes.subarray(child.end)]);
    if (child.id !== SEEK_HEAD) parts.push(bytes.subarray(child.start, child.end));
  }
  throw new RangeError("the file has no description");
}
