// Pieces of text as they are shown: a control token such as <|im_end|> is none, nor is what would turn the text around it.
const CONTROL = /^\s*(?:<[|｜][^<>]{1,60}[|｜]>|<\/?(?:s|pad|unk|bos|eos|mask|start_of_turn|end_of_turn)>)\s*$/iu;
const UNSEEN = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu;

// Marks that change the direction of the text after them, up to the page's own.
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

// Text that is set by its own letters' direction alone.
export function withoutTurns(text) {
  return text.replace(TURNS, "");
}

export function isControl(piece) {
  return CONTROL.test(piece);
}

// The text of one token; "" where there is nothing to show.
export function readPiece(piece = "") {
  if (isControl(piece)) return "";
  return piece
    .replace(/[\t\n\r]+/gu, (blank) => (blank.includes("\n") ? "\n" : " "))
    .replace(UNSEEN, (sign) => (sign === "\n" ? sign : ""));
}
