// Breaks a lane's text into the lines of a film. A part is a piece of a line with the number of the accepted run that
// it belongs to, or 0 for the model's own text.
/** @typedef {{ text: string, run: number }} Part */
/** @typedef {{ parts: Part[], width: number }} Line */

/**
 * A word without the blanks around it; `blank` is the blank before it, and `breaks` tells that it begins a new line.
 * @typedef {{ parts: Part[], blank: Part | null, breaks: boolean }} Word
 */

/**
 * @param {Part[]} parts
 * @returns {Word[]}
 */
function splitWords(parts) {
  const begin = (more = {}) => ({ parts: [], blank: null, breaks: false, ...more });
  const words = [begin()];
  for (const { text, run } of parts)
    // A piece is a line break, other blanks, or a word.
    for (const piece of text.match(/\n|[^\S\n]+|\S+/gu) ?? []) {
      if (piece === "\n") words.push(begin({ breaks: true }));
      else if (piece.trim()) words.at(-1).parts.push({ text: piece, run });
      else words.push(begin({ blank: { text: " ", run } }));
    }
  return words;
}

// Adds a part to a line, or to the line's last part if both belong to the same run.
/**
 * @param {Line} line
 * @param {Part} part
 * @param {number} width
 */
function addPart(line, part, width) {
  const last = line.parts.at(-1);
  if (last?.run === part.run) last.text += part.text;
  else line.parts.push({ ...part });
  line.width += width;
}

/**
 * The lines of a text. A word that is wider than a line is broken between characters.
 * @param {Part[]} parts
 * @param {number} width of a line
 * @param {(text: string) => number} measure the width of a text
 * @returns {Line[]}
 */
export function breakIntoLines(parts, width, measure) {
  /** @type {Line[]} */
  const lines = [{ parts: [], width: 0 }];
  for (const word of splitWords(parts)) {
    const blankWidth = word.blank ? measure(word.blank.text) : 0;
    const wordWidth = word.parts.reduce((sum, { text }) => sum + measure(text), 0);
    const isFirst = !lines.at(-1).parts.length;
    if (word.breaks) lines.push({ parts: [], width: 0 });
    else if (!isFirst && lines.at(-1).width + blankWidth + wordWidth > width) lines.push({ parts: [], width: 0 });
    else if (!isFirst && word.blank) addPart(lines.at(-1), joinBlank(lines.at(-1), word), blankWidth);
    for (const { text, run } of word.parts)
      for (const piece of wordWidth <= width ? [text] : Array.from(text)) {
        const pieceWidth = measure(piece);
        if (lines.at(-1).width + pieceWidth > width) lines.push({ parts: [], width: 0 });
        addPart(lines.at(-1), { text: piece, run }, pieceWidth);
      }
  }
  return lines;
}

// The blank before a word. It is inside a run's box only between two words of that run.
/**
 * @param {Line} line
 * @param {Word} word
 */
function joinBlank(line, { blank, parts }) {
  const isInside = line.parts.at(-1).run === blank.run && parts[0]?.run === blank.run;
  return isInside ? blank : { ...blank, run: 0 };
}
