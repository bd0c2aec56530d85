// Writes an uncompressed zip, in which several files reach the server as one, with their names.

// The signatures of a zip's records.
const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
// The version of the format that a reader needs: 2.0.
const VERSION = 20;
// The flag that says that names are UTF-8.
const UTF8 = 0x0800;
// 1980-01-01, the earliest date that a zip can hold.
const DAY = 0x21;

// The CRC-32 of every byte; 0xedb88320 is its polynomial, with the bits reversed.
const CRCS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRCS[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// Packs numbers, given as [size in bytes, value], in little-endian order; a size is 2 or 4.
function fields(...pairs) {
  const size = pairs.reduce((sum, [bytes]) => sum + bytes, 0);
  const view = new DataView(new ArrayBuffer(size));
  let at = 0;
  for (const [bytes, value] of pairs) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return view.buffer;
}

// A Blob with the zip of these files, {name, file}; names must differ.
export async function writeZip(files) {
  const members = [];
  const directory = [];
  let offset = 0;
  for (const { name, file } of files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const encoded = new TextEncoder().encode(name);
    // Version, flags, method (0: not compressed), time, date, CRC-32, size as stored, size, lengths of the name and of
    // further fields.
    const about = [
      [2, VERSION],
      [2, UTF8],
      [2, 0],
      [2, 0],
      [2, DAY],
      [4, crc32(bytes)],
      [4, bytes.length],
      [4, bytes.length],
      [2, encoded.length],
      [2, 0],
    ];
    const head = fields([4, LOCAL], ...about);
    members.push(head, encoded, bytes);
    // After the name's length: no comment, disk 0, no attributes.
    directory.push(fields([4, CENTRAL], [2, VERSION], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), encoded);
    offset += head.byteLength + encoded.length + bytes.length;
  }
  const size = directory.reduce((sum, part) => sum + part.byteLength, 0);
  const count = files.length;
  // Disk 0 twice, the number of files there and in all, size and offset of the directory, no comment.
  const end = fields([4, END], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, offset], [2, 0]);
  return new Blob([...members, ...directory, end]);
}
